"""What readiness saves, when it pays, and how long a player must be away before a session is parked.

Measured on a real host, in turns: a parked session comes back into a slot that was made ready (*hot*), or into memory
that is touched for the first time (*first touch*); and a world is opened anew from its seed (*cold reopen*), which is
another world from its first block on and never competes with an exact return. From those times the break-even hit rate
lambda*, as a band over resamples, one a seed. The sweep of park thresholds is a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from worldline.capacity.prewarm import prewarm_break_even, warm_buffer
from worldline.clock import Clock, SystemClock
from worldline.errors import BadValue
from worldline.lab.bench.samples import interleave
from worldline.lab.experiments.bars import bars_text
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.experiments.players import AWAY_MEDIAN_S, AWAY_SIGMA, THINKS_EVERY
from worldline.lab.report import Column, Line, Listing, Plot, Report, Section, Series, Standing, Table, Words
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.service.client import Client
from worldline.units import parse_bytes

HOST, WORLD = "a", "load"
SEEDS = 64
THRESHOLDS_S = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
SESSIONS, HOURS = 120, 4.0
BLOCK_S = 1.28
THINK_MEDIAN_S, THINK_SIGMA = 3.0, 0.982
"""Of pauses within play: an assumption, no trace of play is public; the spread is that of the gaps of conversations."""
PLAY_BLOCKS_MEAN = 120
MISS_MAX = 0.01


@dataclass(frozen=True, slots=True)
class Band:
    """Over the seeds: the 5th, 50th and 95th of a hundred."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Times:
    """Medians, in ms."""

    hot: float
    first_touch: float
    cold_reopen: float
    """Not exact: another world."""
    keeping: float
    """What making one slot ready takes, whether it is used or not."""
    engine: float
    """Once a host and world: the engine, and its canary block."""


@dataclass(frozen=True, slots=True)
class AtThreshold:
    """A fleet whose sessions are parked after being idle for so long. Means over the seeds."""

    threshold_s: float
    reactivations_per_hour: float
    """Of one session."""
    reactivations_low: float
    reactivations_high: float
    parked_share: float
    """Of the sessions' time: what their devices may do something else."""
    slots: int
    """Of a warm buffer for 120 sessions, at first touch's time, 1 % finding none."""


@dataclass(frozen=True, slots=True)
class Prewarm:
    """`break_even` is lambda*: above that hit rate a slot pays."""

    times: Times
    break_even: Band
    """By keeping / (first touch - hot): may be over 1, where no hit rate pays."""
    break_even_by_ratio: Band
    """By hot / first touch, another reading of the paper's figure."""
    seeds: int
    thresholds: list[AtThreshold]
    most_over_least: float
    """Reactivations at the shortest threshold over those at the longest."""
    state_bytes: int
    rounds: int


def measure(trial: Trial, *, rounds: int = 7, state: str = "128MB") -> Prewarm:
    """Measures hot, first-touch and cold returns, and sweeps the park threshold over 64 seeds.

    Parameters
    ----------
    trial: Trial
        The run.
    rounds: int
        From 5.
    state: str
        Of a session of the load world.
    """
    if rounds < 5:
        raise BadValue(f"5 rounds or more are measured, not {rounds}")
    nbytes = parse_bytes(state)
    plan = FleetPlan((HOST,), run_dir=trial.folder / "run", memory_bytes=6 * nbytes + (64 << 20), restarts=False)
    with Fleet.start(plan) as fleet, Client(fleet.url) as client:
        returns = _Returns(client, state, SystemClock())
        arms: dict[str, Callable[[], float]] = {
            "hot": returns.hot,
            "first touch": returns.first_touch,
            "cold reopen": returns.cold,
        }
        samples = interleave(arms, "s", rounds, between=trial.telemetry.check)
    hot, first = samples.arms["hot"], samples.arms["first touch"]
    keeping = returns.keeping_s[-rounds:]
    medians = samples.medians
    times = Times(
        medians["hot"] * 1e3,
        medians["first touch"] * 1e3,
        medians["cold reopen"] * 1e3,
        median(keeping) * 1e3,
        returns.engine_s * 1e3,
    )
    trial.say(f"hot {times.hot:.0f} ms, first touch {times.first_touch:.0f} ms, cold reopen {times.cold_reopen:.0f} ms")
    thresholds = [_at(threshold_s, medians["first touch"]) for threshold_s in THRESHOLDS_S]
    return Prewarm(
        times,
        _band([_break_even(Random(seed), hot, first, keeping) for seed in range(SEEDS)]),
        _band([_by_ratio(Random(seed), hot, first) for seed in range(SEEDS)]),
        SEEDS,
        thresholds,
        thresholds[0].reactivations_per_hour / thresholds[-1].reactivations_per_hour,
        nbytes,
        rounds,
    )


class _Returns:
    """One parked session that comes back in several ways, and is parked again each time."""

    def __init__(self, client: Client, state: str, clock: Clock) -> None:
        self._client = client
        self._options = {"bytes": state}
        self._clock = clock
        self.engine_s = client.prewarm(HOST, WORLD, slots=0, options=self._options).engine_s
        self.keeping_s: list[float] = []
        self._session = client.open(WORLD, seed=1, options=self._options, host=HOST)
        self._session.step(1, 2)
        self._session.park()

    def hot(self) -> float:
        """The wall time of a resume that finds a slot ready."""
        self.keeping_s.append(self._client.prewarm(HOST, WORLD, slots=1, options=self._options).arenas_s)
        return self._resumed()

    def first_touch(self) -> float:
        self._client.prewarm(HOST, WORLD, slots=0, options=self._options)
        return self._resumed()

    def cold(self) -> float:
        """A new world, up to its first block."""
        self._client.prewarm(HOST, WORLD, slots=0, options=self._options)
        began_s = self._clock.monotonic_s()
        opened = self._client.open(WORLD, seed=1, options=self._options, host=HOST)
        opened.step(1)
        took_s = self._clock.monotonic_s() - began_s
        opened.close()
        return took_s

    def _resumed(self) -> float:
        began_s = self._clock.monotonic_s()
        self._session.resume(HOST)
        took_s = self._clock.monotonic_s() - began_s
        self._session.park()
        return took_s


# ---- the break-even


def _break_even(chance: Random, hot: Sequence[float], first: Sequence[float], keeping: Sequence[float]) -> float:
    return prewarm_break_even(_drawn(chance, keeping), _drawn(chance, first), _drawn(chance, hot))


def _by_ratio(chance: Random, hot: Sequence[float], first: Sequence[float]) -> float:
    return _drawn(chance, hot) / _drawn(chance, first)


def _drawn(chance: Random, samples: Sequence[float]) -> float:
    """The median of a resample."""
    return median(chance.choices(samples, k=len(samples)))


def _band(values: Sequence[float]) -> Band:
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[round(share * (len(ordered) - 1))]

    return Band(at(0.05), at(0.5), at(0.95))


# ---- the park threshold


def _at(threshold_s: float, reactivation_s: float) -> AtThreshold:
    rates, parked = [], []
    for seed in range(SEEDS):
        one = idled(Random(seed), threshold_s)
        rates.append(one[0])
        parked.append(one[1])
    band, mean_rate = _band(rates), sum(rates) / SEEDS
    slots = warm_buffer(SESSIONS, 3600.0 / mean_rate, reactivation_s, MISS_MAX).slots if mean_rate else 0
    return AtThreshold(threshold_s, mean_rate, band.low, band.high, sum(parked) / SEEDS, slots)


def idled(chance: Random, threshold_s: float) -> tuple[float, float]:
    """Reactivations of one session an hour, and the share of its time in which it is parked."""
    now_s, parked_s, returns, ends_s = 0.0, 0.0, 0, HOURS * 3600.0
    while now_s < ends_s:
        if chance.random() < THINKS_EVERY / PLAY_BLOCKS_MEAN:
            pause_s = AWAY_MEDIAN_S * chance.lognormvariate(0.0, AWAY_SIGMA)
        else:
            pause_s = THINK_MEDIAN_S * chance.lognormvariate(0.0, THINK_SIGMA)
        now_s += chance.expovariate(1 / THINKS_EVERY) * BLOCK_S + pause_s
        if pause_s > threshold_s:
            parked_s += pause_s - threshold_s
            returns += 1
    return returns / (now_s / 3600.0), parked_s / now_s


# ---- what is shown


def text(results: Prewarm) -> str:
    times, band, ratio = results.times, results.break_even, results.break_even_by_ratio
    by_ratio = f"as hot over first touch {ratio.middle:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    lines = [
        f"hot {times.hot:.1f} ms, first touch {times.first_touch:.1f} ms; making a slot ready {times.keeping:.1f} ms",
        f"cold reopen, another world: {times.cold_reopen:.1f} ms",
        f"lambda* {band.middle:.2f} ({band.low:.2f} to {band.high:.2f} over {results.seeds} seeds); {by_ratio}",
    ]
    lines += [
        f"parked after {each.threshold_s:4.0f} s: {each.reactivations_per_hour:5.1f} reactivations an hour and "
        f"session, parked {each.parked_share:.0%} of the time, {each.slots} warm slots"
        for each in results.thresholds
    ]
    return "\n".join([*lines, bars_text(())])


def report(results: Prewarm) -> Report:
    del results  # every number is looked up
    return Report("prewarm", "Prewarm: what readiness saves", (_times(), _thresholds()))


def _times() -> Section:
    key = "prewarm/times"
    said = (
        "A session of {prewarm/state_bytes} bytes comes back from its image, exactly, into a slot that was made ready "
        "or into memory touched for the first time; medians of {prewarm/rounds} rounds in turns. A slot pays if more "
        "than lambda* of those made ready are used: keeping / (first touch - hot). Over 1, no hit rate pays while the "
        "work of making it ready would be the same work later; what it buys then is the player's wait."
    )
    return Section(
        "Returns",
        (
            Words(said),
            Table(
                "One return",
                (
                    Line("hot", f"{key}/hot", None, "ms", ".1f"),
                    Line("first touch", f"{key}/first_touch", None, "ms", ".1f"),
                    Line("making a slot ready", f"{key}/keeping", None, "ms", ".1f"),
                    Line("engine and canary, once a host", f"{key}/engine", None, "ms", ".0f"),
                ),
            ),
            Table(
                "lambda*, over 64 resamples",
                (
                    Line("5 of 100", "prewarm/break_even/low", None, "", ".2f"),
                    Line("50 of 100", "prewarm/break_even/middle", None, "", ".2f"),
                    Line("95 of 100", "prewarm/break_even/high", None, "", ".2f"),
                    Line("as hot over first touch, 5", "prewarm/break_even_by_ratio/low", None, "", ".2f"),
                    Line("as hot over first touch, 50", "prewarm/break_even_by_ratio/middle", None, "", ".2f"),
                    Line("as hot over first touch, 95", "prewarm/break_even_by_ratio/high", None, "", ".2f"),
                ),
            ),
            Words("Kept apart, because it is another world from its first block on:"),
            Table("Not exact", (Line("cold reopen, to the first block", f"{key}/cold_reopen", None, "ms", ".1f"),)),
        ),
    )


def _thresholds() -> Section:
    base = "prewarm/thresholds"
    columns = (
        Column("parked after, s", "threshold_s", Standing.SIMULATED, ".0f"),
        Column("reactivations an hour", "reactivations_per_hour", Standing.SIMULATED, ".1f"),
        Column("5 of 100", "reactivations_low", Standing.SIMULATED, ".1f"),
        Column("95 of 100", "reactivations_high", Standing.SIMULATED, ".1f"),
        Column("parked", "parked_share", Standing.SIMULATED, ".0%"),
        Column("warm slots for 120", "slots", Standing.PROJECTED),
    )
    plot = Plot(
        "thresholds",
        "Reactivations over the park threshold",
        "parked after, s",
        "reactivations an hour and session",
        (Series("64 seeds", f"{base}/*/threshold_s", f"{base}/*/reactivations_per_hour", Standing.SIMULATED),),
        log_x=True,
        log_y=True,
    )
    said = (
        "Players who pause now and then (lognormal, median 3 s: an assumption) and go away for longer (lognormal, as "
        "the gaps of a public trace of conversations). The shortest threshold makes "
        "{prewarm/most_over_least:.0f} times the reactivations of the longest, and parks little more."
    )
    return Section("The park threshold", (Words(said), Listing("One session", base, columns), plot))


PREWARM = Experiment(measure, report, text)
