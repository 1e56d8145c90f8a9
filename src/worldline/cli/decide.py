"""`worldline decide`: which move, if any, keeps the contract."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, assert_never

from cyclopts import Parameter

from worldline.capacity.gate import Codec, Demand, Fabric
from worldline.capacity.planner import Means, Plan, Prediction, Situation, explain, size_text, time_text
from worldline.capacity.planner import plan as plan_ways
from worldline.capacity.priorities import Lift, lift
from worldline.cli.decide_live import Live, live
from worldline.cli.output import Shared, progress, show, table
from worldline.cli.values import contract_of, contract_text
from worldline.errors import BadValue
from worldline.schema.contract import Contract
from worldline.units import parse_bytes, parse_rate, parse_seconds

NONE_POSSIBLE = 5
NO_CODEC = "none"
SHARED = Shared()
ROLLING_SHARE = 0.5


@Parameter(name="*")
@dataclass(frozen=True)
class What:
    """What is to be moved."""

    state: str | None = None
    """Size of the state, like 1.67GB."""
    dirty: str | None = None
    """How fast it is rewritten, like 0.93GB/s, or 0; without it no pre-copy is promised."""
    moved_share: float | None = None
    """Part of what is rewritten that only moved; without it, that of a rolling cache, 0.5."""
    horizon: str | None = None
    """Pause bound and completion deadline, both; like 400ms."""
    pause_bound: str | None = None
    """How long the player may be without a new frame, like 20ms; with --completion, in place of --horizon."""
    completion: str | None = None
    """When the move must be committed, like 3s."""
    session: str | None = None
    """A live session, whose state and contract are asked of the fleet; what is given here takes precedence."""
    target: str | None = None
    """The host that it would go to."""


@Parameter(name="*")
@dataclass(frozen=True)
class Way:
    """What it goes through."""

    bandwidth: str | None = None
    """Of the wire, like 5.0GB/s or 10Gbit."""
    overhead: str | None = None
    """Of a move, whatever its bytes, like 57ms or 0; without it that of the session's own moves, or none."""
    codec: str = NO_CODEC
    """none, or the worst ratio of a lossless codec, like 1.3."""
    compress: str = "1TB/s"
    """What the coder takes, in raw bytes."""
    decompress: str = "1TB/s"
    """What the decoder gives, in raw bytes."""
    lane: str | None = None
    """What the target verifies; without it, it is never the bottleneck."""
    concurrent: int = 1
    """Moves of this kind at once, served one after another: the last of them is judged."""
    replay_speed: float | None = None
    """Blocks that the target generates in the time of one."""
    disk: str | None = None
    """What an image is written and read at; without it nothing is promised of a park."""
    memory_free: str | None = None
    """At the target."""


WHAT, WAY = What(), Way()


@dataclass(frozen=True, slots=True)
class Judged:
    """One way, as it is printed. None: infinite."""

    mode: str
    admissible: bool
    reason: str | None
    needed_bytes_per_s: float | None
    pause_s: float | None
    finish_s: float | None
    sent_bytes: float | None
    target_memory_bytes: float
    explain: str
    command: str | None
    """What carries it out; None: nothing does yet, it is an analysis."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What `--json` prints."""

    choice: str | None
    command: str | None
    """What carries the choice out."""
    why: str
    state_bytes: float
    dirty_bytes_per_s: float | None
    """None: unknown."""
    pause_bound_s: float
    completion_deadline_s: float
    bandwidth_bytes_per_s: float
    overhead_s: float
    codec_ratio: float
    concurrent: int
    lift: Lift
    """How many equal atomic moves fit the horizon over this path."""
    modes: dict[str, Judged]
    facts: dict[str, str]
    """Where each number came from that was not given here, and what is assumed where nobody measured it."""


def decide(
    *,
    what: What = WHAT,
    way: Way = WAY,
    explain: Annotated[bool, Parameter(negative="")] = False,
    grid: Path | None = None,
    anchor: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    shared: Shared = SHARED,
) -> int:
    """Judges every way of moving a session against its contract, and picks the best.

    The least pause within the contract wins, then the least bytes, and the answer names the command that carries it
    out. A replay is judged and never picked: nothing carries it out yet. Exit code 5: no other way keeps the contract.

    Parameters
    ----------
    explain: bool
        Say why, of every way.
    grid: Path
        Also write GRID.csv, GRID.png and GRID.svg: the bandwidth that is needed, and which way wins where.
    anchor: str
        A measured point for the figure of --grid, as NAME=BANDWIDTH,DIRTY; may be repeated.
    """
    if anchor and grid is None:
        raise BadValue("--anchor marks a point in the figure of --grid; give --grid as well")
    if what.target is not None and what.session is None:
        raise BadValue("--target is the host that a live session would go to; give --session as well")
    found = Live.none() if what.session is None else live(shared, what.session, what.target)
    situation = _situation(what, way, found)
    plan = plan_ways(situation)
    given = {
        "contract": _bounds(what),
        "state": what.state,
        "dirty": what.dirty,
        "bandwidth": way.bandwidth,
        "overhead": way.overhead,
    }
    told = {fact: where for fact, where in found.told.items() if given.get(fact) is None}
    answer = _answer(plan, situation, told | _assumed(what, way, found), what)
    if grid is not None:
        from worldline.lab.decision_grid import anchors_of, write_grid  # matplotlib is an extra

        written = write_grid(grid, situation, (*anchors_of(anchor), *found.anchors))
        progress(f"written: {', '.join(map(str, written))}")
    show(answer, _text(answer, explain), shared.json)
    return 0 if plan.choice is not None else NONE_POSSIBLE


def _situation(what: What, way: Way, found: Live) -> Situation:
    """The numbers of the command line, then those of the fleet. Raises `BadValue` for one that nobody gave."""
    contract = found.contract
    if _bounds(what) or contract is None:
        contract = contract_of(what.horizon, what.pause_bound, what.completion, None)
    state = found.state_bytes if what.state is None else _above_zero("--state", what.state, parse_bytes)
    wire = found.bytes_per_s if way.bandwidth is None else _above_zero("--bandwidth", way.bandwidth, parse_rate)
    if state is None:
        raise BadValue("give the --state of the session: there is no --session, or its host has not told of it yet")
    if wire is None:
        raise BadValue(
            "give the --bandwidth of the wire: "
            + ("there is no --session" if what.session is None else "no move of this session has measured one yet")
        )
    dirty = (found.dirty_bytes_per_s or 0.0) if what.dirty is None else _rate(what.dirty)
    if way.concurrent < 1:
        raise BadValue(f"--concurrent counts moves, from 1, and is {way.concurrent}")
    memory = found.memory_free_bytes if way.memory_free is None else parse_bytes(way.memory_free)
    return Situation(
        Demand(float(state), dirty, contract.pause_bound_s, contract.completion_deadline_s),
        Fabric(
            wire,
            (found.overhead_s or 0.0) if way.overhead is None else _seconds(way.overhead),
            codec=_codec(way),
            lane_bytes_per_s=None if way.lane is None else _above_zero("--lane", way.lane, parse_rate),
        ),
        ROLLING_SHARE if what.moved_share is None else what.moved_share,
        way.replay_speed,
        None if way.disk is None else _above_zero("--disk", way.disk, parse_rate),
        math.inf if memory is None else float(memory),
        way.concurrent - 1,
        dirty_known=what.dirty is not None or found.dirty_bytes_per_s is not None,
    )


def _assumed(what: What, way: Way, found: Live) -> dict[str, str]:
    """What nobody gave and nobody measured, and what is taken for it: no assumption is silent."""
    told = {}
    if what.moved_share is None:
        told["moved share"] = f"{ROLLING_SHARE}, assumed: a rolling cache's"
    if what.dirty is None and what.session is None:
        told["dirty"] = "not given, so no pre-copy is promised; give --dirty, 0 for a session that rests"
    elif what.dirty is None and found.dirty_bytes_per_s is None:
        told["dirty"] = "unknown: no move of this session sent more than its state; give --dirty"
    if way.overhead is None and found.overhead_s is None:
        told["overhead"] = "none, assumed; give --overhead"
    if way.lane is None:
        told["lane"] = "never the bottleneck, assumed; give --lane"
    if way.memory_free is None and found.memory_free_bytes is None:
        told["memory free"] = "enough, assumed; give --memory-free"
    return told


def _bounds(what: What) -> str | None:
    return what.horizon or what.pause_bound or what.completion


def _above_zero(option: str, text: str, parse: Callable[[str], float]) -> float:
    """Of what a move needs some: nothing goes over a wire, a lane or a disk of none, and no state needs no move."""
    value = 0.0 if text == "0" else parse(text)
    if not value > 0:
        raise BadValue(f"{option} is above zero, not {text}")
    return value


def _seconds(text: str) -> float:
    return 0.0 if text == "0" else parse_seconds(text)


def _rate(text: str) -> float:
    return 0.0 if text == "0" else parse_rate(text)


def _codec(way: Way) -> Codec | None:
    if way.codec == NO_CODEC:
        return None
    try:
        ratio = float(way.codec)
    except ValueError as error:
        raise BadValue(f"--codec is {NO_CODEC}, or the worst ratio of a codec, and not {way.codec!r}") from error
    compress = _above_zero("--compress", way.compress, parse_rate)
    return Codec(ratio, compress, _above_zero("--decompress", way.decompress, parse_rate))


def _answer(plan: Plan, situation: Situation, told: Mapping[str, str], what: What) -> Answer:
    demand, fabric = situation.demand, situation.fabric
    judged = {str(each.means): _judged(each, situation, _command(each.means, what)) for each in plan.predictions}
    choice = None if plan.choice is None else str(plan.choice)
    move_s = demand.state_bytes / fabric.raw_bytes_per_s if fabric.raw_bytes_per_s else math.inf
    lifted = (
        lift(demand.deadline_s, move_s, fabric.fixed_s) if 0 < move_s < math.inf else Lift(0, 0, fabric.fixed_s, 0.0)
    )
    return Answer(
        choice=choice,
        command=None if choice is None else judged[choice].command,
        why=_none(judged) if choice is None else judged[choice].explain,
        state_bytes=demand.state_bytes,
        dirty_bytes_per_s=demand.dirty_bytes_per_s if situation.dirty_known else None,
        pause_bound_s=demand.pause_bound_s,
        completion_deadline_s=demand.deadline_s,
        bandwidth_bytes_per_s=fabric.wire_bytes_per_s,
        overhead_s=fabric.overhead_s,
        codec_ratio=fabric.ratio,
        concurrent=situation.ahead + 1,
        lift=lifted,
        modes=judged,
        facts=dict(told),
    )


def _none(judged: Mapping[str, Judged]) -> str:
    if any(each.admissible for each in judged.values()):
        return "no way that a command carries out keeps the contract"
    return "no way keeps the contract"


def _command(means: Means, what: What) -> str | None:
    """What carries it out. Both pre-copies are one: over tcp its source says which rows only moved."""
    session, target = what.session or "SESSION", what.target or "HOST"
    match means:
        case Means.FREEZE:
            return f"worldline move {session} {target} --mode freeze"
        case Means.PRECOPY | Means.ROLLS:
            return f"worldline move {session} {target} --mode precopy"
        case Means.PARK:
            return f"worldline park {session}; worldline resume {session} {target}"
        case Means.REPLAY:
            return None
    assert_never(means)


def _judged(each: Prediction, situation: Situation, command: str | None) -> Judged:
    return Judged(
        mode=str(each.means),
        admissible=each.admissible,
        reason=None if each.reason is None else each.reason.value,
        needed_bytes_per_s=_finite(each.needed_wire_bytes_per_s),
        pause_s=_finite(each.pause_s),
        finish_s=_finite(each.finish_s),
        sent_bytes=_finite(each.sent_bytes),
        target_memory_bytes=each.target_memory_bytes,
        explain=explain(each, situation),
        command=command,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rewritten(answer: Answer) -> str:
    dirty = answer.dirty_bytes_per_s
    return "rewritten at a rate that nobody knows" if dirty is None else f"rewritten at {size_text(dirty)}/s"


def _possible(judged: Judged) -> str:
    if not judged.admissible:
        return f"no: {judged.reason}"
    return "yes" if judged.command is not None else "analysis only"


def _text(answer: Answer, explained: bool) -> str:
    contract = Contract(pause_bound_s=answer.pause_bound_s, completion_deadline_s=answer.completion_deadline_s)
    lines = [
        answer.why,
        *(() if answer.command is None else (f"carried out by: {answer.command}",)),
        f"state {size_text(answer.state_bytes)}, {_rewritten(answer)}",
        f"wire {size_text(answer.bandwidth_bytes_per_s)}/s; {contract_text(contract)}",
        f"equal freezes one after another within the deadline: {answer.lift.count}",
    ]
    lines += [f"{fact}: {where}" for fact, where in answer.facts.items()]
    if explained:
        return "\n".join([*lines, *(judged.explain for judged in answer.modes.values())])
    rows = [
        (
            judged.mode,
            _possible(judged),
            "-" if judged.needed_bytes_per_s is None else f"{size_text(judged.needed_bytes_per_s)}/s",
            "-" if judged.pause_s is None else time_text(judged.pause_s),
            "-" if judged.finish_s is None else time_text(judged.finish_s),
            "-" if judged.sent_bytes is None else size_text(judged.sent_bytes),
        )
        for judged in answer.modes.values()
    ]
    return "\n".join([*lines, table(("mode", "possible", "needs", "pause", "over after", "sends"), rows)])
