"""What each step of a move costs, and how many moves a verification lane can take: the price list.

The prices are those of `worldline bench prices`, measured here; what follows from them for the paper's session and
horizon is projected.
"""

from __future__ import annotations

from dataclasses import dataclass

from worldline.capacity.gate import lane_fan_in
from worldline.clock import SystemClock
from worldline.errors import BadValue
from worldline.lab.bench.frame import Trial as Bench
from worldline.lab.bench.prices import GIB, price_list
from worldline.lab.experiments.bars import bars_text
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.report import Column, Listing, Plot, Report, Section, Series, Standing, Words

STATE_BYTES, DIRTY_BYTES_PER_S, HORIZON_S, OVERHEAD_S = 1.67e9, 0.93e9, 0.4, 0.057
THREADS = (1, 2, 4, 8, 16, 32)
DIGEST = "digest"
"""The step of the bench whose price is a lane's."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a move."""

    what: str
    s_per_gib: float


@dataclass(frozen=True, slots=True)
class Pause:
    """One way of moving a session between two processes of this machine."""

    what: str
    predicted_ms: float
    """From the steps' prices, and the pause of a session that is all overhead."""
    measured_ms: float


@dataclass(frozen=True, slots=True)
class FanIn:
    """Moves of 1.67 GB that end verified within 400 ms, on so many threads of one lane. Lanes that scale as threads."""

    threads: int
    lane_bytes_per_s: float
    frozen: int
    live: int
    fluid: float
    """Upper bound only: leaves out overhead, and that moves are whole."""


@dataclass(frozen=True, slots=True)
class Prices:
    """`agreement`: the worst way's smaller figure over its larger one."""

    agreement: float
    lane_bytes_per_s: float
    commit_ms: float
    """One durable transaction, which every move has."""
    steps: list[Step]
    pauses: list[Pause]
    fan_in: list[FanIn]


def measure(trial: Trial, *, rounds: int = 5, size: str = "200MB", period_ms: float = 400.0) -> Prices:
    """Prices every step of a move on this machine, and what a verification lane can take.

    Parameters
    ----------
    trial: Trial
        The run.
    rounds: int
        From 5.
    size: str
        Of the session whose pauses are predicted and measured, from 60MB.
    period_ms: float
        Of its block.
    """
    if rounds < 5:
        raise BadValue(f"5 rounds or more are measured, not {rounds}")
    bench = Bench(SystemClock(), trial.folder, rounds, trial.say, trial.telemetry)
    found = price_list(bench, size, period_ms)
    lane_bytes_per_s = GIB / found.steps_s_per_gib[DIGEST]
    return Prices(
        found.agreement,
        lane_bytes_per_s,
        found.commit_s * 1e3,
        [Step(what, cost) for what, cost in found.steps_s_per_gib.items()],
        [Pause(each.way, each.predicted_s * 1e3, each.measured_s * 1e3) for each in found.pauses],
        [fan_in_of(threads, lane_bytes_per_s) for threads in THREADS],
    )


def fan_in_of(threads: int, lane_bytes_per_s: float) -> FanIn:
    rate = threads * lane_bytes_per_s
    found = lane_fan_in(STATE_BYTES, DIRTY_BYTES_PER_S, HORIZON_S, rate, OVERHEAD_S)
    return FanIn(threads, rate, found.frozen, found.live, float(found.fluid))


def text(results: Prices) -> str:
    lines = [f"{step.what}: {step.s_per_gib:.4f} s a GiB" for step in results.steps]
    lines.append(f"one durable transaction: {results.commit_ms:.2f} ms a move")
    lines += [
        f"pause, {each.what}: predicted {each.predicted_ms:.1f} ms, measured {each.measured_ms:.1f} ms"
        for each in results.pauses
    ]
    lines += [
        f"a lane of {each.threads} threads: {each.frozen} frozen or {each.live} live moves of 1.67 GB within 400 ms"
        for each in results.fan_in
    ]
    return "\n".join([*lines, bars_text(())])


def report(results: Prices) -> Report:
    del results  # every number is looked up
    steps = Listing(
        "A GiB",
        "prices/steps",
        (Column("step", "what", Standing.MEASURED), Column("s a GiB", "s_per_gib", Standing.MEASURED, ".4f")),
    )
    pauses = Listing(
        "Pauses between two processes of this machine",
        "prices/pauses",
        (
            Column("way", "what", Standing.MEASURED),
            Column("measured, ms", "measured_ms", Standing.MEASURED, ".1f"),
            Column("predicted, ms", "predicted_ms", Standing.PROJECTED, ".1f"),
        ),
    )
    fan_in = Listing(
        "Moves of 1.67 GB that end verified within 400 ms",
        "prices/fan_in",
        (
            Column("threads", "threads", Standing.PROJECTED),
            Column("bytes/s", "lane_bytes_per_s", Standing.PROJECTED, ".3g"),
            Column("frozen", "frozen", Standing.PROJECTED),
            Column("live", "live", Standing.PROJECTED),
            Column("fluid bound", "fluid", Standing.PROJECTED, ".2f"),
        ),
    )
    plot = Plot(
        "fan-in",
        "Moves that a verification lane can take",
        "threads of the lane",
        "moves within 400 ms",
        tuple(
            Series(label, "prices/fan_in/*/threads", f"prices/fan_in/*/{key}", Standing.PROJECTED)
            for label, key in (("frozen", "frozen"), ("live", "live"), ("fluid bound", "fluid"))
        ),
        log_x=True,
    )
    said = (
        "One thread of this machine digests {prices/lane_bytes_per_s} bytes/s. How lanes scale with threads was not "
        "measured here: the fan-in takes them to scale, and is a projection. The fluid bound is the upper bound it is."
    )
    found = (
        Words("Predicted and measured pauses differ by at most the factor {prices/agreement:.2f}."),
        steps,
        Words("The durable transaction that every move has took {prices/commit_ms:.2f} ms."),
        pauses,
        Words(said),
        fan_in,
        plot,
    )
    return Report("prices", "Prices: what a move costs, step by step", (Section("Found", found),))


PRICES = Experiment(measure, report, text)
