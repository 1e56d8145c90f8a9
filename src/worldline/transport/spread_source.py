"""The source's side of a tcp link's bytes: chunks on the link's own stream, and large ones spread over several streams.

The link's own stream keeps the order: it announces a spread. The pieces of a spread go over whatever other stream is
free. A link does without the streams that don't come.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from worldline.errors import Internal, LinkCut, Malformed, WorldlineError
from worldline.schema.layout import Extent
from worldline.transport.channel import Channel, Sendable
from worldline.transport.coding import AUTO, NONE, Coder
from worldline.transport.deadline import Deadline
from worldline.transport.protocol import ArenaBytes
from worldline.transport.stream import Carrier, Records, Tell
from worldline.transport.tls import AnySocket
from worldline.verify.budget import Budget
from worldline.wire.encoded import Decodes
from worldline.wire.framing import HEADER_BYTES, Numberer
from worldline.wire.records import Chunk, Record, encode
from worldline.wire.spread import Doors, Piece, Spread, Streams

MIB: Final = 1024 * 1024
CORES_MIN: Final = 4
"""Two streams keep two cores busy at each end, and digests want some too. With fewer one stream is faster."""
ANSWER_S: Final = 2.0
"""How long a source waits for the doors, and for a stream through one."""


@dataclass(frozen=True, slots=True)
class Spreading:
    """When a source uses more streams."""

    streams: int = 2 if len(os.sched_getaffinity(0)) >= CORES_MIN else 0
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


class ChunkSource(Carrier):
    """Source side. `dial(port, index)` brings a stream that proved itself, or raises."""

    is_target = False

    def __init__(
        self,
        arena: ArenaBytes,
        dial: Callable[[int, int], Awaitable[AnySocket]],
        spreading: Spreading,
        codec: str = AUTO,
        budget: Budget | None = None,
    ) -> None:
        self._arena = arena
        self._coder = Coder(arena, codec, budget=budget)
        self._budget = budget
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
            channel = Channel(sock, self._arena, self._budget)
            thread = threading.Thread(target=self._serve, args=(channel,), name="tcp-source-stream", daemon=True)
            self._streams.append((channel, thread))
            thread.start()

    def outgoing(self, extents: Sequence[Extent], deadline: Deadline) -> Records:
        self._deadline = deadline
        return self._coder.records(extents, self._raw)

    def _raw(self, extent: Extent) -> Records:
        if extent.nbytes < self._spreading.extent_bytes_min or not self._streams or not self._pays:
            yield encode(Chunk(extent)), extent
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

    @property
    def fast(self) -> bool:
        """A near one: on a long path a buffer of a set size would end the system's own tuning."""
        link = self._coder.link_bytes_per_s
        return self._spreading.near and link is not None and link >= self._spreading.link_bytes_per_s_min

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
                channel.send(self._pieces(*job, numberer), self._deadline)
                with self._told:
                    self._left -= 1
                    if self._left == 0:
                        self._told.notify_all()
        except WorldlineError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  the thread's root: the link ends, and its owner is told
            self._fail(Internal(f"a stream of a link failed: {error!r}"))

    def _pieces(self, spread: Spread, index: int, numberer: Numberer) -> Iterator[Sendable]:
        extent = spread.piece(index)
        record = encode(Piece(spread.number, index, extent.nbytes))
        yield numberer.stamp(record[:HEADER_BYTES]) + record[HEADER_BYTES:]
        yield extent

    def _fail(self, error: WorldlineError) -> None:
        with self._told:
            self._error = self._error or error
            self._told.notify_all()
