"""More faults at the transport boundary, for tests: `FaultyTransport(TcpTransport(), Drop, seed=7)`.

Those that a fleet can plant by name (`Flip`, `Lie`, `Cut`) are in `worldline.transport.faults` and named here again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from worldline.errors import BadValue, LinkCut, TimedOut
from worldline.schema.layout import Extent
from worldline.transport.faults import Cut, Fault, FaultKind, FaultyTransport, Flip, Lie, PassingLink, SpoilingLink
from worldline.transport.protocol import ArenaBytes, Landed, Link, LinkEvent

__all__ = [
    "Blank",
    "Cut",
    "Drop",
    "Duplicate",
    "Fault",
    "FaultKind",
    "FaultyTransport",
    "Flip",
    "LateWriter",
    "Lie",
    "Reorder",
    "Stall",
]

LATE_OCTET = 0xA5
"""What a late writer writes."""


class Stall(Fault):
    """Nothing posted is ever delivered."""

    def at_source(self, link: Link) -> Link:
        return _StallLink(link)


class _StallLink(PassingLink):
    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        await asyncio.sleep(deadline_s)
        await self.inner.fence()
        raise TimedOut("the other side did not take the bytes in time")


class Drop(Fault):
    """One extent of the first post is left out, and nobody is told."""

    def at_source(self, link: Link) -> Link:
        return _DropLink(link, self)


class _DropLink(PassingLink):
    def __init__(self, inner: Link, fault: Fault) -> None:
        super().__init__(inner)
        self._chance = fault.chance
        self._dropped = False

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        if self._dropped or not extents:
            return await self.inner.post(extents, deadline_s)
        self._dropped = True
        victim = self._chance.randrange(len(extents))
        crossed = await self.inner.post([*extents[:victim], *extents[victim + 1 :]], deadline_s)
        return crossed + (extents[victim].nbytes if crossed else 0)


class Blank(Fault):
    """The link says LANDED for every extent, and nothing was written: a fresh arena is as blank as before."""

    def at_target(self, link: Link) -> Link:
        return SpoilingLink(link, _blank)


def _blank(arena: ArenaBytes, extent: Extent) -> None:
    arena.bytes_at(extent)[:] = bytes(extent.nbytes)


class Duplicate(Fault):
    """Everything is delivered twice: each post, and each record."""

    def at_source(self, link: Link) -> Link:
        return _DuplicateLink(link)

    def at_target(self, link: Link) -> Link:
        return _DuplicateLink(link)


class _DuplicateLink(PassingLink):
    async def send(self, record: bytes) -> None:
        await self.inner.send(record)
        await self.inner.send(record)

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        await self.inner.post(extents, deadline_s)
        return await self.inner.post(extents, deadline_s)


class Reorder(Fault):
    """The extents of each post land in another order, which no reader may mind."""

    def at_source(self, link: Link) -> Link:
        return _ReorderLink(link, self)


class _ReorderLink(PassingLink):
    def __init__(self, inner: Link, fault: Fault) -> None:
        super().__init__(inner)
        self._chance = fault.chance

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        shuffled = list(extents)
        self._chance.shuffle(shuffled)
        return await self.inner.post(shuffled, deadline_s)


class LateWriter(Fault):
    """After the first landing the link reports a failure, and goes on writing where it landed until it is fenced."""

    def at_target(self, link: Link) -> Link:
        if link.arena.bytes_at(Extent(0, 1)).readonly:
            raise BadValue("a handed-over arena has no writer but the source")
        return LateWriterLink(link)


class LateWriterLink(PassingLink):
    """`wrote` is set once something was written after the failure was reported."""

    def __init__(self, inner: Link) -> None:
        super().__init__(inner)
        self.wrote = threading.Event()
        self._fenced = threading.Event()
        self._writer: threading.Thread | None = None

    async def receive(self) -> LinkEvent:
        if self._writer is None:
            event = await self.inner.receive()
            if not isinstance(event, Landed):
                return event
            self._writer = threading.Thread(target=self._write, args=(event.extent,), daemon=True)
            self._writer.start()
        raise LinkCut("the link failed, as far as anybody is told")

    async def fence(self) -> None:
        self._fenced.set()
        await self.inner.fence()
        if self._writer is not None:
            self._writer.join()

    def _write(self, extent: Extent) -> None:
        octets = self.inner.arena.bytes_at(extent)
        while not self._fenced.wait(0.0005):
            octets[:] = bytes([LATE_OCTET]) * extent.nbytes
            self.wrote.set()
