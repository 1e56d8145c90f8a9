"""A session's memory on a device and the arena on the host that has its bytes at a cut.

The device digests its own leaves; only those whose digest is another than at the last cut are gathered into one packed
stretch, brought down through two pinned buffers in turn, and put in their place in the arena. So everything that moves
an arena (links, images, shared memory) moves a session that lives on a card, and the digests in its manifest are of the
device's bytes where they lie.

Invariant: after `down`, and after `up`, the arena and the device hold the same bytes at every extent that was named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import torch

from worldline.gpu.copies import Stretch, copy_stretches, packed
from worldline.gpu.digests import leaf_digests
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena

STAGING_BYTES = 32 * 1024 * 1024
"""Of each of the two buffers."""


class Mirror:
    """`device` and `arena` are of one size, and byte n of one is byte n of the other."""

    def __init__(self, device: torch.Tensor, arena: Arena, staging_bytes: int = STAGING_BYTES) -> None:
        """device: [arena.capacity] uint8."""
        if device.dtype != torch.uint8 or device.shape != (arena.capacity,):
            raise ValueError("device and arena are of one size")
        self.device = device
        self.arena = arena
        self._staging = [_Staging(device.device, staging_bytes) for _ in range(2)]
        self._known: dict[Extent, bytes] = {}
        self.bytes_down = 0
        """That ever crossed the bus towards the host."""

    def down(self, leaves: Sequence[Extent]) -> list[bytes]:
        """Makes the arena hold the device's bytes at `leaves`; their digests, taken on the device.

        Raises `ValueError` outside the memory. Waits for the current stream.
        """
        digests = leaf_digests(self.device, leaves)
        changed = [leaf for leaf, digest in zip(leaves, digests, strict=True) if self._known.get(leaf) != digest]
        for batch in self._batches(changed):
            batch.finish(self.arena)
        self._known = dict(zip(leaves, digests, strict=True))
        return digests

    def up(self, leaves: Sequence[Extent]) -> None:
        """Makes the device hold the arena's bytes at `leaves`."""
        self._known = {}
        for turn, batch in enumerate(_in_batches(leaves, self._staging[0].nbytes)):
            self._staging[turn % 2].up(batch, self.arena, self.device)
        for staging in self._staging:
            staging.wait()

    def forget(self) -> None:
        """The next `down` brings everything: for an arena that others have written."""
        self._known = {}

    def _batches(self, changed: Sequence[Extent]) -> Iterator[_Staging]:
        """Each buffer with a batch in it that is down, while the other one's is on its way."""
        before: _Staging | None = None
        for turn, batch in enumerate(_in_batches(changed, self._staging[0].nbytes)):
            staging = self._staging[turn % 2]
            self.bytes_down += staging.down(batch, self.device)
            if before is not None:
                yield before
            before = staging
        if before is not None:
            yield before


class _Staging:
    """A packed stretch on the device and its twin on the host, pinned where the device is a card."""

    def __init__(self, device: torch.device, nbytes: int) -> None:
        card = device.type == "cuda"
        self.nbytes = nbytes
        self._there = torch.empty(nbytes, dtype=torch.uint8, device=device)
        self._here = torch.empty(nbytes, dtype=torch.uint8, pin_memory=card)
        self._arrived = torch.cuda.Event() if card else None
        self._batch: list[tuple[Extent, int]] = []

    def down(self, batch: Sequence[Extent], memory: torch.Tensor) -> int:
        """Queues the gather and the copy; the bytes that cross."""
        places, end = packed([extent.nbytes for extent in batch])
        self._batch = list(zip(batch, places, strict=True))
        copy_stretches(
            memory, self._there, [Stretch(extent.offset, at, extent.nbytes) for extent, at in self._batch]
        )
        self._here[:end].copy_(self._there[:end], non_blocking=True)
        self._note()
        return end

    def finish(self, arena: Arena) -> None:
        """Puts what came down in its place."""
        self.wait()
        octets = self._here.numpy()
        for extent, at in self._batch:
            np.frombuffer(arena.bytes_at(extent), np.uint8)[:] = octets[at : at + extent.nbytes]

    def up(self, batch: Sequence[Extent], arena: Arena, memory: torch.Tensor) -> None:
        """Queues one batch; waits only for what this buffer held before."""
        self.wait()
        places, end = packed([extent.nbytes for extent in batch])
        octets = self._here.numpy()
        for extent, at in zip(batch, places, strict=True):
            octets[at : at + extent.nbytes] = np.frombuffer(arena.bytes_at(extent), np.uint8)
        self._there[:end].copy_(self._here[:end], non_blocking=True)
        copy_stretches(
            self._there,
            memory,
            [Stretch(at, extent.offset, extent.nbytes) for extent, at in zip(batch, places, strict=True)],
        )
        self._note()

    def wait(self) -> None:
        if self._arrived is not None:
            self._arrived.synchronize()

    def _note(self) -> None:
        if self._arrived is not None:
            self._arrived.record()


def _in_batches(extents: Sequence[Extent], nbytes: int) -> Iterator[list[Extent]]:
    """Extents in order, as many at a time as fit; one that is larger than a buffer is cut at words."""
    pieces = [piece for extent in extents for piece in _pieces(extent, nbytes)]
    places, _ = packed([piece.nbytes for piece in pieces])
    number, first = 0, 0
    numbers: list[int] = []
    for piece, at in zip(pieces, places, strict=True):
        if at - first + piece.nbytes > nbytes:
            number, first = number + 1, at
        numbers.append(number)
    for _, batch in groupby(zip(numbers, pieces, strict=True), key=lambda pair: pair[0]):
        yield [piece for _, piece in batch]


def _pieces(extent: Extent, nbytes: int) -> Iterator[Extent]:
    for offset in range(0, extent.nbytes, nbytes):
        yield Extent(extent.offset + offset, min(nbytes, extent.nbytes - offset))
