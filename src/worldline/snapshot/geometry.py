"""Which bytes strided tensors cover. Pure: addresses, sizes and strides, no torch.

The order of a tensor's dimensions does not matter for the bytes it covers, so they are sorted by stride. As long as
each stride is at most what the smaller dimensions cover in one piece, the piece grows; after that there are gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Spread:
    """Where a tensor's elements lie: `nbytes` from `start`, in one piece (`solid`) or with gaps."""

    start: int
    nbytes: int
    solid: bool

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.start + self.nbytes


def spread(start: int, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> Spread:
    """The bytes of a tensor at address `start`; strides in elements of `item` bytes."""
    reach, solid = _reach(shape, strides)
    return Spread(start, reach * item, solid)


@lru_cache(maxsize=4096)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, bool]:
    """Elements from the first to the last, and whether none is left out. An engine's tensors have few shapes."""
    if 0 in shape:
        return 0, True
    reach, solid = 1, True
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride > 0:
            solid = solid and stride <= reach
            reach += (size - 1) * stride
    return reach, solid


def clusters(spreads: Sequence[Spread]) -> list[list[int]]:
    """Indices of spreads grouped so that those which share a byte are together; groups and members ascend.

    Spreads that only touch stay apart: no write through one can be seen through the other. Empty ones are alone.
    """
    alone = [[index] for index, item in enumerate(spreads) if not item.nbytes]
    groups: list[list[int]] = []
    end = 0
    for index in sorted((i for i, item in enumerate(spreads) if item.nbytes), key=lambda i: spreads[i].start):
        if groups and spreads[index].start < end:
            groups[-1].append(index)
        else:
            groups.append([index])
        end = max(end, spreads[index].end)
    return sorted(sorted(group) for group in groups + alone)


def pieces(spreads: Iterable[Spread]) -> list[tuple[int, int]]:
    """The union of solid spreads as (start, end), ascending, neither overlapping nor touching."""
    union: list[tuple[int, int]] = []
    for item in sorted(spreads, key=lambda item: item.start):
        assert item.solid, "only spreads without gaps have a simple union"
        if not item.nbytes:
            continue
        if union and item.start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], item.end))
        else:
            union.append((item.start, item.end))
    return union


def aligned_start(start: int, elements: Iterable[tuple[int, int]]) -> int | None:
    """The highest address at or just below `start` from which every (address, item bytes) lies at a whole number of
    items.

    None when there is none: two tensors over one storage whose elements can't both be aligned in a storage of its
    own.
    """
    wanted = list(elements)
    return next(
        (base for base in range(start, start - 16, -1) if all((at - base) % item == 0 for at, item in wanted)), None
    )
