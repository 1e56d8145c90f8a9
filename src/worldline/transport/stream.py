"""A link over a connected stream socket: records both ways, and posted extents as the transport's `Carrier` puts them.

The event loop sees events only. One thread of the link's own reads the socket, another one sends; both block, and hold
no interpreter lock while bytes are copied.

Invariant: an extent is checked against the arena before one of its bytes is read from the socket, and after `fence`
returned both threads have ended and the socket is closed, so nothing can be written any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

from worldline.errors import Internal, LinkCut, Malformed, TimedOut, WorldlineError
from worldline.schema.layout import Extent
from worldline.transport.deadline import Deadline
from worldline.transport.inbox import Inbox
from worldline.transport.protocol import CHUNK_BYTES, ArenaBytes, Landed, LinkEvent, RecordIn
from worldline.transport.sender import Sender
from worldline.transport.tls import TlsSocket
from worldline.wire.framing import HEADER_BYTES, Frame, Numberer, Reader, RecordType, split_record
from worldline.wire.records import Chunk, Record, Shared, decode_frame

SEND_TIME_S = 30.0
"""A record that can't be handed to the system for so long has no reader."""
POLL_S = 0.2
"""How long a send may sleep before its deadline is looked at."""
BATCH_BYTES = 1024 * 1024
BATCH_PIECES = 512
"""Small pieces go to the system together; Linux takes 1024 at once."""

_LINK_TYPES = frozenset({RecordType.CHUNK, RecordType.SHARED})

Piece: TypeAlias = bytes | memoryview


class Carrier(Protocol):
    """What a stream transport makes of posted extents."""

    is_target: bool

    def outgoing(self, extents: Sequence[Extent]) -> Iterator[tuple[bytes, memoryview | None]]:
        """Source: the records to send, each with the payload that follows it."""
        ...

    def landing(self, record: Record, receive_into: Callable[[memoryview], None]) -> Sequence[Extent]:
        """Target: what landed with a `Chunk` or `Shared` record, its payload received. Raises `Malformed`."""
        ...

    def crossed(self, extents: Sequence[Extent]) -> int:
        """Bytes of these extents that the link itself carried."""
        ...


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

    def __init__(self, sock: socket.socket | TlsSocket, arena: ArenaBytes, carrier: Carrier, name: str) -> None:
        self._sock = sock
        self._arena = arena
        self._carrier = carrier
        self._inbox = Inbox()
        self._sender = Sender(f"{name}-send", self._abandon)
        self._numberer = Numberer()
        self._unusable: WorldlineError | None = None
        self._fenced = False
        self._loop = asyncio.get_running_loop()
        self._read_ended = asyncio.Event()
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 0, int(POLL_S * 1e6)))
        self._reading = threading.Thread(target=self._read, name=f"{name}-read", daemon=True)
        self._reading.start()

    @property
    def arena(self) -> ArenaBytes:
        return self._arena

    async def send(self, record: bytes) -> None:
        frame = split_record(record)
        if frame.header.type in _LINK_TYPES:
            raise ValueError("chunks are posted, not sent")
        await self._sender.run(lambda: self._send([(record, None)], Deadline(SEND_TIME_S)))

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        check_posted(extents, self._arena.capacity)
        if self._carrier.is_target:
            raise ValueError("only the source posts")
        deadline = Deadline(deadline_s)
        await self._sender.run(lambda: self._send(self._carrier.outgoing(extents), deadline))
        return self._carrier.crossed(extents)

    async def receive(self) -> LinkEvent:
        return await self._inbox.get()

    async def fence(self) -> None:
        self._fenced = True
        self._inbox.end(LinkCut("the link was closed on this side"))
        self._inbox.discard()
        self._shut(socket.SHUT_RDWR)
        await self._sender.close()
        await self._read_ended.wait()
        self._reading.join()
        self._sock.close()

    # ---- on the sending thread

    def _send(
        self, records: Iterator[tuple[bytes, memoryview | None]] | list[tuple[bytes, None]], deadline: Deadline
    ) -> None:
        """Sends all or makes the link unusable: half a record can't be taken back."""
        if self._unusable is not None or self._fenced:
            raise LinkCut("the link is closed" if self._unusable is None else self._unusable.sentence)
        try:
            for batch in _batches(self._stamped(records)):
                self._send_batch(batch, deadline)
        except WorldlineError as error:
            self._unusable = error
            self._shut(socket.SHUT_WR)  # what came before may still be read, on both sides
            raise

    def _stamped(
        self, records: Iterator[tuple[bytes, memoryview | None]] | list[tuple[bytes, None]]
    ) -> Iterator[Piece]:
        for record, payload in records:
            yield self._numberer.stamp(record[:HEADER_BYTES])
            yield memoryview(record)[HEADER_BYTES:]
            if payload is not None:
                yield payload

    def _send_batch(self, batch: list[Piece], deadline: Deadline) -> None:
        first = 0
        while first < len(batch):
            if self._fenced:
                raise LinkCut("the link was closed on this side")
            if deadline.passed:
                raise TimedOut("the other side did not take the bytes in time")
            try:
                sent = self._sock.sendmsg(itertools.islice(batch, first, None))
            except BlockingIOError:  # nothing went out within POLL_S
                continue
            except OSError as error:
                raise LinkCut(f"the link broke: {error.strerror or error}") from error
            first = _forget(batch, first, sent)

    # ---- on the reading thread

    def _read(self) -> None:
        reader = Reader()
        try:
            while True:
                if reader.at_boundary:
                    self._announce_if_idle()
                frame = reader.take(self._receive(reader.wanted_bytes))
                if frame is not None:
                    self._take(frame)
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

    def _take(self, frame: Frame) -> None:
        if frame.header.type not in _LINK_TYPES:
            self._inbox.put(RecordIn(frame.record))
            return
        record = decode_frame(frame)
        assert isinstance(record, Chunk | Shared), "the type says so"
        for extent in self._carrier.landing(record, self._receive_into):
            self._inbox.put(Landed(extent))

    def _announce_if_idle(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
        self._inbox.announce()

    def _receive(self, nbytes: int) -> bytes:
        data = bytearray(nbytes)
        with memoryview(data) as view:
            self._receive_into(view)
        return bytes(data)

    def _receive_into(self, view: memoryview) -> None:
        done, nbytes = 0, len(view)
        while done < nbytes:
            if self._fenced:
                raise LinkCut("the link was closed on this side")
            got = self._sock.recv_into(view[done:])
            if got == 0:
                raise LinkCut("the other side closed the link")
            done += got

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
        with contextlib.suppress(OSError):  # it may be shut, or reset by the peer, already
            self._sock.shutdown(how)


def _batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Pieces in order, together where they are small."""
    batch: list[Piece] = []
    nbytes = 0
    for piece in pieces:
        batch.append(piece)
        nbytes += len(piece)
        if nbytes >= BATCH_BYTES or len(batch) >= BATCH_PIECES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _forget(batch: list[Piece], first: int, sent: int) -> int:
    """Drops `sent` bytes from the front; the number of the piece that is first now."""
    while first < len(batch) and sent >= len(batch[first]):
        sent -= len(batch[first])
        batch[first] = b""
        first += 1
    if sent:
        batch[first] = memoryview(batch[first])[sent:]
    return first
