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
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from worldline.errors import (
    BadValue,
    Fact,
    HostGone,
    Internal,
    Malformed,
    TimedOut,
    Unauthenticated,
    Unavailable,
    WorldlineError,
    from_record,
)

BODY_BYTES_MAX = 64 * 1024 * 1024
OUTGOING_BYTES_MAX = 128 * 1024 * 1024
"""What may wait for a peer that does not read; beyond it the peer is disconnected."""
DRAIN_BYTES = 1024 * 1024
"""`drain` waits while more than this is waiting."""
REQUESTS_MAX = 256
"""Requests of one peer that are worked on at once; further frames are not read until one is done."""
SOCKET_PATH_BYTES_MAX = 107
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 1.0

_HEADER = struct.Struct("<IBQ")
_CREDENTIALS = struct.Struct("3i")

T = TypeVar("T")

log = logging.getLogger(__name__)


class Kind(IntEnum):
    """The u8 at octet 4."""

    REQUEST = 1
    ANSWER = 2
    ERROR = 3
    NOTICE = 4


class ErrorRecord(msgspec.Struct, frozen=True):
    """Body of an error frame."""

    code: str
    sentence: str
    facts: dict[str, Fact]


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
            self._writer.transport.abort()
            self._end()
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
            kind, answer = Kind.ERROR, msgspec.msgpack.encode(error.to_record())
        except Exception as error:  # the root of this request's task
            log.exception("a request failed for a reason of ours")
            kind, answer = Kind.ERROR, msgspec.msgpack.encode(Internal(f"{type(error).__name__}: {error}").to_record())
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
                record = msgspec.msgpack.decode(body, type=ErrorRecord)
                future.set_exception(from_record(record.code, record.sentence, record.facts))
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


class Server:
    """A listening socket and the peers that came through it."""

    def __init__(self, path: Path, accepts: Any, on_message: OnMessage, on_closed: OnClosed | None) -> None:
        self.path = path
        self.peers: set[Peer] = set()
        self._accepts = accepts
        self._on_message = on_message
        self._on_closed = on_closed
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        _claim(self.path)
        self._server = await asyncio.start_unix_server(self._connected, path=str(self.path))
        self.path.chmod(0o600)

    async def close(self) -> None:
        """Stops listening, disconnects every peer and cancels handlers still at work. Idempotent."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for peer in tuple(self.peers):
            await peer.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.wait_closed()
        self.path.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            _check_same_user(writer)
        except Unauthenticated as error:
            log.warning("%s: turned away: %s", self.path.name, error)
            writer.transport.abort()
            return
        gone = HostGone(f"the client of {self.path.name} is gone")
        peer = Peer((reader, writer), self._accepts, self._on_message, gone)
        self.peers.add(peer)
        watcher = asyncio.create_task(self._watch(peer))
        try:
            try:
                await peer.run()
            finally:
                await watcher
        except asyncio.CancelledError:  # `close` cancels; asyncio's own callback would report it as an error
            log.debug("%s: a peer was disconnected with requests at work", self.path.name)

    async def _watch(self, peer: Peer) -> None:
        """Tells of a closed peer at once, also while its requests are still at work."""
        await peer.wait_closed()
        self.peers.discard(peer)
        if self._on_closed is not None:
            await self._on_closed(peer)


async def serve(path: Path, accepts: Any, on_message: OnMessage, on_closed: OnClosed | None = None) -> Server:
    """Listens at `path` (mode 0600, in a directory that only this user enters) for messages of the union `accepts`.

    A stale socket file is replaced. Raises `BadValue` for a path that can't be used or where another process listens.
    """
    server = Server(path, accepts, on_message, on_closed)
    await server.start()
    return server


class Connection(Peer):
    """A peer that this side connected to: it reads in a task of its own."""

    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self.run())

    async def close(self) -> None:
        await super().close()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


async def connect(path: Path, accepts: Any, on_message: OnMessage | None, gone: Unavailable) -> Connection:
    """Connects to a server. `accepts` and `on_message` are for what the server sends by itself. Calls raise `gone` once
    the connection has ended, and so does this when nobody listens.

    A notice may be handled before the call that asked for it returns: prepare first, then ask.
    """
    try:
        streams = await asyncio.open_unix_connection(str(path))
    except OSError as error:
        raise type(gone)(f"{gone.sentence} ({error.strerror or error})", **gone.facts) from error
    try:
        _check_same_user(streams[1])
    except Unauthenticated:
        streams[1].transport.abort()
        raise
    peer = Connection(streams, accepts, on_message, gone)
    peer.start()
    return peer


class Reconnecting:
    """A connection that is made again, with growing pauses, for as long as it is wanted.

    `on_connected` runs after each connection is made and before `peer` hands it out; if it raises a `WorldlineError`,
    the connection is dropped and made again. Calls made while there is no connection fail at once: the caller decides
    whether to wait (`ready`) or to tell.
    """

    def __init__(
        self,
        path: Path,
        accepts: Any,
        on_message: OnMessage | None,
        gone: Unavailable,
        on_connected: Callable[[Peer], Awaitable[None]] | None = None,
    ) -> None:
        self._path = path
        self._accepts = accepts
        self._on_message = on_message
        self._gone = gone
        self._on_connected = on_connected
        self._peer: Connection | None = None
        self._ready = asyncio.Event()
        self._task = asyncio.create_task(self._keep())

    @property
    def connected(self) -> bool:
        return self._peer is not None and not self._peer.closed

    @property
    def peer(self) -> Peer:
        """The connection. Raises the `gone` error while there is none."""
        if self._peer is None or self._peer.closed:
            raise type(self._gone)(self._gone.sentence, **self._gone.facts)
        return self._peer

    async def ready(self, timeout_s: float) -> Peer:
        """The connection, waited for. Raises the `gone` error after `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.connected:
                    self._ready.clear()
                    await self._ready.wait()
        return self.peer

    @overload
    async def call(self, message: object, answer: None, timeout_s: float | None) -> None: ...
    @overload
    async def call(self, message: object, answer: type[T], timeout_s: float | None) -> T: ...
    async def call(self, message: object, answer: Any, timeout_s: float | None) -> Any:
        """`Peer.call` on the present connection."""
        return await self.peer.call(message, answer, timeout_s)

    async def close(self) -> None:
        """Disconnects and stays so. Idempotent."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _keep(self) -> None:
        pause_s = BACKOFF_FIRST_S
        while True:
            try:
                peer = await connect(self._path, self._accepts, self._on_message, self._gone)
            except (Unavailable, Unauthenticated):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, BACKOFF_MAX_S)
                continue
            try:
                if self._on_connected is not None:
                    await self._on_connected(peer)
                self._peer, pause_s = peer, BACKOFF_FIRST_S
                self._ready.set()
                await peer.wait_closed()
            except WorldlineError as error:
                log.warning("%s: connected, but not accepted: %s", self._path.name, error)
            finally:
                self._peer = None
                await peer.close()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_MAX_S)


def make_run_dir(path: Path) -> Path:
    """Creates `path` for this user alone, or checks that it is. Raises `BadValue` where others may enter."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise BadValue(f"{path} must belong to this user and be closed to others (mode 0700)")
    return path


def _claim(path: Path) -> None:
    """Makes `path` free for a new socket, unless a living process listens there."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise BadValue(f"{path} is too long for a socket: at most {SOCKET_PATH_BYTES_MAX} bytes")
    make_run_dir(path.parent)
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise BadValue(f"{path} exists and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise BadValue(f"another process listens at {path}")


def _check_same_user(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket = writer.get_extra_info("socket")
    _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != os.getuid():
        raise Unauthenticated(f"user {uid} is not user {os.getuid()}", uid=uid)
