"""More faults at the transport boundary, for tests: `FaultyTransport(TcpTransport(), Drop, seed=7)`.

Those that a fleet can plant by name are in `worldline.transport.faults` and named here again.
"""

from __future__ import annotations

import threading

from worldline.errors import BadValue, LinkCut
from worldline.schema.layout import Extent
from worldline.transport.faults import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fault,
    FaultKind,
    FaultyTransport,
    Flip,
    Lie,
    PassingLink,
    Reorder,
    SpoilingLink,
    Stall,
    Truncate,
)
from worldline.transport.protocol import ArenaBytes, Landed, Link, LinkEvent

__all__ = [
    "Blank",
    "Cut",
    "Delay",
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
    "Truncate",
]

LATE_OCTET = 0xA5
"""What a late writer writes."""


class Blank(Fault):
    """The link says LANDED for every extent, and nothing was written: a fresh arena is as blank as before."""

    def at_target(self, link: Link) -> Link:
        return SpoilingLink(link, _blank)


def _blank(arena: ArenaBytes, extent: Extent) -> None:
    arena.bytes_at(extent)[:] = bytes(extent.nbytes)


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
