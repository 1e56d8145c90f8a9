"""Up to twice what the ports carry: no promise is late, and how much is promised of what could be.

Five arms on the real calendar: one receiver with exact service, the same with service that takes up to 10 % more or
less and a margin of 10 %, one receiver under bursts, eight hosts that send to one another, and those with the error.
Beside each the same moves without admission. The efficiency of an arm is the bytes it admits over the most that any
schedule of the same trace admits (for eight hosts: over a bound that asks for one port only).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np

from worldline.capacity.admission import ideal_accepted_share
from worldline.clock import Clock, SystemClock
from worldline.control.calendar import Calendar
from worldline.control.grants import Accepted, Ask, Policy, Ports
from worldline.errors import BadValue
from worldline.lab.experiments.bars import Bar, all_met, bars_text
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.experiments.overload_fabric import OnFabric, measure_on_fabric
from worldline.lab.experiments.traffic import (
    COST_US,
    WITHIN_US,
    Played,
    Trace,
    best,
    late_without_admission,
    play,
    trace,
    with_error,
)
from worldline.lab.report import Column, Line, Listing, Plot, Report, Section, Series, Standing, Table, Words
from worldline.schema.ids import HostId, MoveId

LOADS = tuple(step / 5 for step in range(11))
NODES = 8
ERROR = MARGIN = 0.1
MOVES, DECISIONS = 1000, 4000
FAR_US, SOON_US, SPARE_US = 10_000_000_000, 50_000, 20_000
LATE_SHARE_MAX = 0.005
SIDE_SHARE = 5
"""The arms beside the two of one receiver get a fifth of the arrivals."""
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t, 95 %, two-sided, by the number of samples."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of offering moves, over all seeds."""

    offered: int
    admitted: int
    late: int
    """Of the admitted."""
    efficiency: float
    """Admitted over the most that could be: the mean of the seeds."""
    efficiency_ci95: float
    """Half the width of its 95 % interval; 0 for one seed."""
    efficiency_least: float
    without_admission_late: int
    """Of all that were offered, where nobody is refused."""


@dataclass(frozen=True, slots=True)
class AtLoad:
    """All arms at one load; the first figures are of one receiver with exact service."""

    load: float
    late: int
    efficiency: float
    without_admission_late: int
    admitted_share: float
    ideal_share: float
    """What the best controller admits of Poisson arrivals, by formula."""
    exact: Arm
    error: Arm
    bursty: Arm
    two_sided: Arm
    two_sided_error: Arm


@dataclass(frozen=True, slots=True)
class Overload:
    """`loads` is what the bars are about."""

    loads: list[AtLoad]
    arrivals: int
    """Of one receiver's arms, a load and a seed; the other arms have a fifth."""
    seeds: int
    late: int
    """Of everything that was admitted, at every load in every arm."""
    efficiency_least: float
    """Of one receiver, exact, over the loads."""
    two_sided_efficiency_least: float
    understated_late: int
    """A control: moves that take half as long again as they said, at a load of one. Their own lateness, and only it."""
    decisions_per_s: float
    on_fabric: list[OnFabric] | None
    """Real bytes between namespaces; None where that was not asked for."""


def measure(
    trial: Trial, *, arrivals: int = 100_000, seeds: int = 5, fabric: bool = False, fabric_arrivals: int = 300
) -> Overload:
    """Offers 0 to 2.0 of what the ports carry, and looks for one late promise.

    Simulated fabric, real calendar. Exit code 0: nothing that was admitted was late; with --fabric at most 0.5 % of it
    there, each slower than its measured reserve.

    Parameters
    ----------
    trial: Trial
        The run.
    arrivals: int
        Of one receiver, a load and a seed; the other arms get a fifth.
    seeds: int
        From 1.
    fabric: bool
        Also with real bytes between network namespaces, time dilated.
    fabric_arrivals: int
        Moves offered there at each load.
    """
    if not (1 <= seeds <= max(T_95) and 10 <= arrivals <= 100_000):
        raise BadValue(f"1 to {max(T_95)} seeds and 10 to 100,000 arrivals, not {seeds} and {arrivals}")
    if not 1 <= fabric_arrivals <= 100_000:
        raise BadValue(f"1 to 100,000 moves are offered on the fabric, not {fabric_arrivals}")
    rows = []
    for load in LOADS:
        rows.append(_at_load(load, arrivals, seeds))
        trial.telemetry.check()
        trial.say(f"load {load:.1f}: {rows[-1].late} late, efficiency {rows[-1].efficiency:.4f}")
    arms = [arm for row in rows for arm in (row.exact, row.error, row.bursty, row.two_sided, row.two_sided_error)]
    chance = np.random.default_rng(0)
    liars = trace(chance, 1.0, max(10, arrivals // SIDE_SHARE), 1)
    understated = Trace(liars.arrivals_us, liars.sources, liars.targets, [1.5] * liars.offered)
    return Overload(
        rows,
        arrivals,
        seeds,
        sum(arm.late for arm in arms),
        min(row.efficiency for row in rows),
        min(row.two_sided.efficiency for row in rows),
        play(understated, 1, 0.0).late,
        decisions_per_s(crowded(MOVES), 16, DECISIONS, SystemClock()),
        measure_on_fabric(fabric_arrivals) if fabric else None,
    )


def _at_load(load: float, arrivals: int, seeds: int) -> AtLoad:
    few = max(10, arrivals // SIDE_SHARE)

    def arm(count: int, nodes: int, *, bursty: bool = False, error: float = 0.0) -> Arm:
        def one(seed: int) -> Trace:
            chance = np.random.default_rng([seed, round(load * 10), nodes, bursty])
            made = trace(chance, load, count, nodes, bursty=bursty)
            return with_error(made, chance, error) if error else made

        return _arm(one, seeds, nodes, MARGIN if error else 0.0)

    exact, error = arm(arrivals, 1), arm(arrivals, 1, error=ERROR)
    return AtLoad(
        load,
        exact.late,
        exact.efficiency,
        exact.without_admission_late,
        exact.admitted / exact.offered if exact.offered else 1.0,
        ideal_accepted_share((WITHIN_US - COST_US) / COST_US, load),
        exact,
        error,
        arm(few, 1, bursty=True),
        arm(few, NODES),
        arm(few, NODES, error=ERROR),
    )


def _arm(traced: Callable[[int], Trace], seeds: int, nodes: int, margin: float) -> Arm:
    offered, played, efficiencies, unguarded = 0, list[Played](), list[float](), 0
    for seed in range(1, seeds + 1):
        made = traced(seed)
        offered += made.offered
        played.append(play(made, nodes, margin))
        most = best(made, nodes)
        efficiencies.append(played[-1].accepted / most if most else 1.0)
        unguarded += late_without_admission(made, nodes)
    half = T_95[seeds] * stdev(efficiencies) / math.sqrt(seeds) if seeds > 1 else 0.0
    return Arm(
        offered,
        sum(each.accepted for each in played),
        sum(each.late for each in played),
        mean(efficiencies),
        half,
        min(efficiencies),
        unguarded,
    )


def crowded(moves: int, hosts: int = 16) -> Calendar:
    """A calendar of `hosts` hosts in which `moves` moves are accepted, each with little time to spare."""
    calendar = Calendar(Policy(overhead_us=0, chunk_bytes=1 << 20))
    for host in range(hosts):
        calendar.set_host(HostId(str(host)), Ports(1e9, 1e9))
    number = 0
    while len(calendar) < moves:
        source, target = number % hosts, (number * 7 + 1 + number // hosts) % hosts
        if source != target:
            ask = Ask(MoveId(f"m{number}"), HostId(str(source)), HostId(str(target)), 9_000_000, FAR_US)
            found = calendar.ask(ask, 0)
            if isinstance(found, Accepted):
                calendar.finish(ask.move, 0)
                calendar.ask(ask._replace(deadline_us=found.finish_us + SPARE_US), 0)
        number += 1
    return calendar


def decisions_per_s(calendar: Calendar, hosts: int, decisions: int, clock: Clock) -> float:
    """Decisions a second: every other ask has time enough, is accepted, and withdrawn again; the others are refused,
    with the reason and the time at which they would not be.
    """
    names = [HostId(str(host)) for host in range(hosts)]
    pairs = [(source, target) for source in names for target in names if source != target]
    began_s = clock.monotonic_s()
    for number in range(decisions):
        source, target = pairs[number % len(pairs)]
        ask = Ask(MoveId(f"d{number}"), source, target, 9_000_000, FAR_US if number % 2 else SOON_US)
        if isinstance(calendar.ask(ask, 0), Accepted):
            calendar.finish(ask.move, 0)
    return decisions / (clock.monotonic_s() - began_s)


def text(results: Overload) -> str:
    """The loads as a table."""
    head = ("load", "late", "efficiency", "late without", "error", "bursty", "two-sided", "with error")
    rows = [
        (
            f"{row.load:.1f}",
            str(row.late),
            f"{row.efficiency:.4f}",
            str(row.without_admission_late),
            *(f"{arm.efficiency:.4f}" for arm in (row.error, row.bursty, row.two_sided, row.two_sided_error)),
        )
        for row in results.loads
    ]
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    lines += [
        f"on the fabric, load {row.load}: {row.late} late of {row.admitted} admitted of {row.offered} offered, "
        f"{row.explained} of them slower than reserved; times {row.dilation:.0f} times as long"
        for row in results.on_fabric or ()
    ]
    return "\n".join(
        [
            *lines,
            f"late of all that was admitted, in every arm: {results.late}",
            f"{results.decisions_per_s:,.0f} decisions/s with {MOVES} accepted moves in the calendar",
            bars_text(_bars(results)),
        ]
    )


def report(results: Overload) -> Report:
    simulated = (_found(), _by_load(), _by_arm(), _controls())
    real = () if results.on_fabric is None else (_fabric(),)
    return Report("overload", "Overload: no promise is late", simulated + real)


def _found() -> Section:
    return Section(
        "What was found",
        (
            Words(
                "Of everything that was admitted, at every load and in every arm, {overload/late} moves were late, "
                "over {overload/arrivals} arrivals a load and {overload/seeds} seeds. Of what the best schedule of the "
                "same trace admits, one receiver admits {overload/efficiency_least:.4f} at the least; eight hosts that "
                "send to one another admit {overload/two_sided_efficiency_least:.4f} of a bound."
            ),
            Table(
                "Deciding",
                (Line("with 1,000 accepted moves in the calendar", "overload/decisions_per_s", None, "1/s", ",.0f"),),
            ),
        ),
    )


def _by_load() -> Section:
    columns = (
        Column("load", "load", Standing.SIMULATED, ".1f"),
        Column("late", "late", Standing.SIMULATED),
        Column("efficiency", "efficiency", Standing.SIMULATED, ".4f"),
        Column("without admission late", "without_admission_late", Standing.SIMULATED),
        Column("admitted share", "admitted_share", Standing.SIMULATED, ".4f"),
        Column("the best controller's", "ideal_share", Standing.PROJECTED, ".4f"),
    )
    admitted = Plot(
        "admitted",
        "Admitted by one receiver, and what the best controller admits",
        "load",
        "share of what is offered",
        (
            Series("admitted", _each("load"), _each("admitted_share"), Standing.SIMULATED),
            Series("best controller", _each("load"), _each("ideal_share"), Standing.PROJECTED),
        ),
    )
    late = Plot(
        "late",
        "Late, with and without admission",
        "load",
        "late moves",
        (
            Series("with admission", _each("load"), _each("late"), Standing.SIMULATED),
            Series("without", _each("load"), _each("without_admission_late"), Standing.SIMULATED),
        ),
    )
    return Section("One receiver", (Listing("By load, exact service", "overload/loads", columns), admitted, late))


def _by_arm() -> Section:
    arms = {
        "error": "service 10 % off, margin 10 %",
        "bursty": "bursts of 7",
        "two_sided": "eight hosts",
        "two_sided_error": "eight hosts, 10 % off",
    }
    fields = (("late", "late", "d"), ("efficiency", "efficiency", ".4f"), ("+-", "efficiency_ci95", ".4f"))
    listings = [
        Listing(
            f"{words[:1].upper()}{words[1:]}",
            "overload/loads",
            (
                Column("load", "load", Standing.SIMULATED, ".1f"),
                *(Column(title, f"{arm}/{key}", Standing.SIMULATED, form) for title, key, form in fields),
                Column("without admission late", f"{arm}/without_admission_late", Standing.SIMULATED),
            ),
        )
        for arm, words in arms.items()
    ]
    series = tuple(
        Series(words, _each("load"), _each(f"{arm}/efficiency"), Standing.SIMULATED) for arm, words in arms.items()
    )
    plot = Plot("efficiency", "Admitted over the most that could be", "load", "efficiency", series)
    return Section("Errors, bursts and two sides", (*listings, plot))


def _controls() -> Section:
    said = (
        "A move that takes half as long again as it said overruns its booking and asks for more: at a load of one "
        "{overload/understated_late} such moves were late. Without admission every arm is late, as the columns show."
    )
    return Section("Controls", (Words(said),))


def _fabric() -> Section:
    fields = ("offered", "admitted", "late", "explained", "rate_least_bytes_per_s", "dilation")
    columns = (
        Column("load", "load", Standing.MEASURED, ".1f"),
        *(Column(field.replace("_", " "), field, Standing.MEASURED) for field in fields),
    )
    said = (
        "Real bytes over tcp between network namespaces, every time {overload/on_fabric/0/dilation:.0f} times as long "
        "as on the port it stands for. Who was late is *explained* if its bytes flowed slower than was reserved."
    )
    return Section("On real bytes", (Words(said), Listing("By load", "overload/on_fabric", columns)))


def shown(results: Overload) -> bool:
    """Nothing late in simulation; on real bytes at most 0.5 %, each explained by its measured rate."""
    return all_met(_bars(results))


def _bars(results: Overload) -> tuple[Bar, ...]:
    simulated = Bar(f"late of all that was admitted {results.late}, at most 0", results.late == 0)
    if not results.on_fabric:
        return (simulated,)
    late, admitted = sum(row.late for row in results.on_fabric), sum(row.admitted for row in results.on_fabric)
    unexplained = sum(row.late - row.explained for row in results.on_fabric)
    return (
        simulated,
        Bar(
            f"on the fabric {late} late of {admitted}, at most {LATE_SHARE_MAX:.1%}", late <= LATE_SHARE_MAX * admitted
        ),
        Bar(f"of them as fast as was reserved {unexplained}, at most 0", unexplained == 0),
    )


def _each(key: str) -> str:
    return f"overload/loads/*/{key}"


OVERLOAD = Experiment(measure, report, text, shown)
