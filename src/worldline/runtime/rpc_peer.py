"""How the processes of a fleet talk: MessagePack over Unix sockets, both sides equal once connected.

A frame is 13 octets of header, little-endian, and a body:

    octet  0..3   u32  bytes of the body, at most `BODY_BYTES_MAX`, checked before anything is allocated
    octet  4      u8   kind: 1 request, 2 answer, 3 error, 4 notice
    octet  5..12  u64  call id: chosen by the caller, repeated in its answer or error; 0 in a notice
    then          the message as MessagePack

Order is kept: frames are written in the order of the calls that made them. Requests run side by side, a task each;
notices are handled one after the other, before the next frame is read. So the handler of a notice must not `call` the
peer it came from (it would wait for a frame that it keeps from being read): that is refused as `Internal`.

A message is never dropped in silence. A peer that reads too slowly is disconnected, and both sides learn it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from worldline.errors import Internal, Malformed, TimedOut, Unavailable, WorldlineError
from worldline.runtime.error_record import ErrorRecord
from worldline.transport.unix import peer_pid

BODY_BYTES_MAX = 64 * 1024 * 1024
OUTGOING_BYTES_MAX = 128 * 1024 * 1024
"""What may wait for a peer that does not read; beyond it the peer is disconnected."""
DRAIN_BYTES = 1024 * 1024
"""`drain` waits while more than this is waiting."""
REQUESTS_MAX = 256
"""Requests of one peer that are worked on at once; further frames are not read until one is done."""

_HEADER = struct.Struct("<IBQ")

T = TypeVar("T")

log = logging.getLogger(__name__)


class Kind(IntEnum):
    """The u8 at octet 4."""

    REQUEST = 1
    ANSWER = 2
    ERROR = 3
    NOTICE = 4


OnMessage: TypeAlias = "Callable[[Peer, Any], Awaitable[object]]"
"""Handles a request (its result is the answer, a `WorldlineError` the error answered) or a notice (no answer)."""
OnClosed: TypeAlias = "Callable[[Peer], Awaitable[None]]"


class Peer:
    """The other end of one connection. Made by `serve` and `connect`; ended by `close` or by the other side."""

    def __init__(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        accepts: Any,
        on_message: OnMessage | None,
        gone: Unavailable,
    ) -> None:
        self._reader, self._writer = streams
        self._decoder = msgspec.msgpack.Decoder(accepts)
        self._on_message = on_message
        self._gone = gone
        self._calls: dict[int, tuple[asyncio.Future[Any], msgspec.msgpack.Decoder[Any]]] = {}
        self._last_call = 0
        self._closed = asyncio.Event()
        self._requests = asyncio.Semaphore(REQUESTS_MAX)
        self._reading: asyncio.Task[Any] | None = None
        self._writer.transport.set_write_buffer_limits(high=DRAIN_BYTES)

    @property
    def closed(self) -> bool:
        """True once no further message can be sent; answers still awaited have failed by then."""
        return self._closed.is_set()

    @property
    def pid(self) -> int | None:
        """Of the process at the other end, as the kernel has it; None once the connection has ended."""
        sock = self._writer.get_extra_info("socket")
        return None if self.closed or sock is None else peer_pid(sock)

    def abort(self) -> None:
        """Ends the connection; what was queued is lost."""
        self._writer.transport.abort()
        self._end()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    @overload
    async def call(self, message: object, answer: None, timeout_s: float | None) -> None: ...
    @overload
    async def call(self, message: object, answer: type[T], timeout_s: float | None) -> T: ...
    async def call(self, message: object, answer: Any, timeout_s: float | None) -> Any:
        """Sends a request and returns its answer, decoded as `answer`.

        Raises the error that the other side answered, `TimedOut` after `timeout_s` (None: never), or the error given at
        construction when the connection ends first. The last two say nothing about what the other side did.
        """
        if self._reading is not None and asyncio.current_task() is self._reading:
            raise Internal(
                f"{type(message).__name__} from the handler of a notice to its own peer: it would wait for ever"
            )
        self._last_call += 1
        call_id = self._last_call
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._send(Kind.REQUEST, call_id, msgspec.msgpack.encode(message))
        self._calls[call_id] = (future, msgspec.msgpack.Decoder(answer))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise TimedOut(f"no answer to {type(message).__name__} within {timeout_s} s") from None
        finally:
            self._calls.pop(call_id, None)

    def notify(self, message: object) -> None:
        """Queues a notice. A writer of many awaits `drain` between them.

        Raises the error given at construction when the connection has ended, or ends now because nobody reads.
        """
        self._send(Kind.NOTICE, 0, msgspec.msgpack.encode(message))

    async def drain(self) -> None:
        """Returns when at most `DRAIN_BYTES` are waiting, or when the connection has ended."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def close(self) -> None:
        """Ends the connection; what was queued is still written where the other side reads. Idempotent."""
        self._writer.close()
        self._end()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def run(self) -> None:
        """Reads until the connection ends, then waits for the handlers of requests: work begun is finished, only its
        answer is lost. Called once, by whoever made the peer.
        """
        self._reading = asyncio.current_task()
        async with asyncio.TaskGroup() as handlers:
            try:
                while True:
                    await self._read_frame(handlers)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            except WorldlineError as error:
                log.warning("a peer broke the protocol and is disconnected: %s", error)
            finally:
                self._end()
                self._writer.close()

    # ---- frames

    def _send(self, kind: Kind, call_id: int, body: bytes) -> None:
        if self.closed:
            raise self._gone_again()
        if len(body) > BODY_BYTES_MAX:
            raise Internal(f"a message of {len(body)} bytes is over the limit of {BODY_BYTES_MAX}")
        waiting = self._writer.transport.get_write_buffer_size()
        if waiting + len(body) > OUTGOING_BYTES_MAX:
            log.warning("a peer does not read: disconnected with %d bytes waiting", waiting)
            self.abort()
            raise self._gone_again()
        header = _HEADER.pack(len(body), kind, call_id)
        if len(body) <= DRAIN_BYTES:
            self._writer.write(header + body)
        else:  # two writes are cheaper than copying a large body
            self._writer.write(header)
            self._writer.write(body)

    async def _read_frame(self, handlers: asyncio.TaskGroup) -> None:
        nbytes, kind, call_id = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        if nbytes > BODY_BYTES_MAX:
            raise Malformed(f"a frame of {nbytes} bytes is over the limit of {BODY_BYTES_MAX}")
        body = await self._reader.readexactly(nbytes)
        if kind == Kind.REQUEST:
            await self._requests.acquire()
            handlers.create_task(self._answer(call_id, body))
        elif kind == Kind.NOTICE:
            await self._notice(body)
        elif kind in {Kind.ANSWER, Kind.ERROR}:
            self._settle(Kind(kind), call_id, body)
        else:
            raise Malformed(f"a frame of unknown kind {kind}")

    async def _answer(self, call_id: int, body: bytes) -> None:
        try:
            kind, answer = Kind.ANSWER, msgspec.msgpack.encode(await self._handle(body))
        except WorldlineError as error:
            kind, answer = Kind.ERROR, msgspec.msgpack.encode(ErrorRecord.of(error))
        except Exception as error:  # the root of this request's task
            log.exception("a request failed for a reason of ours")
            told = ErrorRecord.of(Internal(f"{type(error).__name__}: {error}"))
            kind, answer = Kind.ERROR, msgspec.msgpack.encode(told)
        finally:
            self._requests.release()
        with contextlib.suppress(Unavailable):  # the caller is gone; what was done stays done
            self._send(kind, call_id, answer)

    async def _notice(self, body: bytes) -> None:
        try:
            await self._handle(body)
        except WorldlineError:
            raise
        except Exception as error:
            log.exception("a notice failed for a reason of ours")
            raise Internal(f"{type(error).__name__}: {error}") from error

    async def _handle(self, body: bytes) -> object:
        try:
            message = self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise Malformed(f"a message that is not one of those expected here: {error}") from error
        if self._on_message is None:
            raise Malformed(f"{type(message).__name__} was sent to a side that takes no messages")
        return await self._on_message(self, message)

    def _settle(self, kind: Kind, call_id: int, body: bytes) -> None:
        future, decoder = self._calls.get(call_id, (None, None))
        if future is None or decoder is None or future.done():
            return  # its caller timed out
        try:
            if kind is Kind.ANSWER:
                future.set_result(decoder.decode(body))
            else:
                future.set_exception(msgspec.msgpack.decode(body, type=ErrorRecord).to_error())
        except msgspec.DecodeError as error:
            future.set_exception(Malformed(f"an answer that is not what was asked for: {error}"))

    def _end(self) -> None:
        if self.closed:
            return
        self._closed.set()
        for future, _ in self._calls.values():
            if not future.done():
                future.set_exception(self._gone_again())

    def _gone_again(self) -> Unavailable:
        """A fresh exception each time: one that is raised twice gathers the tracebacks of strangers."""
        return type(self._gone)(self._gone.sentence, **self._gone.facts)
