"""Which parts of an arena are taken: first fit over a sorted list of free stretches. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from worldline.errors import NoCapacity
from worldline.schema.layout import ALIGN_BYTES, Extent


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to whole units of `ALIGN_BYTES`; at least one."""
    return max(-(-nbytes // ALIGN_BYTES), 1) * ALIGN_BYTES


class Space:
    """Free stretches never touch each other and start and end at multiples of `ALIGN_BYTES`."""

    def __init__(self, capacity: int, taken: Iterable[Extent] = ()) -> None:
        """`taken` stretches may lie in any order and need not be aligned; whole units of them are taken."""
        self._capacity = capacity // ALIGN_BYTES * ALIGN_BYTES
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._used_max = 0
        end = 0
        for extent in sorted(taken, key=lambda extent: extent.offset):
            start = extent.offset // ALIGN_BYTES * ALIGN_BYTES
            if start > end:
                self._starts.append(end)
                self._ends.append(start)
            end = max(end, start + aligned(extent.offset - start + extent.nbytes))
        self._used_max = end
        if end < self._capacity:
            self._starts.append(end)
            self._ends.append(self._capacity)

    @property
    def used_bytes_max(self) -> int:
        """The high-water mark: no byte at or above it was ever taken."""
        return self._used_max

    @property
    def free_bytes(self) -> int:
        """Free bytes in all; the largest stretch may be shorter."""
        return sum(self._ends) - sum(self._starts)

    def free(self) -> list[Extent]:
        """The free stretches, ascending."""
        return [Extent(start, end - start) for start, end in zip(self._starts, self._ends, strict=True)]

    def take(self, nbytes: int, what: str) -> Extent:
        """The first stretch that fits. Raises `NoCapacity`."""
        size = aligned(nbytes)
        for index, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
            if end - start >= size:
                if end - start == size:
                    del self._starts[index], self._ends[index]
                else:
                    self._starts[index] = start + size
                self._used_max = max(self._used_max, start + size)
                return Extent(start, size)
        raise NoCapacity(
            f"the session's arena has no room for {what}",
            what=what,
            nbytes=nbytes,
            free_bytes=self.free_bytes,
            capacity=self._capacity,
        )

    def release(self, extent: Extent) -> None:
        """Gives back exactly what `take` gave, or what was taken at the start."""
        start, end = extent.offset, extent.offset + extent.nbytes
        index = bisect.bisect_left(self._starts, start)
        before = index > 0 and self._ends[index - 1] == start
        after = index < len(self._starts) and self._starts[index] == end
        assert index == 0 or self._ends[index - 1] <= start, "released twice"
        assert index == len(self._starts) or end <= self._starts[index], "released twice"
        if before and after:
            self._ends[index - 1] = self._ends[index]
            del self._starts[index], self._ends[index]
        elif before:
            self._ends[index - 1] = end
        elif after:
            self._starts[index] = start
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, end)
