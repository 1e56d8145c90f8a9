"""A run that nobody watched over is void, and says so."""

import json
import resource
from threading import Event

import pytest

from worldline.clock import ManualClock
from worldline.errors import Malformed, RunVoid
from worldline.lab.fingerprint import Fingerprint, fingerprint
from worldline.lab.load import Load, LoadMeter
from worldline.lab.telemetry import SILENCE_S, Telemetry, read_run

LOAD = Load(0.5, 0.0, 1.25, 1 << 30)


@pytest.fixture
def clock():
    return ManualClock(100.0)


def watched(path, clock, read=lambda: LOAD):
    return Telemetry(path, clock, read, beats=False)


def test_a_run_with_a_steady_collector_counts(tmp_path, clock):
    with watched(tmp_path / "run", clock) as telemetry:
        for _ in range(40):
            clock.advance(1.0)
            telemetry.beat()
            telemetry.check()
    record = telemetry.finish()
    assert (record.samples, record.silence_s_max, record.void) == (40, 1.0, None)
    assert read_run(tmp_path / "run") == record


@pytest.mark.parametrize(
    "beats_at_s", [(), (1.0,), (20.0, 21.0), (10.0, 26.0, 27.0)], ids=["never", "early", "late", "gap"]
)
def test_a_run_with_a_silence_anywhere_is_void(tmp_path, clock, beats_at_s):
    with watched(tmp_path / "run", clock) as telemetry:
        for at_s in beats_at_s:
            clock.advance(100.0 + at_s - clock.monotonic_s())
            telemetry.beat()
        clock.advance(100.0 + 30.0 - clock.monotonic_s())
    record = telemetry.finish()
    assert "silent" in record.void
    assert read_run(tmp_path / "run") == record


def test_silence_is_told_while_the_run_goes_on_and_is_not_forgiven(tmp_path, clock):
    with watched(tmp_path / "run", clock) as telemetry:
        clock.advance(SILENCE_S)
        telemetry.check()
        clock.advance(0.5)
        with pytest.raises(RunVoid, match=r"silent for 15\.5 s"):
            telemetry.check()
        telemetry.beat()
        with pytest.raises(RunVoid):
            telemetry.check()


def test_a_collector_that_dies_makes_the_run_void_at_once(tmp_path):
    died = Event()

    def read():
        died.set()
        raise OSError("planted: the kernel tells no more")

    with Telemetry(tmp_path / "run", read=read) as telemetry:
        assert died.wait(30)
    record = telemetry.finish()
    assert "the collector ended" in record.void
    assert record.samples == 0
    assert read_run(tmp_path / "run").void == record.void


def test_a_record_that_can_not_be_completed_is_void(clock, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with watched(tmp_path / "run", clock) as telemetry:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "run").stat().st_size, before[1]))
        try:
            record = telemetry.finish()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "could not be completed" in record.void
    assert read_run(tmp_path / "run").void == "the run was never ended"


def test_a_run_that_was_cut_off_is_void(tmp_path, clock):
    with watched(tmp_path / "run", clock) as telemetry:
        clock.advance(1.0)
        telemetry.beat()
    whole = (tmp_path / "run").read_text().splitlines(keepends=True)
    (tmp_path / "run").write_text("".join(whole[:-1]))
    assert read_run(tmp_path / "run").void == "the run was never ended"


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", "nonsense", '{"format": "worldline run 2"}\n'])
def test_what_is_no_record_is_malformed(tmp_path, text):
    (tmp_path / "run").write_text(text)
    with pytest.raises(Malformed):
        read_run(tmp_path / "run")


def test_a_finished_run_takes_no_more_samples(tmp_path, clock):
    with watched(tmp_path / "run", clock) as telemetry:
        record = telemetry.finish()
        telemetry.beat()
    assert telemetry.finish() is record
    assert len((tmp_path / "run").read_text().splitlines()) == 2


def test_the_collector_samples_by_itself(tmp_path):
    seen = Event()

    def read():
        load = LoadMeter().read()
        seen.set()
        return load

    with Telemetry(tmp_path / "run", read=read):
        assert seen.wait(30)
    record = read_run(tmp_path / "run")
    assert (record.samples >= 0, record.void) == (True, None)
    first = json.loads((tmp_path / "run").read_text().splitlines()[0])
    assert Fingerprint(**first["machine"]).digest == record.fingerprint == fingerprint().digest


def test_shares_are_of_the_time_between_two_readings(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:       7 kB\n")
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1\n")
    meter = LoadMeter(tmp_path)
    (tmp_path / "stat").write_text("cpu  150 0 110 720 110 0 0 10 0 0\ncpu0 1\n")
    load = meter.read()
    assert (load.busy, load.steal, load.memory_available_bytes) == (0.7, 0.1, 7 * 1024)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9"])
def test_a_kernel_that_does_not_tell_is_no_idle_one(tmp_path, text):
    (tmp_path / "stat").write_text(text)
    with pytest.raises(ValueError, match="does not tell"):
        LoadMeter(tmp_path)


def test_machines_that_differ_in_anything_have_other_digests():
    here = fingerprint()
    facts = {name: getattr(here, name) for name in here.__slots__}
    for name, other in [("cores", here.cores + 1), ("governor", "x"), ("commit", "x"), ("accelerators", ("x",))]:
        assert Fingerprint(**(facts | {name: other})).digest != here.digest
    assert here.python in fingerprint().python
