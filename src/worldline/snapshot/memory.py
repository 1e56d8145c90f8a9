"""An engine's memory inside an arena, and torch storages over stretches of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from worldline.errors import LayoutRefused
from worldline.schema.layout import Extent, Placement
from worldline.snapshot.arena import Arena
from worldline.snapshot.space import Space

SLACK_BYTES = 256 * 1024 * 1024


def arena_capacity(state_bytes_max: int) -> int:
    """The arena's size for a world's upper bound of state. Only touched pages cost memory, so it is generous.

    Source and target of a move use the same: offsets in the arena are the same on both sides.
    """
    return 2 * state_bytes_max + SLACK_BYTES


class ArenaMemory:
    """Hands out parts of an arena: to the engine for good (`zeros`), to the gatherer until it gives them back.

    Free parts of the arena are zero. A resident tensor's part is not reused while the session lives here, even when
    the engine drops the tensor: nobody can say that no view of it survives.
    """

    def __init__(self, arena: Arena, taken: Sequence[Extent] = ()) -> None:
        """`taken`: what of the arena holds state already. The rest is made zero."""
        if not arena.writable:
            raise ValueError("no tensor may lie in an arena that this process may not write")
        self.arena = arena
        self._space = Space(arena.capacity, taken)
        if taken:
            for extent in self._space.free():
                arena.zero(extent)

    def zeros(self, path: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A zeroed, contiguous tensor at a page of its own. Raises `NoCapacity` when the arena is full."""
        sizes = tuple(shape)
        if any(size < 0 for size in sizes):
            raise LayoutRefused(f"{path!r} can't have the shape {sizes}", path=path)
        nbytes = math.prod(sizes) * dtype.itemsize
        if nbytes == 0:
            return torch.zeros(sizes, dtype=dtype)
        extent = self._space.take(nbytes, path)
        storage = storage_over(self.arena, Extent(extent.offset, nbytes))
        strides = tuple(math.prod(max(size, 1) for size in sizes[dim + 1 :]) for dim in range(len(sizes)))
        return torch.empty(0, dtype=dtype).set_(storage, 0, sizes, strides)

    @property
    def used_bytes_max(self) -> int:
        """The high-water mark of what was ever taken."""
        return self._space.used_bytes_max

    def take(self, nbytes: int, what: str) -> Extent:
        """A zeroed part of at least `nbytes`. Raises `NoCapacity`."""
        return self._space.take(nbytes, what)

    def release(self, place: Placement) -> None:
        """Takes a part back that `take` gave; its bytes are zeroed and its memory freed."""
        extent = Extent(place.offset, place.capacity)
        self.arena.zero(extent)
        self._space.release(extent)

    def offset_of(self, address: int, nbytes: int) -> int | None:
        """Where in the arena an address lies; None for memory outside it and for nothing at all."""
        offset = address - self.arena.address
        return offset if nbytes and 0 <= offset <= self.arena.capacity - nbytes else None


def storage_over(arena: Arena, extent: Extent) -> torch.UntypedStorage:
    """A torch storage over the arena's own bytes. It keeps the addresses, though not the memory, past the arena's
    close.
    """
    assert arena.writable, "a tensor can't be read-only"
    return torch.frombuffer(arena.bytes_at(extent), dtype=torch.uint8).untyped_storage()
