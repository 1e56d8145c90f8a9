"""Which move: every way of moving a session judged against its contract, and the best of those that keep it.

The least pause wins, then the least bytes. What is not known (a disk's rate, how fast a world replays or is rewritten)
makes a way impossible, never optimistic. What no command carries out is judged, and never chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import assert_never

from worldline.capacity.domain import at_least_zero, positive, whole
from worldline.capacity.gate import Demand, Fabric, Reason, Verdict, Way, judge, rounds_while_playing
from worldline.capacity.precopy import replay, replay_rate
from worldline.capacity.rewriting import roll_aware_bytes
from worldline.errors import BadValue


class Means(StrEnum):
    """A way to take a session away from its host."""

    FREEZE = "freeze"
    PRECOPY = "precopy"
    ROLLS = "rolls"
    """Pre-copy whose residual says which rows only moved."""
    REPLAY = "replay"
    """A snapshot, then the logged actions again at the target. An analysis: nothing carries it out."""
    PARK = "park"
    """Into an image, and back out of it: the player waits for both."""

    @property
    def carried_out(self) -> bool:
        """Whether a host can do it."""
        return self is not Means.REPLAY


class Bar(Enum):
    """What stands against a way, beside the reasons of the gate."""

    MEMORY = "memory"
    """The target has too little room."""
    QUEUE = "queue"
    """The moves before it take all the time there is."""
    SPEED = "speed"
    """The target plays no faster than the session, so it never catches up in time."""
    UNKNOWN = "unknown"
    """It was not measured, so nothing is promised."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A session, its contract, and what is known of the way to the target."""

    demand: Demand
    fabric: Fabric
    moved_share: float = 0.5
    """Of what is rewritten: rows that only moved. Half of a rolling cache."""
    replay_speed: float | None = None
    """Blocks that the target generates in the time of one; None: it can't replay."""
    disk_bytes_per_s: float | None = None
    memory_free_bytes: float = math.inf
    ahead: int = 0
    """Moves of the same kind that are served before it, one after another."""
    dirty_known: bool = True
    """Whether the demand's dirty rate is more than a guess."""

    def __post_init__(self) -> None:
        roll_aware_bytes(1.0, self.moved_share)
        whole(self.ahead, "moves ahead")
        if self.replay_speed is not None:
            positive(self.replay_speed, "replay_speed")
        if self.disk_bytes_per_s is not None:
            positive(self.disk_bytes_per_s, "disk_bytes_per_s")
        if not self.memory_free_bytes >= 0:
            raise BadValue("free memory can't be negative")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one way would do. Infinite: it never gets there."""

    means: Means
    admissible: bool
    reason: Reason | Bar | None
    """None where admissible."""
    needed_wire_bytes_per_s: float
    pause_s: float
    finish_s: float
    """From now to the commit, moves ahead included."""
    sent_bytes: float
    """Over the wire, or to disk; compressed where there is a codec."""
    target_memory_bytes: float


@dataclass(frozen=True, slots=True)
class Plan:
    """All ways, and the one to take; None: none that can be carried out keeps the contract."""

    predictions: tuple[Prediction, ...]
    choice: Means | None

    def of(self, means: Means) -> Prediction:
        return next(each for each in self.predictions if each.means is means)


def plan(situation: Situation) -> Plan:
    """Judges every way. O(1)."""
    predictions = tuple(predict(means, situation) for means in Means)
    possible = [each for each in predictions if each.admissible and each.means.carried_out]
    best = min(possible, key=lambda each: (each.pause_s, each.sent_bytes), default=None)
    return Plan(predictions, None if best is None else best.means)


def predict(means: Means, situation: Situation) -> Prediction:
    """One way, alone or behind `ahead` moves like it."""
    demand = situation.demand
    match means:
        case Means.FREEZE:
            return _by_gate(means, Way.FREEZE, situation)
        case Means.PRECOPY | Means.ROLLS if not situation.dirty_known:
            return Prediction(
                means, False, Bar.UNKNOWN, math.inf, math.inf, math.inf, math.inf, demand.state_bytes
            )  # fmt: skip
        case Means.PRECOPY:
            return _by_gate(means, Way.PRECOPY, situation)
        case Means.ROLLS:
            rate = roll_aware_bytes(demand.dirty_bytes_per_s, situation.moved_share)
            rolled = replace(demand, dirty_bytes_per_s=rate)
            return _by_gate(means, Way.PRECOPY, replace(situation, demand=rolled))
        case Means.REPLAY:
            return _by_replay(situation)
        case Means.PARK:
            return _by_park(situation)
    assert_never(means)


def _by_gate(means: Means, way: Way, situation: Situation) -> Prediction:
    demand, fabric = situation.demand, situation.fabric
    alone = judge(way, demand, fabric)
    wait_s = _wait_s(alone.finish_s - fabric.fixed_s, situation.ahead)
    left_s = demand.deadline_s - wait_s
    verdict = alone if wait_s == 0 or left_s < 0 else judge(way, replace(demand, deadline_s=left_s), fabric)
    reason: Reason | Bar | None = verdict.reason
    if situation.ahead and alone.admissible and (left_s < 0 or reason is not None):
        reason = Bar.QUEUE
    reason = reason or _memory(situation)
    return Prediction(
        means,
        reason is None,
        reason,
        verdict.needed_wire_bytes_per_s,
        verdict.pause_s,
        verdict.finish_s + wait_s,
        _sent_bytes(way, demand, fabric, verdict),
        demand.state_bytes,
    )


def _wait_s(each_s: float, ahead: int) -> float:
    return 0.0 if ahead == 0 else ahead * each_s


def _memory(situation: Situation) -> Bar | None:
    return Bar.MEMORY if situation.demand.state_bytes > situation.memory_free_bytes else None


def _sent_bytes(way: Way, demand: Demand, fabric: Fabric, verdict: Verdict) -> float:
    """All rounds and what is left for the freeze: S (1 - r^(n+1)) / (1 - r), r = D / B."""
    if way is Way.FREEZE or demand.state_bytes == 0:
        return demand.state_bytes / fabric.ratio
    rounds = rounds_while_playing(demand, fabric)
    if rounds is None or verdict.pause_s == math.inf:
        return math.inf
    ratio = demand.dirty_bytes_per_s / fabric.raw_bytes_per_s
    return demand.state_bytes * (1 - ratio ** (rounds + 1)) / (1 - ratio) / fabric.ratio


def _by_replay(situation: Situation) -> Prediction:
    demand, fabric = situation.demand, situation.fabric
    rate, speed = fabric.raw_bytes_per_s, situation.replay_speed
    sent = demand.state_bytes / fabric.ratio
    if speed is None or rate == 0:
        reason: Reason | Bar = Bar.UNKNOWN if speed is None else Reason.BANDWIDTH
        return Prediction(
            Means.REPLAY, False, reason, math.inf, math.inf, math.inf, sent, demand.state_bytes
        )  # fmt: skip
    wait_s = _wait_s(demand.state_bytes / rate, situation.ahead)
    level = replay(demand.state_bytes, rate, speed, fabric.fixed_s)
    finish_s = level.finish_s + wait_s
    left_s = demand.deadline_s - wait_s
    needed = replay_rate(demand.state_bytes, left_s, speed, fabric.fixed_s) if left_s > 0 else math.inf
    found: Reason | Bar | None = None
    if needed == math.inf:
        found = Bar.QUEUE if situation.ahead and left_s <= 0 else Bar.SPEED
    elif finish_s > demand.deadline_s * (1 + 1e-9):
        found = Reason.BANDWIDTH
    elif fabric.overhead_s > demand.pause_bound_s:
        found = Reason.PAUSE
    found = found or _memory(situation)
    wire = needed / fabric.ratio if fabric.stage_bytes_per_s >= needed else math.inf
    if found is Reason.BANDWIDTH and wire == math.inf:
        found = Reason.STAGE
    return Prediction(Means.REPLAY, found is None, found, wire, fabric.overhead_s, finish_s, sent, demand.state_bytes)


def _by_park(situation: Situation) -> Prediction:
    """The image is written while the session is frozen, and read when the player is back: both are waited for."""
    demand, disk = situation.demand, situation.disk_bytes_per_s
    if disk is None:
        return Prediction(Means.PARK, False, Bar.UNKNOWN, math.inf, math.inf, math.inf, demand.state_bytes, 0.0)
    once_s = at_least_zero(demand.state_bytes / disk, "the image's time") + situation.fabric.overhead_s
    pause_s = 2 * once_s
    reason = Reason.PAUSE if pause_s > demand.pause_bound_s * (1 + 1e-9) else None
    if once_s > demand.deadline_s * (1 + 1e-9):
        reason = Reason.OVERHEAD if situation.fabric.overhead_s > demand.deadline_s else Reason.PAUSE
    return Prediction(Means.PARK, reason is None, reason, 0.0, pause_s, once_s, demand.state_bytes, 0.0)


def explain(prediction: Prediction, situation: Situation) -> str:
    """One way in words, with its figures."""
    verb = "is refused" if not prediction.admissible else "keeps the contract"
    if prediction.admissible and not prediction.means.carried_out:
        verb = "would keep the contract, and no command carries it out yet"
    return f"{prediction.means} {verb}: {_why(prediction, situation)}"


def _why(prediction: Prediction, situation: Situation) -> str:
    demand, fabric = situation.demand, situation.fabric
    needed, carried = _rate(prediction.needed_wire_bytes_per_s), _rate(fabric.wire_bytes_per_s)
    match prediction.reason:
        case None:
            return _how(prediction, demand)
        case Reason.BANDWIDTH if prediction.needed_wire_bytes_per_s == math.inf:
            return "no wire there is would do"
        case Reason.BANDWIDTH:
            return f"it needs {needed} of the wire, which carries {carried}{_whole(prediction)}"
        case Reason.STAGE:
            return f"coder, decoder or lane carry {_rate(fabric.stage_bytes_per_s)}, and no wire helps"
        case Reason.OVERHEAD:
            return f"the fixed part alone, {time_text(fabric.fixed_s)}, takes all the time there is"
        case Reason.PAUSE:
            pauses, bound = time_text(prediction.pause_s), time_text(demand.pause_bound_s)
            return f"it would pause for {pauses}, and the contract allows {bound}{_whole(prediction)}"
        case Bar.MEMORY:
            room = size_text(situation.memory_free_bytes)
            return f"the target has {room} free, and the state is {size_text(demand.state_bytes)}"
        case Bar.QUEUE:
            return f"behind {situation.ahead} others it would end after {time_text(prediction.finish_s)}"
        case Bar.SPEED:
            return "the target does not play fast enough to catch up by the deadline, at any bandwidth"
        case Bar.UNKNOWN:
            rewritten = "how fast it is rewritten"
            known = {
                Means.PRECOPY: rewritten,
                Means.ROLLS: rewritten,
                Means.REPLAY: "how fast the target replays",
                Means.PARK: "the disk's rate",
            }
            return f"{known.get(prediction.means, 'what it needs')} is not known"
    assert_never(prediction.reason)


def _how(prediction: Prediction, demand: Demand) -> str:
    text = f"pauses {time_text(prediction.pause_s)} of {time_text(demand.pause_bound_s)}"
    if prediction.means is Means.FREEZE:
        text = f"pauses the whole time, {time_text(prediction.pause_s)} of {time_text(demand.pause_bound_s)}"
    if prediction.means is Means.PARK:
        return f"{text}, image written after {time_text(prediction.finish_s)}, {size_text(prediction.sent_bytes)}"
    text += f", is over after {time_text(prediction.finish_s)} of {time_text(demand.deadline_s)}"
    return f"{text}, sends {size_text(prediction.sent_bytes)}, needs {_rate(prediction.needed_wire_bytes_per_s)}"


def _whole(prediction: Prediction) -> str:
    return "; it pauses the whole time" if prediction.means is Means.FREEZE else ""


def _rate(bytes_per_s: float) -> str:
    return f"{size_text(bytes_per_s)}/s"


def size_text(size_bytes: float) -> str:
    """1.67e9 -> `'1.67 GB'`: four digits, where a plan turns on the third."""
    for unit_bytes, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.4g} {unit}"
    return f"{size_bytes:.4g} B"


def time_text(seconds: float) -> str:
    """0.0621 -> `'62.1 ms'`, from a second on `'1.56 s'`."""
    if seconds == math.inf:
        return "ever"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"
