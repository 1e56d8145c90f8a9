"""Who talks to whom in a fleet: servers and clients of `rpc_peer` over Unix sockets, between processes of one user.

A socket file has mode 0600 in a directory of mode 0700, and either side asks the kernel who the other is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, overload

from worldline.errors import BadValue, HostGone, Unauthenticated, Unavailable, WorldlineError
from worldline.runtime.rpc_peer import OnClosed, OnMessage, Peer
from worldline.runtime.run_dir import make_run_dir
from worldline.transport.unix import PATH_BYTES_MAX, check_same_user

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 1.0

T = TypeVar("T")

log = logging.getLogger(__name__)


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
            check_same_user(writer.get_extra_info("socket"))
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
        check_same_user(streams[1].get_extra_info("socket"))
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


def _claim(path: Path) -> None:
    """Makes `path` free for a new socket, unless a living process listens there."""
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise BadValue(f"{path} is too long for a socket: at most {PATH_BYTES_MAX} bytes")
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
