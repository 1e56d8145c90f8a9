"""Inside one process: bytes are copied from arena to arena on the source link's thread. For tests and simulation."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np

from worldline.errors import LinkCut, Malformed, TimedOut, Unauthenticated, WorldlineError
from worldline.schema.layout import Extent
from worldline.transport.deadline import Deadline
from worldline.transport.handshake import check_key
from worldline.transport.inbox import Inbox
from worldline.transport.protocol import ArenaBytes, Landed, Link, LinkEvent, Listener, RecordIn
from worldline.transport.sender import Sender
from worldline.transport.stream import SEND_TIME_S, check_landing, check_posted
from worldline.wire.framing import header_of

PIECE_BYTES = 1024 * 1024
"""Copied under the target's lock at once, so that a fence waits for one piece at most."""


class MemoryLink:
    """See `Link`. One side of a pair; `pair` makes both."""

    def __init__(self, arena: ArenaBytes, *, is_source: bool) -> None:
        self._arena = arena
        self._is_source = is_source
        self._inbox = Inbox()
        self._sender = Sender("memory-send", self._abandon)
        self._peer: MemoryLink | None = None
        self._unusable: WorldlineError | None = None
        self._writing = threading.Lock()
        self._fenced = False
        self._ended = threading.Event()
        self._rate_bytes_per_s: float | None = None

    @classmethod
    def pair(cls, source_arena: ArenaBytes, target_arena: ArenaBytes) -> tuple[MemoryLink, MemoryLink]:
        source, target = cls(source_arena, is_source=True), cls(target_arena, is_source=False)
        source._peer, target._peer = target, source
        return source, target

    @property
    def arena(self) -> ArenaBytes:
        return self._arena

    async def send(self, record: bytes) -> None:
        header_of(record)
        deadline = Deadline(SEND_TIME_S)
        await self._sender.run(lambda: self._run(lambda peer: peer._inbox.put(RecordIn(record), deadline)))

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        check_posted(extents, self._arena.capacity)
        if not self._is_source:
            raise ValueError("only the source posts")
        deadline = Deadline(deadline_s)
        await self._sender.run(lambda: self._run(lambda peer: self._copy(peer, extents, deadline)))
        return sum(extent.nbytes for extent in extents)

    def pace(self, rate_bytes_per_s: float | None) -> None:
        self._rate_bytes_per_s = rate_bytes_per_s

    async def receive(self) -> LinkEvent:
        return await self._inbox.get()

    async def fence(self) -> None:
        self._fenced = True
        self._ended.set()
        with self._writing:  # a piece may be under way
            pass
        self._inbox.end(LinkCut("the link was closed on this side"))
        self._inbox.discard()
        peer, self._peer = self._peer, None
        if peer is not None:
            peer._inbox.end(LinkCut("the other side closed the link"))
        await self._sender.close()

    # ---- on the sending thread

    def _run(self, job: Callable[[MemoryLink], None]) -> None:
        """Does the job with the peer, or makes the link unusable for both."""
        peer = self._peer
        if self._unusable is not None or peer is None:
            raise LinkCut("the link is closed" if self._unusable is None else self._unusable.sentence)
        try:
            job(peer)
        except WorldlineError as error:
            self._unusable = error
            peer._inbox.end(LinkCut("the other side closed the link"))
            raise

    def _copy(self, peer: MemoryLink, extents: Sequence[Extent], deadline: Deadline) -> None:
        for extent in extents:
            peer._take(extent, self._arena, deadline)
            peer._inbox.put(Landed(extent), deadline)
            rate = self._rate_bytes_per_s
            if rate is not None:
                peer._inbox.announce()
                self._ended.wait(min(extent.nbytes / rate, deadline.left_s))
        peer._inbox.announce()

    def _take(self, extent: Extent, source: ArenaBytes, deadline: Deadline) -> None:
        try:
            check_landing(extent, self._arena.capacity)
        except Malformed as error:
            self._inbox.end(error)
            raise LinkCut("the other side refused an extent and closed the link") from error
        for offset in range(extent.offset, extent.offset + extent.nbytes, PIECE_BYTES):
            piece = Extent(offset, min(PIECE_BYTES, extent.offset + extent.nbytes - offset))
            with self._writing:
                if self._fenced:
                    raise LinkCut("the other side closed the link")
                if deadline.passed:
                    raise TimedOut("the bytes were not copied in time")
                # numpy's copy lets other threads run; a memoryview's does not
                np.copyto(_octets(self._arena.bytes_at(piece)), _octets(source.bytes_at(piece)))

    def _abandon(self) -> None:
        """A job was given up half done: nothing can follow it."""
        self._unusable = self._unusable or LinkCut("a send on this link was given up half done")
        peer = self._peer
        if peer is not None:
            peer._inbox.end(LinkCut("the other side closed the link"))


def _octets(view: memoryview) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(view, np.uint8)


@dataclass(slots=True)
class _Offer:
    """A source that waits to be accepted."""

    arena: ArenaBytes
    accepted: asyncio.Future[MemoryLink]


class MemoryListener:
    """See `Listener`."""

    def __init__(self, key: bytes, arena: ArenaBytes) -> None:
        self.key = key
        self._arena = arena
        self._offers: deque[_Offer] = deque()
        self._offered = asyncio.Event()
        self._closed = False
        self._address = f"memory:{next(_NUMBERS)}"
        _LISTENERS[self._address] = self

    @property
    def address(self) -> str:
        return self._address

    async def accept(self, deadline_s: float) -> Link:
        try:
            async with asyncio.timeout(deadline_s):
                offer = await self._next_offer()
        except TimeoutError as error:
            raise TimedOut(f"no source with the key came to {self._address} within {deadline_s} s") from error
        source, target = MemoryLink.pair(offer.arena, self._arena)
        offer.accepted.set_result(source)
        await self.close()
        return target

    async def close(self) -> None:
        self._closed = True
        _LISTENERS.pop(self._address, None)
        self._offered.set()
        while self._offers:
            self._offers.popleft().accepted.cancel()

    async def offer(self, arena: ArenaBytes) -> MemoryLink:
        """Waits to be accepted. Raises `LinkCut` when the listener closes first."""
        offer = _Offer(arena, asyncio.get_running_loop().create_future())
        self._offers.append(offer)
        self._offered.set()
        try:
            await asyncio.wait([offer.accepted])
        except asyncio.CancelledError:
            offer.accepted.cancel()
            raise
        if offer.accepted.cancelled():
            raise LinkCut("the listener was closed")
        return offer.accepted.result()

    async def _next_offer(self) -> _Offer:
        while True:
            if self._closed:
                raise LinkCut("the listener is closed: its key was used or its attempt is over")
            while self._offers:
                offer = self._offers.popleft()
                if not offer.accepted.done():
                    return offer
            self._offered.clear()
            await self._offered.wait()


_NUMBERS = itertools.count(1)
_LISTENERS: WeakValueDictionary[str, MemoryListener] = WeakValueDictionary()


class MemoryTransport:
    """See `Transport`."""

    name = "memory"
    hands_over = False

    async def listen(self, key: bytes, arena: ArenaBytes | None) -> Listener:
        if arena is None:
            raise ValueError("memory needs an arena to copy into")
        return MemoryListener(check_key(key), arena)

    async def connect(self, address: str, key: bytes, arena: ArenaBytes, deadline_s: float) -> Link:
        check_key(key)
        listener = _LISTENERS.get(address)
        if listener is None:
            raise LinkCut(f"nobody listens at {address}")
        if not hmac.compare_digest(key, listener.key):
            raise Unauthenticated("who listens there does not hold the key of this attempt")
        try:
            async with asyncio.timeout(deadline_s):
                return await listener.offer(arena)
        except TimeoutError as error:
            raise TimedOut(f"no link to {address} within {deadline_s} s") from error
