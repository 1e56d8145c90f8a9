"""The target's side of a tcp link's bytes: chunks on the link's own stream, and large ones spread over several streams.

The link's own stream keeps the order: it is read on only when all of a spread landed. The pieces of a spread come over
whatever other stream is free.

Invariants
  A piece is received only within the spread announced last, at a place of its own, once: nothing is written where
  bytes have landed, and no piece of a later spread before its turn.
  Other streams are let in by keys of their own, one at each door, and a link does without those that don't come.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Final, Protocol

from worldline.clock import SystemClock
from worldline.errors import Internal, LinkCut, Malformed, WorldlineError
from worldline.schema.layout import Extent
from worldline.transport.channel import Channel
from worldline.transport.coding import Decoder
from worldline.transport.protocol import ArenaBytes
from worldline.transport.stream import Carrier, Tell, check_landing
from worldline.transport.tls import AnySocket
from worldline.verify.budget import Budget, Meter
from worldline.wire.encoded import Decodes, Encoded
from worldline.wire.framing import Reader
from worldline.wire.records import Chunk, Record, decode_frame, encode
from worldline.wire.spread import Doors, Piece, Spread, Streams

MIB: Final = 1024 * 1024
LANDING_BYTES: Final = 16 * MIB
"""A larger extent lands in parts of this, so that the lanes read bytes that are still in the caches."""
SLOW_LANDING_BYTES: Final = 4 * MIB
SLOW_BYTES_PER_S: Final = 1e9
DOOR_S: Final = 5.0
"""How long a target waits for a stream that it was asked to wait for."""


class Door(Protocol):
    """A listener for one stream."""

    @property
    def port(self) -> int: ...

    async def accept(self, deadline_s: float) -> AnySocket: ...

    async def close(self) -> None: ...


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

    def __init__(
        self, arena: ArenaBytes, open_door: Callable[[int], Awaitable[Door]], budget: Budget | None = None
    ) -> None:
        self._arena = arena
        self._budget = budget
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
        reader, meter = Reader(), Meter(self._budget)
        try:
            while True:
                frame = reader.take(channel.receive(reader.wanted_bytes))
                if frame is not None:
                    self._take_piece(channel, decode_frame(frame))
                    meter.pay()
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
