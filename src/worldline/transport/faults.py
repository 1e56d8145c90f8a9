"""Faults planted at the data plane on purpose, for the page and for tests. The source's arena is never harmed by them.

A fault sits at one side of a link and is inert at the other, so both hosts of a move may be told of it. Faults at the
target spoil the same place again with every landing over it: sending again does not heal a broken path.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from worldline.errors import LinkCut, TimedOut
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.transport.protocol import ArenaBytes, Landed, Link, LinkEvent, Listener, Transport

WITHHELD_BYTES = 64
DELAY_S = 0.2
"""Of each transfer."""


class PassingLink:
    """A link that changes nothing: the base of those that do."""

    def __init__(self, inner: Link) -> None:
        self.inner = inner

    @property
    def arena(self) -> ArenaBytes:
        return self.inner.arena

    async def send(self, record: bytes) -> None:
        await self.inner.send(record)

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        return await self.inner.post(extents, deadline_s)

    def pace(self, rate_bytes_per_s: float | None) -> None:
        self.inner.pace(rate_bytes_per_s)

    async def receive(self) -> LinkEvent:
        return await self.inner.receive()

    async def fence(self) -> None:
        await self.inner.fence()


class Fault:
    """One thing that goes wrong on one link. As it stands, nothing does."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def at_source(self, link: Link) -> Link:
        return link

    def at_target(self, link: Link) -> Link:
        return link


FaultKind: TypeAlias = Callable[[random.Random], Fault]


class SpoilingLink(PassingLink):
    """A target's link that changes bytes after they landed and before it says so.

    A handed-over arena is the source's own memory: each landing is then copied to an arena of this link's, which is
    what the target gets to see.
    """

    def __init__(self, inner: Link, spoil: Callable[[ArenaBytes, Extent], None]) -> None:
        super().__init__(inner)
        self._spoil = spoil
        self._copy: Arena | None = None
        if inner.arena.bytes_at(Extent(0, 1)).readonly:
            self._copy = Arena.create(inner.arena.capacity, "spoiled")

    @property
    def arena(self) -> ArenaBytes:
        return self.inner.arena if self._copy is None else self._copy

    async def receive(self) -> LinkEvent:
        event = await self.inner.receive()
        if isinstance(event, Landed):
            await asyncio.to_thread(self._land, event.extent)
        return event

    async def fence(self) -> None:
        await super().fence()
        if self._copy is not None:
            self.inner.arena.close()

    def _land(self, extent: Extent) -> None:
        if self._copy is not None:
            octets = np.frombuffer(self.inner.arena.bytes_at(extent), np.uint8)
            np.copyto(np.frombuffer(self._copy.bytes_at(extent), np.uint8), octets)
        self._spoil(self.arena, extent)


class Flip(Fault):
    """One bit of one byte, chosen in the first landing, arrives wrong."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._victim: int | None = None

    def at_target(self, link: Link) -> Link:
        return SpoilingLink(link, self._spoil)

    def _spoil(self, arena: ArenaBytes, extent: Extent) -> None:
        if self._victim is None:
            self._victim = extent.offset + self.chance.randrange(extent.nbytes)
        if extent.offset <= self._victim < extent.offset + extent.nbytes:
            arena.bytes_at(Extent(self._victim, 1))[0] ^= 1


class Lie(Fault):
    """The link says LANDED for every extent and withholds the last 64 bytes of it.

    What lies there instead is never equal to what was withheld, so that no lie comes true by luck.
    """

    def at_target(self, link: Link) -> Link:
        return SpoilingLink(link, self._spoil)

    def _spoil(self, arena: ArenaBytes, extent: Extent) -> None:
        nbytes = min(WITHHELD_BYTES, extent.nbytes)
        tail = arena.bytes_at(Extent(extent.offset + extent.nbytes - nbytes, nbytes))
        tail[:] = bytes(octet ^ 0xFF for octet in tail)


class CutLink(PassingLink):
    """Closes in the middle of the first post."""

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        half = _first_half(extents)
        if half:
            await self.inner.post(half, deadline_s)
        await self.inner.fence()
        raise LinkCut("the link was cut in the middle of a transfer")


class Cut(Fault):
    """The link closes in the middle of the first transfer."""

    def at_source(self, link: Link) -> Link:
        return CutLink(link)


def _first_half(extents: Sequence[Extent]) -> list[Extent]:
    left = sum(extent.nbytes for extent in extents) // 2
    half: list[Extent] = []
    for extent in extents:
        nbytes = min(extent.nbytes, left)
        if nbytes > 0:
            half.append(Extent(extent.offset, nbytes))
        left -= nbytes
    return half


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


class Truncate(Fault):
    """The end of each post, chosen in its last extent, never leaves, and nobody is told."""

    def at_source(self, link: Link) -> Link:
        return _TruncateLink(link, self)


class _TruncateLink(PassingLink):
    def __init__(self, inner: Link, fault: Fault) -> None:
        super().__init__(inner)
        self._chance = fault.chance

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        if not extents:
            return await self.inner.post(extents, deadline_s)
        last = extents[-1]
        kept = self._chance.randrange(last.nbytes)
        shorter = [*extents[:-1], *([Extent(last.offset, kept)] if kept else ())]
        crossed = await self.inner.post(shorter, deadline_s)
        return crossed + (last.nbytes - kept if crossed else 0)


class Delay(Fault):
    """Each post leaves late. Its deadline counts from when it was asked for."""

    def at_source(self, link: Link) -> Link:
        return _DelayLink(link)


class _DelayLink(PassingLink):
    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        late_s = min(DELAY_S, deadline_s)
        await asyncio.sleep(late_s)
        return await self.inner.post(extents, deadline_s - late_s)


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


class FaultyListener:
    """A listener whose link has the fault."""

    def __init__(self, inner: Listener, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    @property
    def address(self) -> str:
        return self._inner.address

    async def accept(self, deadline_s: float) -> Link:
        return self._fault.at_target(await self._inner.accept(deadline_s))

    async def close(self) -> None:
        await self._inner.close()


class FaultyTransport:
    """A transport every link of which has a fault of its own. Equal seeds choose equal victims."""

    def __init__(self, inner: Transport, fault: FaultKind, seed: int) -> None:
        self._inner = inner
        self._fault = fault
        self._seed = seed
        self.name = inner.name
        self.hands_over = inner.hands_over

    async def listen(self, key: bytes, arena: ArenaBytes | None) -> Listener:
        return FaultyListener(await self._inner.listen(key, arena), self._fault(random.Random(self._seed)))

    async def connect(self, address: str, key: bytes, arena: ArenaBytes, deadline_s: float) -> Link:
        link = await self._inner.connect(address, key, arena, deadline_s)
        return self._fault(random.Random(self._seed)).at_source(link)
