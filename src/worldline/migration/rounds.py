"""How a state is cut into rounds, and whether a cut becomes the freeze.

Pre-copy sends everything once while the session plays, then what was rewritten meanwhile, again and again. Each cut
asks: would the pause that a freeze costs *here* be short enough? A session that rewrites faster than the link carries
never gets there, and is told so instead of being paused past its contract.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from worldline.capacity.gate import transfer_s
from worldline.errors import BandwidthShort, DeadlineMissed
from worldline.schema.layout import Extent
from worldline.units import format_bytes, format_seconds

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Everything that bounds an attempt. `chunk_bytes` may not exceed what a transport takes at once (64 MiB)."""

    rounds_max: int = 12
    """Cuts that may be thawed; the next one freezes or refuses."""
    goal_fraction: float = 0.25
    """A cut freezes at once if the predicted pause is within this part of the pause bound."""
    stall_fraction: float = 0.9
    """A round that leaves more than this part of the round before it has stalled."""
    overhead_s: float = 0.02
    """Of the pause, whatever the bytes: seal, root, commit, activation."""
    rate_window: int = 4
    """Rounds whose slowest rate counts."""
    rate_bytes_min: int = MIB
    """A round below this says more about latency than about the link."""
    chunk_bytes: int = 64 * MIB
    tail_bytes_min: int = MIB
    """The last chunks of a round halve down to this, so that little is left to digest when the last one lands."""
    leaves_max: int = 1_048_576
    rolls: bool = True
    """Whether rows that moved are told instead of sent."""
    rolls_bytes_per_s_max: float = 1e9
    """A faster link carries a leaf in less time than its rows take to be put in place."""
    rows_bytes: int = MIB
    """Of moved or new rows in one record: what a target keeps in memory until they are in place."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """This cut is the freeze: what is dirty goes over while the engine is held."""

    predicted_pause_s: float


@dataclass(frozen=True, slots=True)
class GoOn:
    """Thaw, and send what is dirty while the session plays."""

    predicted_pause_s: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Thaw for good: the contract can't be kept."""

    code: str
    sentence: str
    predicted_pause_s: float


Decision: TypeAlias = Freeze | GoOn | Refuse


@dataclass(frozen=True, slots=True)
class Cut:
    """What a pre-copy knows at its cut number `rounds + 1`: `rounds` rounds are over, and `dirty_bytes` differ."""

    rounds: int
    dirty_bytes: int
    dirty_bytes_before: int
    """At the cut before."""
    bytes_per_s: float
    pause_bound_s: float
    time_left_s: float
    """To the completion deadline."""


def decide(cut: Cut, limits: Limits) -> Decision:
    """Freeze, go on or refuse.

    Freeze when the pause meets the goal; also when waiting no longer helps (rounds used up, or the dirty set no longer
    shrinks: where B <= D in the paper's B >= S/H + D) but the pause still meets the contract's bound.
    """
    pause_s = transfer_s(cut.dirty_bytes, cut.bytes_per_s, limits.overhead_s)
    if pause_s > cut.time_left_s:
        return Refuse(
            DeadlineMissed.code,
            f"{format_bytes(cut.dirty_bytes)} still differ and would take {format_seconds(pause_s)}, but only "
            f"{format_seconds(max(cut.time_left_s, 0.0))} of the completion deadline are left",
            pause_s,
        )
    if pause_s <= cut.pause_bound_s * limits.goal_fraction:
        return Freeze(pause_s)
    stalled = cut.dirty_bytes > cut.dirty_bytes_before * limits.stall_fraction
    if not stalled and cut.rounds < limits.rounds_max:
        return GoOn(pause_s)
    if pause_s <= cut.pause_bound_s:
        return Freeze(pause_s)
    why = "the dirty set no longer shrinks" if stalled else f"{cut.rounds} rounds were not enough"
    return Refuse(
        BandwidthShort.code,
        f"{why}: {format_bytes(cut.dirty_bytes)} at {format_bytes(round(cut.bytes_per_s))}/s would pause the session "
        f"for {format_seconds(pause_s)}, and the contract allows {format_seconds(cut.pause_bound_s)}",
        pause_s,
    )


class RoundRate:
    """Bytes a second of the last rounds, from the post to the target's digests: the slowest counts.

    Of the time in which the link might be used: waiting for others' turn to end says nothing about the link, and who is
    frozen has the next turn.
    """

    def __init__(self, limits: Limits) -> None:
        self._bytes_min = limits.rate_bytes_min
        self._rates: deque[float] = deque(maxlen=limits.rate_window)
        self._small: float | None = None

    def add(self, nbytes: int, elapsed_s: float) -> None:
        if nbytes <= 0:
            return
        rate = nbytes / max(elapsed_s, 1e-9)
        if nbytes >= self._bytes_min:
            self._rates.append(rate)
        else:
            self._small = rate

    @property
    def bytes_per_s(self) -> float | None:
        """None before the first round."""
        return min(self._rates) if self._rates else self._small


def merge(leaves: Iterable[Extent], chunk_bytes: int, tail_bytes_min: int) -> tuple[Extent, ...]:
    """Adjacent leaves joined to chunks of at most `chunk_bytes`, in ascending order; no leaf is split.

    Towards the end of all bytes a chunk takes at most half of what is left, down to `tail_bytes_min`, so that the
    receiver's lanes have little left to digest when the last chunk lands.
    """
    ordered = sorted(leaves, key=lambda extent: extent.offset)
    left = sum(extent.nbytes for extent in ordered)
    return tuple(_chunks(ordered, left, chunk_bytes, tail_bytes_min))


def _chunks(ordered: list[Extent], left: int, chunk_bytes: int, tail_bytes_min: int) -> Iterator[Extent]:
    start = size = 0
    room = 0
    for leaf in ordered:
        if size and (leaf.offset != start + size or size + leaf.nbytes > room):
            yield Extent(start, size)
            left -= size
            size = 0
        if not size:
            start = leaf.offset
            room = min(chunk_bytes, max(left // 2, tail_bytes_min))
        size += leaf.nbytes
    if size:
        yield Extent(start, size)
