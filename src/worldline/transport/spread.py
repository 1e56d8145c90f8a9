"""The bytes of a tcp link: chunks on the link's own stream, and large ones spread over several streams.

The link's own stream keeps the order: it announces a spread, and is read on only when all of the spread landed. The
pieces of a spread come over whatever other stream is free.

Invariants
  A piece is received only within the spread announced last, at a place of its own, once: nothing is written where
  bytes have landed, and no piece of a later spread before its turn.
  Other streams are let in by keys of their own, one at each door, and a link does without those that don't come.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import queue
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from worldline.clock import SystemClock
from worldline.errors import Internal, LinkCut, Malformed, WorldlineError
from worldline.schema.layout import Extent
from worldline.transport.channel import Channel
from worldline.transport.coding import AUTO, NONE, Coder, Decoder
from worldline.transport.deadline import Deadline
from worldline.transport.protocol import ArenaBytes
from worldline.transport.stream import Carrier, Tell, check_landing
from worldline.transport.tls import TlsSocket
from worldline.wire.encoded import Decodes, Encoded
from worldline.wire.framing import HEADER_BYTES, Numberer, Reader
from worldline.wire.records import Chunk, Record, decode_frame, encode
from worldline.wire.spread import Doors, Piece, Spread, Streams

MIB: Final = 1024 * 1024
LANDING_BYTES: Final = 4 * MIB
"""A larger extent lands in parts of this, so that the lanes read bytes that are still in the caches."""
SLOW_LANDING_BYTES: Final = MIB
SLOW_BYTES_PER_S: Final = 1e9
DOOR_S: Final = 5.0
"""How long a target waits for a stream that it was asked to wait for."""
ANSWER_S: Final = 2.0
"""How long a source waits for the doors, and for a stream through one."""
STREAM_LABEL: Final = b"worldline stream 1\0"

AnySocket = socket.socket | TlsSocket


@dataclass(frozen=True, slots=True)
class Spreading:
    """When a source uses more streams. A machine of one core has nothing to gain."""

    streams: int = 2 if (os.cpu_count() or 1) > 1 else 0
    """Beside the link's own; 0: never."""
    open_bytes: int = 32 * MIB
    """A post of less is not worth opening them."""
    extent_bytes_min: int = 2 * MIB
    """Smaller ones are chunks on the link's own stream."""
    piece_bytes: int = MIB
    link_bytes_per_s_min: float = 1e9
    """One stream fills a near link that was measured slower."""
    near: bool = False
    """The round trip is short; a transport finds out."""


class Door(Protocol):
    """A listener for one stream."""

    @property
    def port(self) -> int: ...

    async def accept(self, deadline_s: float) -> AnySocket: ...

    async def close(self) -> None: ...


def stream_key(key: bytes, index: int) -> bytes:
    """The key of stream `index`: who has it can do nothing but be that stream of this link."""
    return hmac.digest(key, STREAM_LABEL + index.to_bytes(4, "little"), "sha256")


class ChunkSource(Carrier):
    """Source side. `dial(port, index)` brings a stream that proved itself, or raises."""

    is_target = False

    def __init__(
        self,
        arena: ArenaBytes,
        dial: Callable[[int, int], Awaitable[AnySocket]],
        spreading: Spreading,
        codec: str = AUTO,
    ) -> None:
        self._arena = arena
        self._coder = Coder(arena, codec)
        self._answered = asyncio.Event()
        self._dial = dial
        self._spreading = spreading
        self._asked = False
        self._closed = False
        self._doors: asyncio.Future[tuple[int, ...]] | None = None
        self._loop = asyncio.get_running_loop()
        self._streams: list[tuple[Channel, threading.Thread]] = []
        self._rate_bytes_per_s: float | None = None
        self._number = 0
        self._deadline = Deadline(0.0)
        self._work: queue.SimpleQueue[tuple[Spread, int] | None] = queue.SimpleQueue()
        self._told = threading.Condition()
        self._left = 0
        self._error: WorldlineError | None = None

    def attach(self, tell: Tell, on_broken: Callable[[WorldlineError], None]) -> None:
        self._tell = tell

    async def ready(self, extents: Sequence[Extent]) -> None:
        if self._coder.choice not in {AUTO, NONE}:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_S):
                    await self._answered.wait()
        wanted = self._spreading.streams
        if self._asked or not wanted or sum(extent.nbytes for extent in extents) < self._spreading.open_bytes:
            return
        self._asked = True
        self._doors = self._loop.create_future()
        await self._tell(encode(Streams(wanted)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                ports = (await self._doors)[:wanted]
                await asyncio.gather(*(self._open(port, index) for index, port in enumerate(ports)))
        self.pace(self._rate_bytes_per_s)

    async def _open(self, port: int, index: int) -> None:
        with contextlib.suppress(WorldlineError):  # the link does without
            sock = await self._dial(port, index)
            if self._closed:
                sock.close()
                return
            channel = Channel(sock)
            thread = threading.Thread(target=self._serve, args=(channel,), name="tcp-source-stream", daemon=True)
            self._streams.append((channel, thread))
            thread.start()

    def outgoing(self, extents: Sequence[Extent], deadline: Deadline) -> Iterator[tuple[bytes, memoryview | None]]:
        self._deadline = deadline
        return self._coder.records(extents, self._raw)

    def _raw(self, extent: Extent) -> Iterator[tuple[bytes, memoryview | None]]:
        if extent.nbytes < self._spreading.extent_bytes_min or not self._streams or not self._pays:
            yield encode(Chunk(extent)), self._arena.bytes_at(extent)
            return
        spread = Spread(extent, self._number, self._spreading.piece_bytes)
        self._number += 1
        with self._told:
            self._left += spread.piece_count
        for index in range(spread.piece_count):
            self._work.put((spread, index))
        yield encode(spread), None

    @property
    def _pays(self) -> bool:
        """Not where a rate is to be kept, nor on a near link that one stream fills: more would cost processor time."""
        link = self._coder.link_bytes_per_s
        slow = link is not None and link < self._spreading.link_bytes_per_s_min
        return self._rate_bytes_per_s is None and not (self._spreading.near and slow)

    def finish(self) -> None:
        with self._told:
            self._told.wait_for(lambda: self._left == 0 or self._error is not None)
            if self._error is not None:
                raise self._error

    def landing(self, record: Record, receive_into: Callable[[memoryview], None]) -> Iterable[Extent]:
        if isinstance(record, Decodes):
            self._coder.allow(record.codecs)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._answered.set)
            return ()
        doors = self._doors
        if not isinstance(record, Doors) or doors is None:
            raise Malformed(f"{type(record).__name__} is not a record for this side of a tcp link")
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(lambda: None if doors.done() else doors.set_result(record.ports))
        return ()

    def crossed(self, extents: Sequence[Extent]) -> int:
        saved, self._coder.saved_bytes = self._coder.saved_bytes, 0
        return sum(extent.nbytes for extent in extents) - saved

    def pace(self, rate_bytes_per_s: float | None) -> None:
        self._rate_bytes_per_s = rate_bytes_per_s
        for channel, _ in self._streams:
            channel.pace(None if rate_bytes_per_s is None else rate_bytes_per_s / len(self._streams))

    def shut(self, how: int) -> None:
        if how != socket.SHUT_RD:  # nothing is ever read here
            self._fail(LinkCut("the link is closed on this side"))
        for channel, _ in self._streams:
            channel.shut(how)

    async def close(self) -> None:
        self._closed = True
        self._coder.close()
        self._fail(LinkCut("the link was closed on this side"))
        for channel, _ in self._streams:
            channel.end()
            self._work.put(None)
        for channel, thread in self._streams:
            thread.join()
            channel.close()
        self._streams.clear()

    # ---- on a stream's thread

    def _serve(self, channel: Channel) -> None:
        numberer = Numberer()
        try:
            while (job := self._work.get()) is not None:
                channel.send(self._octets(*job, numberer), self._deadline)
                with self._told:
                    self._left -= 1
                    if self._left == 0:
                        self._told.notify_all()
        except WorldlineError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  the thread's root: the link ends, and its owner is told
            self._fail(Internal(f"a stream of a link failed: {error!r}"))

    def _octets(self, spread: Spread, index: int, numberer: Numberer) -> Iterator[bytes | memoryview]:
        extent = spread.piece(index)
        record = encode(Piece(spread.number, index, extent.nbytes))
        yield numberer.stamp(record[:HEADER_BYTES]) + record[HEADER_BYTES:]
        yield self._arena.bytes_at(extent)

    def _fail(self, error: WorldlineError) -> None:
        with self._told:
            self._error = self._error or error
            self._told.notify_all()


class _Assembly:
    """One spread while it lands."""

    def __init__(self, spread: Spread) -> None:
        self.spread = spread
        self._taken = bytearray(spread.piece_count)
        self._landed = bytearray(spread.piece_count)
        self._next = 0
        self._begun = spread.extent.offset

    def take(self, piece: Piece) -> Extent:
        """Where this piece goes; it is promised to one stream. Raises `Malformed`."""
        if not 0 <= piece.index < len(self._taken) or self._taken[piece.index]:
            raise Malformed(f"piece {piece.index} of a spread of {len(self._taken)} is none, or came before")
        extent = self.spread.piece(piece.index)
        if extent.nbytes != piece.nbytes:
            raise Malformed(f"a piece of {piece.nbytes} bytes where {extent.nbytes} were due")
        self._taken[piece.index] = 1
        return extent

    def landed(self, piece: Piece) -> None:
        self._landed[piece.index] = 1
        while self._next < len(self._landed) and self._landed[self._next]:
            self._next += 1

    @property
    def complete(self) -> bool:
        return self._next == len(self._landed)

    @property
    def ready(self) -> Extent | None:
        """What landed without a gap and was not yet told, where it is enough to tell."""
        end = min(self._next * self.spread.piece_bytes, self.spread.extent.nbytes) + self.spread.extent.offset
        enough = end - self._begun >= LANDING_BYTES or (self.complete and end > self._begun)
        return Extent(self._begun, min(end - self._begun, LANDING_BYTES)) if enough else None

    def tell(self, extent: Extent) -> None:
        self._begun = extent.offset + extent.nbytes


class ChunkTarget(Carrier):
    """Target side. `open_door(index)` begins to wait for stream `index`."""

    is_target = True

    def __init__(self, arena: ArenaBytes, open_door: Callable[[int], Awaitable[Door]]) -> None:
        self._arena = arena
        self._decoder = Decoder(arena)
        self._open_door = open_door
        self._clock = SystemClock()
        self._part_bytes = LANDING_BYTES
        self._loop = asyncio.get_running_loop()
        self._admitting: set[asyncio.Task[None]] = set()
        self._streams: list[tuple[Channel, threading.Thread]] = []
        self._asked = False
        self._turn = threading.Condition()
        self._current: _Assembly | None = None
        self._number = 0
        """Of the spread that is landing, or comes next."""
        self._open_streams = 0
        self._broken: WorldlineError | None = None

    def attach(self, tell: Tell, on_broken: Callable[[WorldlineError], None]) -> None:
        self._tell = tell
        self._on_broken = on_broken
        self._spawn(self._say_codecs())

    def crossed(self, extents: Sequence[Extent]) -> int:
        return sum(extent.nbytes for extent in extents)

    def landing(self, record: Record, receive_into: Callable[[memoryview], None]) -> Iterable[Extent]:
        match record:
            case Chunk(extent):
                check_landing(extent, self._arena.capacity)
                return self._receive(extent, receive_into)
            case Encoded():
                check_landing(record.extent, self._arena.capacity)
                return (self._decoder.land(record, receive_into),)
            case Spread():
                check_landing(record.extent, self._arena.capacity)
                return self._assemble(record)
            case Streams(count) if not self._asked:
                self._asked = True
                self._loop.call_soon_threadsafe(self._begin_to_admit, count)
                return ()
            case _:
                raise Malformed(f"{type(record).__name__} is not a record for this side of a tcp link")

    def shut(self, how: int) -> None:
        if how == socket.SHUT_WR:
            return  # this side only reads here
        self._break(LinkCut("the link is closed"))
        for channel, _ in self._streams:
            channel.shut(how)

    async def close(self) -> None:
        self._break(LinkCut("the link was closed on this side"))
        for task in self._admitting:
            task.cancel()
        if self._admitting:
            await asyncio.wait(self._admitting)
        for channel, _ in self._streams:
            channel.end()
        for channel, thread in self._streams:
            thread.join()
            channel.close()
        self._streams.clear()

    # ---- on the link's reading thread

    def _receive(self, extent: Extent, receive_into: Callable[[memoryview], None]) -> Iterator[Extent]:
        """In smaller parts where bytes come slowly: a lane then reads them while they are still in the caches."""
        at, end = extent.offset, extent.offset + extent.nbytes
        while at < end:
            part = Extent(at, min(self._part_bytes, end - at))
            began_s = self._clock.monotonic_s()
            with self._arena.bytes_at(part) as view:
                receive_into(view)
            slow = (self._clock.monotonic_s() - began_s) * SLOW_BYTES_PER_S > part.nbytes
            self._part_bytes = SLOW_LANDING_BYTES if slow else LANDING_BYTES
            at += part.nbytes
            yield part

    def _assemble(self, spread: Spread) -> Iterator[Extent]:
        assembly = _Assembly(spread)
        with self._turn:
            if spread.number != self._number:
                raise Malformed(f"spread {spread.number} came where {self._number} was due")
            self._current = assembly
            self._turn.notify_all()
        told = 0
        while told < spread.extent.nbytes:
            part = self._next_part(assembly)
            told += part.nbytes
            yield part
        with self._turn:
            self._current = None
            self._number += 1
            self._turn.notify_all()

    def _next_part(self, assembly: _Assembly) -> Extent:
        with self._turn:
            while (part := assembly.ready) is None:
                if self._broken is not None:
                    raise type(self._broken)(self._broken.sentence)
                if not self._open_streams and not self._admitting:
                    raise LinkCut("the streams that should bring a spread are closed")
                self._turn.wait()
            assembly.tell(part)
            return part

    # ---- on a stream's thread

    def _serve(self, channel: Channel) -> None:
        reader = Reader()
        try:
            while True:
                frame = reader.take(channel.receive(reader.wanted_bytes))
                if frame is not None:
                    self._take_piece(channel, decode_frame(frame))
        except LinkCut:
            pass  # the source is through with this stream; a spread that lacks a piece then hears of it
        except OSError as error:
            self._break(LinkCut(f"a stream of the link broke: {error.strerror or error}"))
        except WorldlineError as error:
            self._break(error)
            self._on_broken(error)
        except Exception as error:  # noqa: BLE001  the thread's root: the link ends, and its owner is told
            self._break(Internal(f"a stream of a link failed: {error!r}"))
        finally:
            channel.shut(socket.SHUT_RDWR)
            with self._turn:
                self._open_streams -= 1
                self._turn.notify_all()

    def _take_piece(self, channel: Channel, piece: Record | None) -> None:
        if not isinstance(piece, Piece):
            raise Malformed("a stream of a link carries pieces, and nothing else")
        with self._turn:
            self._turn.wait_for(lambda: self._broken is not None or self._is_due(piece))
            if self._broken is not None:
                raise LinkCut(self._broken.sentence)
            assembly = self._current
            assert assembly is not None, "a piece is due in a spread"
            extent = assembly.take(piece)
        try:
            with self._arena.bytes_at(extent) as view:
                channel.receive_into(view)
        except LinkCut as error:
            self._break(error)
            raise
        with self._turn:
            assembly.landed(piece)
            self._turn.notify_all()

    def _is_due(self, piece: Piece) -> bool:
        if piece.number < self._number:
            raise Malformed(f"a piece of spread {piece.number} came after it had landed")
        return self._current is not None and piece.number == self._number

    def _break(self, error: WorldlineError) -> None:
        with self._turn:
            self._broken = self._broken or error
            self._turn.notify_all()

    # ---- on the loop

    def _begin_to_admit(self, count: int) -> None:
        self._spawn(self._admit(count))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._admitting.add(task)
        task.add_done_callback(self._admitted)

    def _admitted(self, task: asyncio.Task[None]) -> None:
        with self._turn:
            self._admitting.discard(task)
            self._turn.notify_all()

    async def _say_codecs(self) -> None:
        with contextlib.suppress(WorldlineError):  # the link is closed already; a source that hears nothing sends raw
            await self._tell(encode(Decodes(self._decoder.numbers)))

    async def _admit(self, count: int) -> None:
        doors: list[Door] = []
        try:
            for index in range(count):
                doors.append(await self._open_door(index))  # noqa: PERF401 - those that are open are closed on an error
            await self._tell(encode(Doors(tuple(door.port for door in doors))))
            await asyncio.gather(*(self._admit_one(door) for door in doors))
        except (WorldlineError, OSError):
            return  # without an answer the source sends chunks
        finally:
            for door in doors:
                await door.close()

    async def _admit_one(self, door: Door) -> None:
        try:
            sock = await door.accept(DOOR_S)
        except WorldlineError:
            return
        channel = Channel(sock)
        thread = threading.Thread(target=self._serve, args=(channel,), name="tcp-target-stream", daemon=True)
        self._streams.append((channel, thread))
        with self._turn:
            self._open_streams += 1
        thread.start()
