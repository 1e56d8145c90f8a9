"""`worldline torture`: many simulated histories and many runs of real processes that are killed and stopped, counted.

Every bad one is printed with the command that replays it. What is counted as bad must be zero: a world lost although
the process that held it lives, a second owner, a wrong byte, a hang, something left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from worldline.clock import SystemClock
from worldline.errors import BadValue
from worldline.lab.fingerprint import Fingerprint, fingerprint
from worldline.testing.simulation import Simulation, Tally, Violation
from worldline.testing.torture_crash import Crash, Fate
from worldline.testing.torture_player import Twin
from worldline.testing.torture_runs import CrashRuns

BATCH = 50
"""Histories between two lines of progress, and for one process at a time."""
JOBS_MAX = 64
BAD = ("lost", "two_owners", "wrong_bytes", "hangs", "leaks")
SIGNS = (
    ("hang: ", "hangs"),
    ("leak: ", "leaks"),
    ("still holds an arena", "leaks"),
    ("is declared lost, and", "lost"),
    ("can show frames", "two_owners"),
    ("two lineages", "two_owners"),
    ("maps the same arena", "two_owners"),
)
"""What in a violation's sentence says which count it is; any other is `wrong_bytes`."""


@dataclass(slots=True)
class Torture:
    """The result. The counts in `BAD` must be zero."""

    seed: int
    histories: int = 0
    crashes: int = 0
    moves: int = 0
    faults_planted: int = 0
    lost: int = 0
    """Worlds lost although the process that held them lived, or without a reason."""
    two_owners: int = 0
    wrong_bytes: int = 0
    hangs: int = 0
    leaks: int = 0
    died_with_host: int = 0
    """Worlds whose only holder was ended: said to be lost, with the reason."""
    returned: int = 0
    """Moves and resumes whose committed target ended before it was known to play: the world is back where it was."""
    source_stood: int = 0
    """Of those that died: a copy still stood at the source, or in the image, and the target had never played."""
    damaged_images: int = 0
    """Parked worlds whose image the simulated disk had damaged: every resume is refused."""
    recovery_s: float = 0.0
    """The longest time that a killed controller, once it answered again, left an order open."""
    histories_s: float = 0.0
    crashes_s: float = 0.0
    replays: list[str] = field(default_factory=list)
    """How each bad one is seen again."""
    machine: Fingerprint = field(default_factory=fingerprint)

    @property
    def good(self) -> bool:
        return not any(getattr(self, count) for count in BAD)

    def add_history(self, told: Tally | str, seed: int) -> str | None:
        """Counts a history; the line to print where it is bad."""
        self.histories += 1
        if isinstance(told, str):
            count = next((count for sign, count in SIGNS if sign in told), "wrong_bytes")
            return self._add_bad(count, told, f"python -m worldline.testing.simulation --seed {seed}")
        self.moves += told.moves_done
        self.faults_planted += told.faults
        self.died_with_host += told.lost
        self.returned += told.moves_returned
        self.source_stood += told.source_stood
        self.damaged_images += told.damaged
        return None

    def add_crash(self, fate: Fate) -> list[str]:
        """Counts a crash run; the lines to print where it is bad."""
        self.crashes += 1
        self.faults_planted += 1
        self.moves += fate.moves
        self.died_with_host += fate.died_with_host
        self.returned += fate.returned
        self.source_stood += fate.source_stood
        self.recovery_s = round(max(self.recovery_s, fate.recovery_s or 0.0), 3)
        replay = f"worldline torture --histories 0 --crashes 1 --seed {fate.crash.seed}"
        return [self._add_bad(count, f"{fate.crash}: {sentence}", replay) for count, sentence in fate.bad]

    def _add_bad(self, count: str, sentence: str, replay: str) -> str:
        setattr(self, count, getattr(self, count) + 1)
        self.replays.append(replay)
        return f"{count}: {sentence}\n  again: {replay}"


def torture(histories: int, crashes: int, seed: int, jobs: int, say: Callable[[str], None]) -> Torture:
    """Histories of the seeds `seed`, `seed + 1`, ..., and as many crash runs. Raises `BadValue`."""
    if histories < 0 or crashes < 0 or not 1 <= jobs <= JOBS_MAX:
        raise BadValue(f"histories and crashes are counts, and jobs are 1 to {JOBS_MAX}")
    result, clock = Torture(seed), SystemClock()
    began_s = clock.monotonic_s()
    for number, told in _histories(seed, histories, jobs):
        bad = result.add_history(told, number)
        if bad is not None:
            say(bad)
        if result.histories % (10 * BATCH) == 0:
            say(f"{result.histories} of {histories} histories, {result.moves} moves, {result.died_with_host} died")
    result.histories_s = round(clock.monotonic_s() - began_s, 1)
    if crashes:
        began_s = clock.monotonic_s()
        _crash(result, crashes, say)
        result.crashes_s = round(clock.monotonic_s() - began_s, 1)
    return result


def _crash(result: Torture, crashes: int, say: Callable[[str], None]) -> None:
    with CrashRuns(tiny_twin) as runs:
        for seed in range(result.seed, result.seed + crashes):
            fate = runs.run(Crash.draw(seed))
            outcome = "died with its host" if fate.died_with_host else "returned" if fate.returned else fate.refused
            outcome = outcome or "done"
            say(f"{result.crashes + 1} of {crashes}, seed {seed}, {fate.seconds:.1f} s: {fate.crash}: {outcome}")
            for line in result.add_crash(fate):
                say(line)


def _histories(seed: int, histories: int, jobs: int) -> Iterator[tuple[int, Tally | str]]:
    """Each history's seed and tally, or the sentence of its violation."""
    batches = [range(start, min(start + BATCH, seed + histories)) for start in range(seed, seed + histories, BATCH)]
    if jobs == 1:
        for batch in batches:
            yield from zip(batch, _batch(batch), strict=True)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for batch, tallies in zip(batches, pool.map(_batch, batches), strict=True):
            yield from zip(batch, tallies, strict=True)


def _batch(seeds: range) -> list[Tally | str]:
    return [_history(seed) for seed in seeds]


def _history(seed: int) -> Tally | str:
    try:
        return Simulation(seed).run()
    except Violation as violation:
        return str(violation)


def tiny_twin(seed: int) -> Twin:
    """The session that never moves, in this process."""
    import torch

    from worldline.testing.torture_twin import TinyTwin

    torch.set_num_threads(1)
    return TinyTwin(seed)
