"""What a composed run found: pure arithmetic over what players saw, what the journal says and what was compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from worldline.capacity.gate import Demand, Way, judge
from worldline.capacity.gate import Fabric as Link
from worldline.capacity.reclaim import Mix, Shortage, reclaimed_share
from worldline.errors import BandwidthShort, DeadlineMissed, TimedOut
from worldline.lab.experiments.players import Seen
from worldline.lab.experiments.unmoved import Verdict
from worldline.runtime.messages import Move
from worldline.schema.contract import Contract
from worldline.schema.receipt import Mode

REAL_STATE_BYTES, REAL_LINK_BYTES_PER_S, REAL_DIRTY_BYTES_PER_S = 1.67e9, 12.5e9, 0.93e9
"""The paper's session and link: what the projections are of."""
REAL_CONTRACT = Contract(pause_bound_s=0.4, completion_deadline_s=3.0)
_PROMISED = {DeadlineMissed.code, TimedOut.code, BandwidthShort.code}
"""An admitted move that ends with one of these was promised a time that was not kept."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One move that was done. Times since the first one began."""

    session: str
    source: str
    target: str
    across: bool
    """From one provider to the other."""
    began_s: float
    duration_s: float
    pause_ms: float
    rounds: int
    state_bytes: int
    bytes_moved: int
    blocks_during: int
    """Asked for after the move began, and generated at its source before the freeze."""
    counts: bool
    identical: bool
    late: bool


@dataclass(frozen=True, slots=True)
class Composed:
    """`moves` .. `hosts_emptied` are the bar's; all others say what they were made from."""

    moves: int
    """That count: across providers, large enough, and generating."""
    identical: int
    """Of `moves`: the root at the receipt's block is the unmoved session's, and so is every frame and final byte."""
    lost: int
    """Sessions that ended, and blocks that are missing or came twice."""
    late: int
    """Of everything admitted: over its pause bound or its deadline, or given up for want of time."""
    refused: int
    """Requests, at arrival."""
    hosts_emptied: int
    wanted: int
    moves_all: int
    identical_all: int
    refusals: dict[str, int]
    unfinished: dict[str, int]
    """Moves that were admitted and then refused, by code."""
    parks: int
    """Sessions that were put to sleep while their players were away."""
    wakes: int
    """Sleeping sessions whose players acted again, and which played on."""
    wakes_in_time: int
    """Within H, the contract's pause bound."""
    wake_s_median: float | None
    wake_s_max: float | None
    sessions: int
    blocks: int
    differences: list[str]
    pause_ms_median: float | None
    pause_ms_p95: float | None
    duration_s_median: float | None
    pause_ms_projected: float
    """Of a session of 1.67 GB on a link of 12.5 GB/s, by `capacity.gate`."""
    duration_s_projected: float
    pause_bound_s: float
    deadline_s: float
    hosts: int
    host_s: float
    host_s_given_back: float
    given_back_share: float
    away_share: float
    """Of the players' time."""
    reclaim_projected: float
    """By Engset, for 120 sessions whose players are away as these were, at 1 % of returns that find none free."""
    state_bytes: int
    moved_bytes: int
    port_bytes: int
    """That passed the hosts' ports, headers and repetitions with them."""
    port_over_moved: float | None
    dropped_packets: int
    link_bytes_per_s: float
    dilation: float
    """Times stretch by this against a link of 12.5 GB/s, bytes being equal."""
    stretch: float
    """Times stretch by this against the paper's session of 1.67 GB on that link: so does the contract."""
    block_ms: float
    seconds: float
    """Of play."""
    listed: list[Counted]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was turned down, at arrival or later. Wall times."""

    session: str
    code: str
    asked_at_s: float
    told_at_s: float

    def was_admitted(self, moves: Iterable[Move]) -> bool:
        """Whether the journal has a move of it: it was given up on the way."""
        return any(
            move.session == self.session and self.asked_at_s <= move.started_at_s <= self.told_at_s for move in moves
        )


@dataclass(frozen=True, slots=True)
class Side:
    """How the run was laid out, and what was counted beside the moves."""

    provider: Mapping[str, str]
    contract: Contract
    wanted: int
    state_bytes_min: int
    refusals: Sequence[Refusal]
    link_bytes_per_s: float
    dilation: float
    stretch: float
    block_ms: float
    hosts_emptied: int = 0
    host_s_given_back: float = 0.0
    seconds: float = 0.0
    away_share: float = 0.0
    port_bytes: int = 0
    dropped_packets: int = 0
    ended_at_s: float = 0.0
    """Wall time: the players' last action was before."""


def blocks_during(seen: Sequence[Seen], move: Move) -> int:
    """Asked for after the move began, and in the state that was moved."""
    if move.receipt is None:
        return 0
    block = move.receipt.block
    return sum(1 for each in seen if each.asked_at_s >= move.started_at_s and each.block.block <= block)


def counts(move: Move, seen: Sequence[Seen], side: Side) -> bool:
    receipt = move.receipt
    return (
        receipt is not None
        and move.mode in {Mode.PRECOPY, Mode.FREEZE}
        and side.provider[receipt.source] != side.provider[receipt.target]
        and receipt.state_bytes >= side.state_bytes_min
        and blocks_during(seen, move) >= 1
    )


def lost_blocks(seen: Sequence[Seen]) -> int:
    """Numbers that are missing or came twice: block n applies action n."""
    return sum(1 for at, each in enumerate(seen, start=1) if each.block.number - seen[0].block.number + 1 != at)


def found(
    side: Side,
    moves: Sequence[Move],
    seen: Mapping[str, Sequence[Seen]],
    verdicts: Mapping[str, Verdict],
    lost_sessions: int,
) -> Composed:
    """`moves` are the journal's of the sessions in `seen`, by start."""
    carried = [move for move in moves if move.mode in {Mode.PRECOPY, Mode.FREEZE}]
    done = [move for move in carried if move.receipt is not None and move.outcome == "done"]
    origin_s = done[0].started_at_s if done else 0.0
    listed = [_counted(move, seen[move.session], verdicts[move.session], side, origin_s) for move in done]
    unfinished = Counter(move.error.code if move.error else str(move.outcome) for move in carried if move not in done)
    refusals = Counter(each.code for each in side.refusals if not each.was_admitted(carried))
    broken = sum(count for code, count in unfinished.items() if code in _PROMISED)
    pauses, durations = [each.pause_ms for each in listed], [each.duration_s for each in listed]
    at_play = [move for move in moves if move.outcome == "done" and move.started_at_s < side.ended_at_s]
    wakes_s = [_took_s(move) for move in at_play if move.mode is Mode.RESUME]
    moved_bytes = sum(each.bytes_moved for each in listed)
    hosts = len(side.provider)
    real = judge(
        Way.PRECOPY,
        Demand(
            REAL_STATE_BYTES,
            REAL_DIRTY_BYTES_PER_S,
            REAL_CONTRACT.pause_bound_s,
            REAL_CONTRACT.completion_deadline_s,
        ),
        Link(REAL_LINK_BYTES_PER_S),
    )
    return Composed(
        moves=sum(each.counts for each in listed),
        identical=sum(each.counts and each.identical for each in listed),
        lost=lost_sessions + sum(lost_blocks(each) for each in seen.values()),
        late=broken + sum(each.late for each in listed),
        refused=sum(refusals.values()),
        hosts_emptied=side.hosts_emptied,
        wanted=side.wanted,
        moves_all=len(listed),
        identical_all=sum(each.identical for each in listed),
        refusals=dict(refusals),
        unfinished=dict(unfinished),
        parks=sum(1 for move in at_play if move.mode is Mode.PARK),
        wakes=len(wakes_s),
        wakes_in_time=sum(wake_s <= side.contract.pause_bound_s for wake_s in wakes_s),
        wake_s_median=median(wakes_s) if wakes_s else None,
        wake_s_max=max(wakes_s, default=None),
        sessions=len(seen),
        blocks=sum(len(each) for each in seen.values()),
        differences=[text for verdict in verdicts.values() for text in verdict.differences],
        pause_ms_median=median(pauses) if pauses else None,
        pause_ms_p95=_p95(pauses),
        duration_s_median=median(durations) if durations else None,
        pause_ms_projected=real.pause_s * 1e3,
        duration_s_projected=real.finish_s,
        pause_bound_s=side.contract.pause_bound_s,
        deadline_s=side.contract.completion_deadline_s,
        hosts=hosts,
        host_s=hosts * side.seconds,
        host_s_given_back=side.host_s_given_back,
        given_back_share=side.host_s_given_back / (hosts * side.seconds),
        away_share=side.away_share,
        reclaim_projected=reclaimed_share(Mix(120, 0.0, 1 - side.away_share), Shortage.CALL),
        state_bytes=max((each.state_bytes for each in listed), default=0),
        moved_bytes=moved_bytes,
        port_bytes=side.port_bytes,
        port_over_moved=side.port_bytes / moved_bytes if moved_bytes else None,
        dropped_packets=side.dropped_packets,
        link_bytes_per_s=side.link_bytes_per_s,
        dilation=side.dilation,
        stretch=side.stretch,
        block_ms=side.block_ms,
        seconds=side.seconds,
        listed=listed,
    )


def _counted(move: Move, seen: Sequence[Seen], verdict: Verdict, side: Side, origin_s: float) -> Counted:
    receipt = move.receipt
    assert receipt is not None, "a move that is done has a receipt"
    late = (
        receipt.pause_s > side.contract.pause_bound_s or receipt.duration_s > side.contract.completion_deadline_s
    )  # fmt: skip
    return Counted(
        move.session,
        receipt.source,
        receipt.target,
        side.provider[receipt.source] != side.provider[receipt.target],
        move.started_at_s - origin_s,
        receipt.duration_s,
        receipt.pause_s * 1e3,
        receipt.rounds,
        receipt.state_bytes,
        receipt.bytes_moved,
        blocks_during(seen, move),
        counts(move, seen, side),
        move.id not in verdict.differing,
        late,
    )


def _took_s(move: Move) -> float:
    assert move.ended_at_s is not None, "a move that is done has ended"
    return move.ended_at_s - move.started_at_s


def _p95(values: Sequence[float]) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))] if ordered else None
