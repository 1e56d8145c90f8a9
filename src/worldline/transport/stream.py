"""A link over a connected stream socket: records both ways, and posted extents as the transport's `Carrier` puts them.

The event loop sees events only. One thread of the link's own reads the socket, another one sends; both block, and hold
no interpreter lock while bytes are copied.

Invariant: an extent is checked against the arena before one of its bytes is read from the socket, and after `fence`
returned all threads have ended and the sockets are closed, so nothing can be written any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from worldline.errors import Internal, LinkCut, Malformed, WorldlineError
from worldline.schema.layout import Extent
from worldline.transport.channel import Channel, Sendable
from worldline.transport.deadline import Deadline
from worldline.transport.inbox import Inbox
from worldline.transport.protocol import CHUNK_BYTES, ArenaBytes, Landed, LinkEvent, RecordIn
from worldline.transport.sender import Sender
from worldline.transport.tls import AnySocket
from worldline.verify.budget import Budget, Meter
from worldline.wire.framing import HEADER_BYTES, Frame, Numberer, Reader, RecordType, header_of
from worldline.wire.records import Record, decode_frame

SEND_TIME_S: Final = 30.0
"""A record that can't be handed to the system for so long has no reader."""


LINKS_OWN = frozenset(
    {
        RecordType.CHUNK,
        RecordType.SHARED,
        RecordType.SPREAD,
        RecordType.PIECE,
        RecordType.STREAMS,
        RecordType.DOORS,
        RecordType.ENCODED,
        RecordType.DECODES,
    }
)
"""Types of the records that links write and read by themselves; nobody else sends them."""

Tell = Callable[[bytes], Awaitable[None]]
Records: TypeAlias = Iterator[tuple[bytes, Sendable | None]]
"""Each with the payload that follows it."""


class Carrier:
    """What a stream transport makes of posted extents. As it stands, it carries none and has no streams of its own."""

    is_target: bool

    def attach(self, tell: Tell, on_broken: Callable[[WorldlineError], None]) -> None:
        """Called once, on the loop. `tell` sends a link's own record; `on_broken` ends receiving."""

    async def ready(self, extents: Sequence[Extent]) -> None:
        """Source, before each post: may wait for streams of the carrier's own. Raises `LinkCut`, `TimedOut`."""

    def outgoing(self, extents: Sequence[Extent], deadline: Deadline) -> Records:
        """Source: the records to send, each with the payload that follows it, an extent for the arena's bytes there."""
        raise NotImplementedError

    @property
    def fast(self) -> bool:
        """Source: the peer is near, and the link was measured to be faster than a small buffer keeps it busy."""
        return False

    def finish(self) -> None:
        """Source: returns once all that `outgoing` gave to other streams has left. Raises as a send."""

    def landing(self, record: Record, receive_into: Callable[[memoryview], None]) -> Iterable[Extent]:
        """What landed with a link's own record, its payload received, as it lands. Raises `Malformed`, `LinkCut`."""
        raise NotImplementedError

    def crossed(self, extents: Sequence[Extent]) -> int:
        """Bytes of these extents that the link itself carried."""
        raise NotImplementedError

    def pace(self, rate_bytes_per_s: float | None) -> None:
        """As `Link.pace`, for the carrier's own streams."""

    def shut(self, how: int) -> None:
        """As a socket's shutdown, for all of the carrier's own streams. From any thread."""

    async def close(self) -> None:
        """Ends them; when it returns their threads have ended."""


def check_posted(extents: Sequence[Extent], capacity: int) -> None:
    """Raises `ValueError` where a caller posts what no target may take."""
    for extent in extents:
        if not 0 < extent.nbytes <= CHUNK_BYTES or extent.offset < 0 or extent.offset + extent.nbytes > capacity:
            raise ValueError(f"{extent} can't be posted from an arena of {capacity} bytes")


def check_landing(extent: Extent, capacity: int) -> None:
    """Raises `Malformed` for an extent that would leave the arena."""
    if extent.offset + extent.nbytes > capacity:
        raise Malformed(f"{extent} reaches outside the target's arena of {capacity} bytes")


class StreamLink:
    """See `Link`. Takes the socket over: connected, the key proved, nothing read beyond the proof."""

    def __init__(
        self, sock: AnySocket, arena: ArenaBytes, carrier: Carrier, name: str, budget: Budget | None = None
    ) -> None:
        self._channel = Channel(sock, None if carrier.is_target else arena, budget)
        self._budget = budget
        self._arena = arena
        self._carrier = carrier
        self._inbox = Inbox()
        self._sender = Sender(f"{name}-send", self._abandon)
        self._numberer = Numberer()
        self._unusable: WorldlineError | None = None
        self._fenced = False
        self._loop = asyncio.get_running_loop()
        self._read_ended = asyncio.Event()
        carrier.attach(self._tell, self._inbox.end)
        self._reading = threading.Thread(target=self._read, name=f"{name}-read", daemon=True)
        self._reading.start()

    @property
    def arena(self) -> ArenaBytes:
        return self._arena

    async def send(self, record: bytes) -> None:
        if header_of(record).type in LINKS_OWN:
            raise ValueError("a link writes its own records by itself: extents are posted, not sent")
        await self._tell(record)

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        check_posted(extents, self._arena.capacity)
        if self._carrier.is_target:
            raise ValueError("only the source posts")
        deadline = Deadline(deadline_s)
        try:
            await self._carrier.ready(extents)
        except asyncio.CancelledError:
            self._abandon()
            raise
        await self._sender.run(lambda: self._send(self._carrier.outgoing(extents, deadline), deadline))
        return self._carrier.crossed(extents)

    async def receive(self) -> LinkEvent:
        return await self._inbox.get()

    def pace(self, rate_bytes_per_s: float | None) -> None:
        self._channel.pace(rate_bytes_per_s)
        self._carrier.pace(rate_bytes_per_s)

    async def fence(self) -> None:
        self._fenced = True
        self._inbox.end(LinkCut("the link was closed on this side"))
        self._inbox.discard()
        self._channel.end()
        await self._carrier.close()
        await self._sender.close()
        await self._read_ended.wait()
        self._reading.join()
        self._channel.close()

    # ---- on the sending thread

    async def _tell(self, record: bytes) -> None:
        await self._sender.run(lambda: self._send(iter([(record, None)]), Deadline(SEND_TIME_S)))

    def _send(self, records: Records, deadline: Deadline) -> None:
        """Sends all or makes the link unusable: half a record can't be taken back."""
        if self._unusable is not None or self._fenced:
            raise LinkCut("the link is closed" if self._unusable is None else self._unusable.sentence)
        try:
            self._channel.send(self._stamped(records), deadline)
            self._carrier.finish()
        except Exception as error:  # whatever it was, half a record may be out
            self._unusable = error if isinstance(error, WorldlineError) else LinkCut(f"a send failed: {error!r}")
            self._shut(socket.SHUT_WR)  # what came before may still be read, on both sides
            raise

    def _stamped(self, records: Records) -> Iterator[Sendable]:
        for record, payload in records:
            if self._carrier.fast:
                self._channel.widen()
            yield self._numberer.stamp(record[:HEADER_BYTES])
            yield memoryview(record)[HEADER_BYTES:]
            if payload is not None:
                yield payload

    # ---- on the reading thread

    def _read(self) -> None:
        reader, meter = Reader(), Meter(self._budget)
        try:
            while True:
                if reader.at_boundary and self._channel.idle:
                    self._inbox.announce()
                frame = reader.take(self._channel.receive(reader.wanted_bytes))
                if frame is not None:
                    self._take(frame, meter)
        except LinkCut as error:
            self._cut(error)
        except OSError as error:
            self._cut(LinkCut(f"the link broke: {error.strerror or error}"))
        except WorldlineError as error:
            self._inbox.end(error)  # the peer broke the format, and may still be told so
        except Exception as error:  # noqa: BLE001  the thread's root: the link ends, and its owner is told
            self._inbox.end(Internal(f"the reader of a link failed: {error!r}"))
        finally:
            self._shut(socket.SHUT_RD)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._read_ended.set)

    def _take(self, frame: Frame, meter: Meter) -> None:
        if frame.header.type not in LINKS_OWN:
            self._inbox.put(RecordIn(frame.record))
            return
        record = decode_frame(frame)
        assert record is not None, "the type says so"
        for extent in self._carrier.landing(record, self._channel.receive_into):
            self._inbox.put(Landed(extent))
            meter.pay()

    def _cut(self, error: LinkCut) -> None:
        """The other side is gone. A send may still sleep: a window that was shut when the peer closed stays shut."""
        self._unusable = self._unusable or error
        self._inbox.end(error)
        self._shut(socket.SHUT_RDWR)

    # ---- on any thread

    def _abandon(self) -> None:
        """A job was given up half done: nothing can follow it."""
        self._unusable = self._unusable or LinkCut("a send on this link was given up half done")
        self._shut(socket.SHUT_WR)

    def _shut(self, how: int) -> None:
        self._channel.shut(how)
        self._carrier.shut(how)
