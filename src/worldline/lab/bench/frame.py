"""What every bench shares: a watched run, samples taken in turns, the machine's own limit beside them, one result.

A bench is a function `(trial, *, options...) -> Finding`; `table.BENCHES` names it. It measures through
`trial.interleave`, which also copies memory once a round: the machine's limit comes out of the same run as the
figures. A run that the telemetry did not watch from start to end is void, whatever it measured.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TypeAlias, cast

import numpy as np

from worldline.clock import Clock, SystemClock, thread_cpu_s
from worldline.errors import BadValue, Internal
from worldline.lab.bench.samples import ROUNDS_MIN, Samples, interleave
from worldline.lab.bench.table import BENCHES
from worldline.lab.telemetry import RunRecord, Telemetry

Cell: TypeAlias = str | int | float | bool | None
MEMCPY_BYTES = 64 * 1024 * 1024
MEMCPY_COPIES = 3
SPREAD_MAX = 0.2
"""Of memcpy: over it the machine is not quiet, and a note says so."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another engine at the same task, and how many times as fast ours was."""

    name: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Memcpy:
    """The machine's limit, from the same run: `np.copyto` of 64 MiB, each sample the median of three."""

    samples_bytes_per_s: tuple[float, ...]

    @property
    def median_bytes_per_s(self) -> float:
        return median(self.samples_bytes_per_s)

    @property
    def spread(self) -> float:
        """(max - min) / median."""
        return (max(self.samples_bytes_per_s) - min(self.samples_bytes_per_s)) / self.median_bytes_per_s


@dataclass(frozen=True, slots=True)
class Finding:
    """What a bench returns. `ratio` is its bar's figure and `ratio_is` says of what; more is better."""

    ratio: float
    ratio_is: str
    samples: Samples
    """Behind the ratio."""
    peers: tuple[Peer, ...] = ()
    rows: tuple[Mapping[str, Cell], ...] = ()
    """Further figures as a table; equal keys in each."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One run of one bench, as it is printed and kept. `void` says why it does not count, None where it does."""

    name: str
    ratio: float
    ratio_is: str
    n: int
    unit: str
    samples: Mapping[str, tuple[float, ...]]
    """Every arm's figures in `unit`, in the order of the rounds: the i-th of all arms belong together."""
    medians: Mapping[str, float]
    memcpy_median_bytes_per_s: float
    memcpy_spread: float
    memcpy_samples_bytes_per_s: tuple[float, ...]
    fingerprint: str
    void: str | None
    settings: Mapping[str, object]
    notes: tuple[str, ...]
    peers: tuple[Peer, ...]
    rows: tuple[Mapping[str, Cell], ...]
    telemetry: RunRecord


@dataclass(slots=True)
class Trial:
    """A bench's run while it goes on."""

    clock: Clock
    folder: Path
    """Empty at the start and the bench's own; removed by whoever made it."""
    rounds: int
    say: Callable[[str], None]
    telemetry: Telemetry
    _copies: list[float] = field(default_factory=list)
    _memory: tuple[np.ndarray, np.ndarray] | None = None

    def seconds(self, action: Callable[[], object]) -> float:
        """How long `action` takes."""
        began_s = self.clock.monotonic_s()
        action()
        return self.clock.monotonic_s() - began_s

    def cpu_seconds(self, action: Callable[[], object]) -> float:
        """How much processor time of this thread `action` takes, whoever else wanted the core meanwhile."""
        began_s = thread_cpu_s()
        action()
        return thread_cpu_s() - began_s

    def interleave(self, arms: Mapping[str, Callable[[], float]], unit: str, rounds: int | None = None) -> Samples:
        """As `samples.interleave`, with one copy of memory a round. Raises `RunVoid` when nobody watches any more."""
        self.copy()
        return interleave(arms, unit, self.rounds if rounds is None else rounds, between=self._between)

    def copy(self) -> None:
        """One sample of the machine's limit. A bench that measures in its own way calls it now and then."""
        if self._memory is None:
            self._memory = (np.ones(MEMCPY_BYTES, np.uint8), np.zeros(MEMCPY_BYTES, np.uint8))
        source, target = self._memory
        took_s = median(self.seconds(lambda: np.copyto(target, source)) for _ in range(MEMCPY_COPIES))
        self._copies.append(MEMCPY_BYTES / took_s)

    @property
    def memcpy(self) -> Memcpy:
        if not self._copies:
            self.copy()
        return Memcpy(tuple(self._copies))

    def _between(self) -> None:
        self.telemetry.check()
        self.copy()


BenchFunction: TypeAlias = Callable[..., Finding]


def find(name: str) -> BenchFunction:
    """The bench of that name. Raises `BadValue`, which lists the known ones."""
    if name not in BENCHES:
        raise BadValue(f"there is no bench {name!r}; there are {', '.join(sorted(BENCHES)) or 'none'}")
    module, _, function = BENCHES[name].where.partition(":")
    found = getattr(importlib.import_module(module), function, None)
    if found is None:
        raise Internal(f"the table of benches names {BENCHES[name].where}, which is not there")
    return cast(BenchFunction, found)


@dataclass(frozen=True, slots=True)
class Run:
    """How a bench is run. `record` is where its telemetry is written: a file that is not there yet."""

    folder: Path
    record: Path
    rounds: int = ROUNDS_MIN
    say: Callable[[str], None] = lambda _: None
    clock: Clock = field(default_factory=SystemClock)


def measure(name: str, bench: BenchFunction, options: Mapping[str, object], run: Run) -> BenchResult:
    """Runs `bench` watched. Returns also when the run is void. Raises what the bench raises."""
    if run.rounds < ROUNDS_MIN:
        raise BadValue(f"a bench takes {ROUNDS_MIN} rounds or more, not {run.rounds}")
    with Telemetry(run.record, run.clock) as telemetry:
        trial = Trial(run.clock, run.folder, run.rounds, run.say, telemetry)
        finding = bench(trial, **options)
        memcpy = trial.memcpy
        record = telemetry.finish()
    notes = finding.notes
    if memcpy.spread > SPREAD_MAX:
        notes += (f"the machine was not quiet: memcpy varied by {memcpy.spread:.0%}, over {SPREAD_MAX:.0%}",)
    return BenchResult(
        name=name,
        ratio=finding.ratio,
        ratio_is=finding.ratio_is,
        n=finding.samples.rounds,
        unit=finding.samples.unit,
        samples=finding.samples.arms,
        medians=finding.samples.medians,
        memcpy_median_bytes_per_s=memcpy.median_bytes_per_s,
        memcpy_spread=memcpy.spread,
        memcpy_samples_bytes_per_s=memcpy.samples_bytes_per_s,
        fingerprint=record.fingerprint,
        void=record.void,
        settings={**options, "rounds": run.rounds},
        notes=notes,
        peers=finding.peers,
        rows=finding.rows,
        telemetry=record,
    )
