"""Memory on a device and its twin on the host, equal at every cut.

The device digests its own leaves; only those whose digest is another than at the last cut are gathered into one packed
stretch, brought down through two pinned buffers in turn, and put in their place. What arrived is digested again on the
host, so a bus that changes a bit is refused, not believed.

Invariant: after `down`, and after `up`, both hold the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import torch

from worldline.errors import Corrupt
from worldline.gpu.copies import WORD_BYTES, Stretch, copy_stretches, packed
from worldline.gpu.digests import leaf_digests
from worldline.kernel import kernel
from worldline.kernel.operations import Octets
from worldline.schema.layout import Extent

LEAF_BYTES = 256 * 1024
STAGING_BYTES = 32 * 1024 * 1024
"""Of each of the two buffers."""


class Bus:
    """The way between one device and the host: two buffers, used in turn by every mirror of the device."""

    def __init__(self, device: torch.device, staging_bytes: int = STAGING_BYTES) -> None:
        self.device = device
        self.staging_bytes = staging_bytes
        self._staging = [_Staging(device, staging_bytes) for _ in range(2)]
        self.bytes_down = 0
        """That ever crossed towards the host."""

    def down(self, extents: Sequence[Extent], memory: torch.Tensor, host: Octets) -> None:
        """The bytes of `memory` at `extents`, at the same places of `host`; one buffer fills while one is emptied."""
        before: _Staging | None = None
        for turn, batch in enumerate(_in_batches(extents, self.staging_bytes)):
            staging = self._staging[turn % 2]
            self.bytes_down += staging.down(batch, memory)
            if before is not None:
                before.finish(host)
            before = staging
        if before is not None:
            before.finish(host)

    def up(self, extents: Sequence[Extent], host: Octets, memory: torch.Tensor) -> None:
        """The other way. Waits until it is there."""
        for turn, batch in enumerate(_in_batches(extents, self.staging_bytes)):
            self._staging[turn % 2].up(batch, host, memory)
        for staging in self._staging:
            staging.wait()


class Mirror:
    """`device`: [n] uint8 on the bus's device; `host`: [n] uint8. A last, partial word goes by itself."""

    def __init__(self, device: torch.Tensor, host: Octets, bus: Bus, leaf_bytes: int = LEAF_BYTES) -> None:
        if device.dtype != torch.uint8 or device.shape != host.shape:
            raise ValueError("device and host are of one size")
        self.device = device
        self.host = host
        self._bus = bus
        whole = device.numel() // WORD_BYTES * WORD_BYTES
        self._words = device[:whole]
        self._leaves = [Extent(at, min(leaf_bytes, whole - at)) for at in range(0, whole, leaf_bytes)]
        self._known: list[bytes | None] = [None] * len(self._leaves)

    def down(self) -> None:
        """Makes the host hold the device's bytes. Raises `Corrupt` where other bytes arrived than were sent."""
        digests = leaf_digests(self._words, self._leaves)
        fresh = [index for index, digest in enumerate(digests) if self._known[index] != digest]
        changed = [self._leaves[index] for index in fresh]
        self._bus.down(changed, self._words, self.host)
        self._check(changed, [digests[index] for index in fresh])
        self._known = list(digests)
        self._tail_down()

    def up(self) -> None:
        """Makes the device hold the host's bytes, and reads them there. Raises `Corrupt`."""
        self._bus.up(self._leaves, self.host, self._words)
        tail = self._words.numel()
        self.device[tail:] = torch.from_numpy(self.host[tail:].copy()).to(self.device.device)
        digests = leaf_digests(self._words, self._leaves)
        self._check(self._leaves, digests)
        self._known = list(digests)

    def _tail_down(self) -> None:
        tail = self._words.numel()
        if tail < self.host.nbytes:
            self.host[tail:] = self.device[tail:].cpu().numpy()

    def _check(self, leaves: Sequence[Extent], wanted: Sequence[bytes]) -> None:
        if not leaves:
            return
        offsets = np.array([leaf.offset for leaf in leaves], np.int64)
        sizes = np.array([leaf.nbytes for leaf in leaves], np.int64)
        if kernel().leaf_digests(self.host, offsets, sizes) != b"".join(wanted):
            raise Corrupt("device and host hold other bytes after a copy between them")


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
        copy_stretches(memory, self._there, [Stretch(extent.offset, at, extent.nbytes) for extent, at in self._batch])
        self._here[:end].copy_(self._there[:end], non_blocking=True)
        self._note()
        return end

    def finish(self, host: Octets) -> None:
        """Puts what came down in its place."""
        self.wait()
        octets = self._here.numpy()
        for extent, at in self._batch:
            host[extent.offset : extent.offset + extent.nbytes] = octets[at : at + extent.nbytes]

    def up(self, batch: Sequence[Extent], host: Octets, memory: torch.Tensor) -> None:
        """Queues one batch; waits only for what this buffer held before."""
        self.wait()
        places, end = packed([extent.nbytes for extent in batch])
        octets = self._here.numpy()
        for extent, at in zip(batch, places, strict=True):
            octets[at : at + extent.nbytes] = host[extent.offset : extent.offset + extent.nbytes]
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
