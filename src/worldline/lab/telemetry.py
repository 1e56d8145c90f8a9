"""On what machine a measurement was made, and whether anybody was watching: the record of a run.

Invariant: fail closed. A run counts only if its collector wrote a sample at least every `SILENCE_S` from the run's
start to its end; a collector that stopped, stalled or could not write makes the run *void*, whatever was measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self, TextIO

from worldline.clock import Clock, SystemClock
from worldline.errors import Malformed, RunVoid
from worldline.lab.fingerprint import Fingerprint, fingerprint
from worldline.lab.load import Load, LoadMeter

HEARTBEAT_S = 1.0
SILENCE_S = 15.0
FORMAT = "worldline run 1"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is known of a run beside its result. `void` says why it does not count, and is None where it does."""

    fingerprint: str
    """Digest of `machine`: runs of equal ones may be compared."""
    machine: Fingerprint
    samples: int
    silence_s_max: float
    void: str | None


class Pulse:
    """The times of a collector's samples, and what they say about the run."""

    def __init__(self, began_at_s: float) -> None:
        self.samples = 0
        self.silence_s_max = 0.0
        self._last_at_s = began_at_s

    def beat(self, at_s: float) -> None:
        self._hear(at_s)
        self.samples += 1
        self._last_at_s = at_s

    def void(self, now_s: float) -> str | None:
        """Why the run does not count as of `now_s`. It stays void: a collector that comes back mends nothing."""
        self._hear(now_s)
        if self.silence_s_max <= SILENCE_S:
            return None
        return f"the collector was silent for {self.silence_s_max:.1f} s, which is over {SILENCE_S:.0f} s"

    def _hear(self, now_s: float) -> None:
        self.silence_s_max = max(self.silence_s_max, now_s - self._last_at_s)


class Telemetry:
    """A run's collector, for the length of a `with` block: a thread that writes one line a second to `path`.

    with Telemetry(path) as telemetry:
        ...
        telemetry.check()  # now and then: raises `RunVoid`
    telemetry.finish()  # the record
    """

    def __init__(
        self, path: Path, clock: Clock | None = None, read: Callable[[], Load] | None = None, beats: bool = True
    ) -> None:
        """`read` is what is sampled. `beats` False: no thread; the caller calls `beat`."""
        self._path = path
        self._clock = clock or SystemClock()
        self._read = read or LoadMeter().read
        self._beats = beats
        self._machine = fingerprint()
        self._lock = Lock()
        self._over = Event()
        self._thread = Thread(target=self._collect, name="telemetry", daemon=True)
        self._record: RunRecord | None = None
        self._broke: str | None = None
        self._pulse: Pulse
        self._file: TextIO

    def __enter__(self) -> Self:
        self._pulse = Pulse(self._clock.monotonic_s())
        self._file = self._path.open("x", encoding="utf-8")
        self._write({"format": FORMAT, "machine": asdict(self._machine)} | self._now())
        if self._beats:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.finish()

    def beat(self) -> None:
        """Takes one sample and writes it."""
        load = self._read()
        with self._lock:
            if self._record is None:
                self._write(asdict(load) | self._now())
                self._pulse.beat(self._clock.monotonic_s())

    def check(self) -> None:
        """Raises `RunVoid` once the collector ended or was silent for too long: what is measured now is for nothing."""
        with self._lock:
            void = self._void()
        if void is not None:
            raise RunVoid(f"the run is void: {void}")

    def finish(self) -> RunRecord:
        """Ends the collector and the file. The record; the same one when asked again."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(SILENCE_S)
        with self._lock:
            if self._record is None:
                void = self._end(self._void())
                pulse = self._pulse
                self._record = RunRecord(self._machine.digest, self._machine, pulse.samples, pulse.silence_s_max, void)
        return self._record

    def _collect(self) -> None:
        try:
            self.beat()  # the shortest run has a sample
            while not self._over.wait(HEARTBEAT_S):
                self.beat()
        except Exception as error:  # noqa: BLE001  the thread's root: it ends, and the run is void
            with self._lock:
                self._broke = f"the collector ended: {error!r}"[:200]

    def _void(self) -> str | None:
        return self._broke or self._pulse.void(self._clock.monotonic_s())

    def _end(self, void: str | None) -> str | None:
        try:
            with self._file:
                self._write({"end": True, "void": void} | self._now())
        except OSError as error:
            return void or f"the record could not be completed: {error.strerror}"
        return void

    def _now(self) -> dict[str, object]:
        return {"at_s": self._clock.monotonic_s(), "wall_s": self._clock.wall_s()}

    def _write(self, line: Mapping[str, object]) -> None:
        self._file.write(json.dumps(line, sort_keys=True) + "\n")
        self._file.flush()


def read_run(path: Path) -> RunRecord:
    """The record of a run from its file. One that was not ended is void. Raises `Malformed`, and `OSError`."""
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        first, later = lines[0], lines[1:]
        if first["format"] != FORMAT:
            raise Malformed(f"{path.name} is of format {str(first['format'])[:40]!r}, not {FORMAT!r}")
        machine = Fingerprint(**first["machine"])
        pulse = Pulse(float(first["at_s"]))
        ended = bool(later) and "end" in later[-1]
        for line in later[: len(later) - ended]:
            pulse.beat(float(line["at_s"]))
        silent = pulse.void(float(later[-1]["at_s"])) if later else None
        void = (later[-1]["void"] or silent) if ended else "the run was never ended"
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Malformed(f"{path.name} is no record of a run: {error!r}") from error
    return RunRecord(machine.digest, machine, pulse.samples, pulse.silence_s_max, void)
