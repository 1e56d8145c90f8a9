"""Whether a move can keep its contract over a fabric: the admission region.

The paper has one horizon H, B >= S/H + D. A contract here has two times: the pause bound, on what the player feels, and
the completion deadline, on when the move is over. The paper's gate is their equality, for a pre-copy. A freeze pauses
for the whole transfer, so both bind it, and it needs less: B >= S/H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from worldline.capacity.domain import Real, at_least_zero, finite, is_exact, positive
from worldline.capacity.precopy import linear_rounds
from worldline.errors import BadValue

GUARD = 1e-9
"""Relative. At the boundary a move is admitted, and the last bit of a division doesn't decide."""


class Way(Enum):
    """How the state is moved."""

    FREEZE = "freeze"
    PRECOPY = "precopy"


class Reason(Enum):
    """Why a move is refused."""

    OVERHEAD = "overhead"
    """The fixed part alone takes all the time there is."""
    PAUSE = "pause"
    """No residual is small enough for the pause bound."""
    STAGE = "stage"
    """Coder, decoder or lane are slower than what is asked; no wire helps."""
    BANDWIDTH = "bandwidth"
    """The wire is too slow."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A lossless codec; rates are of raw bytes."""

    ratio_min: float
    """Raw over sent, at the worst: it may be one or a little less. Never the mean."""
    compress_bytes_per_s: float
    decompress_bytes_per_s: float

    def __post_init__(self) -> None:
        positive(self.ratio_min, "ratio_min")
        positive(self.compress_bytes_per_s, "compress_bytes_per_s")
        positive(self.decompress_bytes_per_s, "decompress_bytes_per_s")


@dataclass(frozen=True, slots=True)
class Fabric:
    """What a move goes through."""

    wire_bytes_per_s: float
    overhead_s: float = 0.0
    """Whatever the bytes: begin, seal, commit, activate."""
    fill_s: float = 0.0
    """Until the first chunk is through all stages: sum A/K - max A/K of a pipeline."""
    codec: Codec | None = None
    lane_bytes_per_s: float | None = None
    """The verification lane, in raw bytes; None: never the bottleneck."""

    def __post_init__(self) -> None:
        at_least_zero(self.wire_bytes_per_s, "wire_bytes_per_s")
        at_least_zero(self.overhead_s, "overhead_s")
        at_least_zero(self.fill_s, "fill_s")
        if self.lane_bytes_per_s is not None:
            positive(self.lane_bytes_per_s, "lane_bytes_per_s")

    @property
    def fixed_s(self) -> float:
        return self.overhead_s + self.fill_s

    @property
    def ratio(self) -> float:
        return 1.0 if self.codec is None else self.codec.ratio_min

    @property
    def stage_bytes_per_s(self) -> float:
        """The slowest stage beside the wire."""
        stages = [math.inf] if self.lane_bytes_per_s is None else [self.lane_bytes_per_s]
        if self.codec is not None:
            stages += [self.codec.compress_bytes_per_s, self.codec.decompress_bytes_per_s]
        return min(stages)

    @property
    def raw_bytes_per_s(self) -> float:
        """Raw bytes a second through all stages."""
        return min(self.ratio * self.wire_bytes_per_s, self.stage_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Demand:
    """A session that is to be moved, and what it was promised."""

    state_bytes: float
    dirty_bytes_per_s: float
    """As sent: for a roll-aware residual what `rewriting.roll_aware_bytes` leaves of it."""
    pause_bound_s: float
    deadline_s: float

    def __post_init__(self) -> None:
        at_least_zero(self.state_bytes, "state_bytes")
        at_least_zero(self.dirty_bytes_per_s, "dirty_bytes_per_s")
        at_least_zero(self.pause_bound_s, "pause_bound_s")
        at_least_zero(self.deadline_s, "deadline_s")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one way."""

    admissible: bool
    reason: Reason | None
    """None where admissible."""
    needed_wire_bytes_per_s: float
    """Of the wire, at this codec; infinite where no wire would do."""
    pause_s: float
    """Predicted; infinite where it never gets there."""
    finish_s: float
    """Of a pre-copy: all rounds to the last byte, the limit that the gate bounds."""


def transfer_s(nbytes: float, bytes_per_s: float, fixed_s: float) -> float:
    """`nbytes / rate + fixed`, the paper's T_migrate: of a whole state a freeze's pause, of a residual a pre-copy's.

    Domain: the rate > 0, the others >= 0. Raises `BadValue` outside.
    """
    at_least_zero(nbytes, "nbytes")
    return nbytes / positive(bytes_per_s, "bytes_per_s") + at_least_zero(fixed_s, "fixed_s")


def needed_raw_bytes_per_s(way: Way, demand: Demand, fixed_s: float = 0.0) -> float:
    """Raw bytes a second that the contract asks of the path; infinite where no rate would do.

    Freeze: S / (min(pause bound, deadline) - o). Pre-copy: S / (deadline - o) + D. An empty state needs only o in time
    (and D, for a pre-copy). Source: the WorldMove paper's condition, with the horizon split.
    """
    at_least_zero(fixed_s, "fixed_s")
    bound_s = min(demand.pause_bound_s, demand.deadline_s) if way is Way.FREEZE else demand.deadline_s
    left_s = bound_s - fixed_s
    if left_s < 0 or (left_s == 0 and demand.state_bytes > 0):
        return math.inf
    rate = 0.0 if demand.state_bytes == 0 else demand.state_bytes / left_s
    return rate if way is Way.FREEZE else rate + demand.dirty_bytes_per_s


def judge(way: Way, demand: Demand, fabric: Fabric) -> Verdict:
    """Whether `demand` can be met over `fabric`, in this way.

    D >= B: a pre-copy of any state is refused. D = 0: a pre-copy is a freeze that doesn't pause. H <= o or B = 0: never
    (but an empty state that has its overhead's time). At the boundary, within `GUARD`: admitted.
    """
    needed = needed_raw_bytes_per_s(way, demand, fabric.fixed_s)
    wire = needed / fabric.ratio if fabric.stage_bytes_per_s >= needed * (1 - GUARD) else math.inf
    pause_s, finish_s = _predict(way, demand, fabric)
    reason = None
    if needed == math.inf:
        reason = Reason.OVERHEAD
    elif wire == math.inf:
        reason = Reason.STAGE
    elif fabric.raw_bytes_per_s < needed * (1 - GUARD) or finish_s == math.inf:
        reason = Reason.BANDWIDTH
    elif pause_s > demand.pause_bound_s * (1 + GUARD):
        reason = Reason.PAUSE
    return Verdict(reason is None, reason, wire, pause_s, finish_s)


def _predict(way: Way, demand: Demand, fabric: Fabric) -> tuple[float, float]:
    """Pause and finish. A pre-copy goes on until its residual is within the pause bound."""
    rate, fixed_s = fabric.raw_bytes_per_s, fabric.fixed_s
    if demand.state_bytes == 0:
        return fixed_s, fixed_s
    if rate == 0:
        return math.inf, math.inf
    if way is Way.FREEZE:
        whole_s = transfer_s(demand.state_bytes, rate, fixed_s)
        return whole_s, whole_s
    if rate <= demand.dirty_bytes_per_s:
        return math.inf, math.inf
    finish_s = demand.state_bytes / (rate - demand.dirty_bytes_per_s) + fixed_s
    rounds = rounds_while_playing(demand, fabric)
    if rounds is None:
        return math.inf, finish_s
    left = demand.state_bytes * (demand.dirty_bytes_per_s / rate) ** rounds
    return transfer_s(left, rate, fixed_s), finish_s


def rounds_while_playing(demand: Demand, fabric: Fabric) -> int | None:
    """Rounds of a pre-copy until what is left fits the pause bound; None: never. Where B <= D, or 0: never."""
    rate = fabric.raw_bytes_per_s
    if rate <= demand.dirty_bytes_per_s:
        return None
    room_s = max(demand.pause_bound_s - fabric.fixed_s, 0.0)
    # One round at least: this way is to play while the state is copied, however short the transfer.
    residual = min(room_s * rate, demand.state_bytes * (1 - GUARD))
    return linear_rounds(demand.state_bytes, rate, demand.dirty_bytes_per_s, residual)


def largest_state_bytes(fabric: Fabric, dirty_bytes_per_s: float, deadline_s: float) -> float:
    """The largest state a pre-copy moves by the deadline: (B - D)(H - o); 0 where none."""
    at_least_zero(dirty_bytes_per_s, "dirty_bytes_per_s")
    left_s = at_least_zero(deadline_s, "deadline_s") - fabric.fixed_s
    return max(0.0, fabric.raw_bytes_per_s - dirty_bytes_per_s) * max(0.0, left_s)


def largest_dirty_bytes_per_s(fabric: Fabric, state_bytes: float, deadline_s: float) -> float | None:
    """The fastest rewriting at which a pre-copy still meets the deadline: B - S/(H - o); None where not even a still
    state does.
    """
    at_least_zero(state_bytes, "state_bytes")
    left_s = at_least_zero(deadline_s, "deadline_s") - fabric.fixed_s
    if left_s < 0 or (left_s == 0 and state_bytes > 0):
        return None
    spare = fabric.raw_bytes_per_s - (state_bytes / left_s if state_bytes else 0.0)
    return spare if spare >= 0 else None


def codec_helps(state_bytes: float, raw: Fabric, coded: Fabric) -> bool:
    """Whether the coded path moves a still state sooner than the raw one: coder and decoder faster than the wire, a
    ratio above one, and a fill that doesn't eat the gain.
    """
    at_least_zero(state_bytes, "state_bytes")
    if coded.codec is None or raw.codec is not None:
        raise BadValue("compare a path without a codec to one with it")
    if raw.raw_bytes_per_s == 0 or coded.raw_bytes_per_s == 0:
        return False
    return state_bytes / coded.raw_bytes_per_s + coded.fixed_s < state_bytes / raw.raw_bytes_per_s + raw.fixed_s


@dataclass(frozen=True, slots=True)
class FanIn:
    """Moves that one verification lane can take at once, within a horizon."""

    frozen: int
    """floor(L (H - o) / S)."""
    live: int
    """floor(L (H - o) / (S + D (H - o))): what they rewrite meanwhile is verified too."""
    fluid: float | Fraction
    """L H / S, which leaves out the overhead and that moves are whole."""


def lane_fan_in(
    state_bytes: Real, dirty_bytes_per_s: Real, horizon_s: Real, lane_bytes_per_s: Real, overhead_s: Real
) -> FanIn:
    """How many moves of this size end verified within the horizon, on one lane.

    If the lane reads compressed bytes, give those. Exact for fractions; otherwise guarded by 1e-9 around whole numbers.
    Domain: S, L > 0, the others >= 0; 0 where H <= o. Raises `BadValue` outside.
    """
    positive(state_bytes, "state_bytes")
    at_least_zero(dirty_bytes_per_s, "dirty_bytes_per_s")
    positive(lane_bytes_per_s, "lane_bytes_per_s")
    left_s = at_least_zero(horizon_s, "horizon_s") - at_least_zero(overhead_s, "overhead_s")
    left_s = max(left_s, left_s * 0)
    verified = at_least_zero(lane_bytes_per_s * left_s, "what the lane verifies")
    counts = (verified / state_bytes, verified / (state_bytes + dirty_bytes_per_s * left_s))
    frozen, live = (math.floor(n if is_exact(n) else finite(n, "the moves") + GUARD) for n in counts)
    return FanIn(frozen, live, lane_bytes_per_s * horizon_s / state_bytes)
