"""Busy time of something that serves one at a time, and where in the free time of two of them work fits.

Times are whole ticks. A span is half open: what begins when another ends does not overlap it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

from worldline.errors import Internal

Span: TypeAlias = tuple[int, int]
"""Begin and end."""
NEVER = 1 << 62
"""A tick after every other."""


class Track:
    """Spans that are taken: disjoint, in order, and joined where they touch, so that a solid stretch is one."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    @property
    def begin(self) -> int:
        """The first that is taken."""
        return self.starts[0] if self.starts else NEVER

    @property
    def end(self) -> int:
        """From here on all is free."""
        return self.ends[-1] if self.ends else 0

    def is_free(self, begin: int, end: int) -> bool:
        at = bisect_right(self.ends, begin)
        return at == len(self.ends) or self.starts[at] >= end

    def take(self, begin: int, end: int) -> None:
        """Takes a span, all of which must be free: two can never have one tick. O(log n), and a move of memory."""
        starts, ends = self.starts, self.ends
        at = bisect_right(ends, begin)
        if not begin < end or (at < len(starts) and starts[at] < end):
            raise Internal(f"the span from {begin} to {end} is not free")
        joins_before, joins_after = at > 0 and ends[at - 1] == begin, at < len(starts) and starts[at] == end
        if joins_before and joins_after:
            ends[at - 1] = ends[at]
            del starts[at], ends[at]
        elif joins_before:
            ends[at - 1] = end
        elif joins_after:
            starts[at] = begin
        else:
            starts.insert(at, begin)
            ends.insert(at, end)

    def give_back(self, begin: int, end: int) -> None:
        """Frees a span, all of which must be taken."""
        starts, ends = self.starts, self.ends
        at = bisect_right(starts, begin) - 1
        if not begin < end or at < 0 or ends[at] < end:
            raise Internal(f"the span from {begin} to {end} is not taken")
        stays_before, stays_after = starts[at] < begin, end < ends[at]
        if stays_before and stays_after:
            starts.insert(at + 1, end)
            ends.insert(at, begin)
        elif stays_before:
            ends[at] = begin
        elif stays_after:
            starts[at] = end
        else:
            del starts[at], ends[at]

    def forget(self, before: int) -> None:
        """Drops what ended by `before`."""
        gone = bisect_right(self.ends, before)
        if gone:
            del self.starts[:gone], self.ends[:gone]


def first_fit(one: Track, other: Track, begin: int, work: int, piece: int) -> list[Span]:
    """The earliest spans from `begin` on, free on both tracks, that add up to `work`; none shorter than `piece`, but
    where less than that is left.

    The work ends as early as any such pieces end, and a later begin never gives an earlier end. O(the spans passed).
    """
    one_starts, one_ends, other_starts, other_ends = one.starts, one.ends, other.starts, other.ends
    i, j = bisect_right(one_ends, begin), bisect_right(other_ends, begin)
    one_count, other_count = len(one_starts), len(other_starts)
    spans: list[Span] = []
    at, left = begin, work
    while left > 0:
        one_start = one_starts[i] if i < one_count else NEVER
        other_start = other_starts[j] if j < other_count else NEVER
        if one_start <= at:
            at = max(at, one_ends[i])
            i += 1
        elif other_start <= at:
            at = max(at, other_ends[j])
            j += 1
        else:
            until = min(one_start, other_start)
            room = until - at
            if room >= left:
                spans.append((at, at + left))
                return spans
            # A stub shorter than a piece would be left over: it is no use, as the next gap has to carry it.
            if room >= piece:
                spans.append((at, until))
                left -= room
            at = until
    return spans


def first_span(track: Track, begin: int, work: int) -> Span:
    """The earliest span of `work` ticks in one stretch, from `begin` on."""
    starts, ends = track.starts, track.ends
    at = begin
    for i in range(bisect_right(ends, begin), len(starts)):
        if starts[i] - at >= work:
            break
        at = max(at, ends[i])
    return at, at + work
