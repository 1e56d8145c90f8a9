"""The frame of every bench: what a result says, and when it does not count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from worldline.cli import bench as cli_bench
from worldline.cli import main
from worldline.errors import BadValue, RunVoid
from worldline.lab.bench.frame import Finding, Memcpy, Peer, Run, Trial, find, measure
from worldline.lab.bench.samples import Samples, interleave
from worldline.lab.bench.table import BENCHES
from worldline.lab.entry import Entry
from worldline.lab.telemetry import read_run


def example(trial: Trial, *, factor: float = 2.0, quiet: bool = False) -> Finding:
    """Compares nothing with something."""
    samples = trial.interleave({"ours": lambda: factor, "theirs": lambda: 1.0}, "bytes/s")
    peers = () if quiet else (Peer("theirs", samples.ratio("ours", "theirs")),)
    return Finding(samples.ratio("ours", "theirs"), "ours / theirs", samples, peers, ({"a": 1, "b": 2.5},), ("so",))


def blind(trial: Trial) -> Finding:
    """Loses its collector."""
    trial.telemetry._broke = "the collector ended"
    return example(trial)


def app() -> App:
    """The command line of the example alone."""
    alone = App(result_action="return_value")
    alone.default(getattr(cli_bench, "bench_example-bench"))
    return alone


@pytest.fixture
def listed() -> Iterator[None]:
    BENCHES["example-bench"] = Entry(f"{__name__}:example", "Nothing.")
    yield
    del BENCHES["example-bench"]


def test_a_ratio_is_the_median_of_the_rounds_quotients() -> None:
    samples = Samples("s", {"a": (1.0, 20.0, 3.0), "b": (1.0, 10.0, 1.0)})
    assert samples.ratio("a", "b") == 2.0
    assert samples.medians == {"a": 3.0, "b": 1.0}


def test_arms_of_unequal_length_are_no_samples() -> None:
    with pytest.raises(BadValue):
        Samples("s", {"a": (1.0,), "b": ()})


def test_every_arm_is_measured_once_a_round_after_one_unrecorded_run() -> None:
    calls: list[str] = []
    figures = {"a": iter(range(100)), "b": iter(range(100, 200))}

    def arm(name: str) -> float:
        calls.append(name)
        return float(next(figures[name]))

    samples = interleave({"a": lambda: arm("a"), "b": lambda: arm("b")}, "s", 5)
    assert samples.arms == {"a": (1, 2, 3, 4, 5), "b": (101, 102, 103, 104, 105)}
    assert all(sorted(calls[at : at + 2]) == ["a", "b"] for at in range(0, len(calls), 2))


def test_fewer_than_five_rounds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValue):
        measure("example", example, {}, Run(tmp_path, tmp_path / "run", rounds=4))


def test_a_result_has_its_samples_the_machines_limit_and_its_record(tmp_path: Path) -> None:
    result = measure("example", example, {"factor": 3.0}, Run(tmp_path, tmp_path / "run"))
    assert (result.ratio, result.n, result.void) == (3.0, 5, None)
    assert result.samples == {"ours": (3.0,) * 5, "theirs": (1.0,) * 5}
    assert len(result.memcpy_samples_bytes_per_s) == 6
    assert result.settings == {"factor": 3.0, "rounds": 5}
    assert read_run(tmp_path / "run").fingerprint == result.fingerprint


def test_a_bench_that_nobody_watches_is_void(tmp_path: Path) -> None:
    with pytest.raises(RunVoid):
        measure("blind", blind, {}, Run(tmp_path, tmp_path / "run"))
    assert read_run(tmp_path / "run").void is not None


def test_the_spread_of_memcpy_is_its_range_over_its_median() -> None:
    assert Memcpy((4.0, 5.0, 6.0)).spread == pytest.approx(0.4)


def test_an_unknown_bench_lists_the_known_ones() -> None:
    with pytest.raises(BadValue, match="there is no bench 'no'"):
        find("no")


def test_every_bench_is_there_and_in_the_documents() -> None:
    text = (Path(__file__).parents[4] / "docs" / "bench.md").read_text()
    for name in BENCHES:
        assert (find(name).__doc__ or "").strip()
        assert f"bench {name}" in text


@pytest.mark.usefixtures("listed")
def test_the_command_takes_the_benchs_options_and_prints_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "kept" / "result.json"
    argv = ["--factor", "4", "--quiet", "--json", "--out", str(out)]
    assert app()(argv, exit_on_error=False) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["ratio"], printed["peers"], printed["void"]) == (4.0, [], None)
    assert printed == json.loads(out.read_text())
    assert read_run(out.with_name("result.json.telemetry.jsonl")).fingerprint == printed["fingerprint"]


@pytest.mark.usefixtures("listed")
def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:

    assert app()([], exit_on_error=False) == 0
    told = capsys.readouterr().out
    assert "example-bench: 2.000  ours / theirs" in told
    assert "memcpy" in told


def test_an_unknown_bench_is_wrong_words() -> None:
    assert main(["bench", "no-such-bench"]) == 2
