"""Waiting on a listening socket for the one peer that holds the key.

Invariant: peers without the key cost a bounded number of sockets for a bounded time, and never end the waiting.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from worldline.errors import LinkCut, TimedOut, WorldlineError
from worldline.transport.protocol import ArenaBytes
from worldline.transport.tls import AnySocket

UNPROVED_MAX = 16
"""Connections that have not proved the key. One more turns away the oldest, so a crowd can't keep the source out."""
PROOF_TIME_S = 2.0
BACKLOG = 16

L = TypeVar("L")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A peer that proved the key, and the arena in which its bytes land."""

    sock: AnySocket
    arena: ArenaBytes
    handed_over: bool

    def drop(self) -> None:
        """For an admitted peer that nobody waits for any more."""
        self.sock.close()
        if self.handed_over:
            self.arena.close()


class SocketListener(Generic[L]):
    """A `Listener` over a bound, listening, non-blocking socket. `admit` has the peer prove the key."""

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        admit: Callable[[socket.socket], Awaitable[Admitted]],
        to_link: Callable[[Admitted], L],
        clean_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._sock = sock
        self._address = address
        self._admit = admit
        self._to_link = to_link
        self._clean_up = clean_up
        self._closed = False
        self._waiting: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self._address

    async def accept(self, deadline_s: float) -> L:
        """See `Listener.accept`. The key is spent by the first success: the listener is closed then."""
        if self._closed:
            raise LinkCut("the listener is closed: its key was used or its attempt is over")
        admitted: asyncio.Future[Admitted] = asyncio.get_running_loop().create_future()
        self._waiting = asyncio.create_task(self._admit_first(admitted))
        try:
            await asyncio.wait((admitted, self._waiting), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            await self._stop_waiting()
        except asyncio.CancelledError:
            await self._stop_waiting()
            if admitted.done():
                admitted.result().drop()
            raise
        if admitted.done():
            await self.close()
            return self._to_link(admitted.result())
        if self._closed:
            raise LinkCut("the listener was closed while it waited")
        raise TimedOut(f"no source with the key came to {self._address} within {deadline_s} s")

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._stop_waiting()
            self._sock.close()
            self._clean_up()

    async def _stop_waiting(self) -> None:
        """Turns away everyone who has not proved the key yet."""
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])

    async def _admit_first(self, admitted: asyncio.Future[Admitted]) -> None:
        loop = asyncio.get_running_loop()
        unproved: deque[asyncio.Task[None]] = deque()
        try:
            while True:
                sock, _ = await loop.sock_accept(self._sock)  # gives a non-blocking one
                unproved.append(asyncio.create_task(self._try(sock, admitted)))
                unproved = deque(task for task in unproved if not task.done())
                if len(unproved) > UNPROVED_MAX:
                    unproved.popleft().cancel()
        finally:
            for task in unproved:
                task.cancel()
            if unproved:
                await asyncio.wait(unproved)

    async def _try(self, sock: socket.socket, admitted: asyncio.Future[Admitted]) -> None:
        try:
            async with asyncio.timeout(PROOF_TIME_S):
                peer = await self._admit(sock)
        except (OSError, TimeoutError, WorldlineError) as error:
            _log.warning("turned a peer away at %s: %s", self._address, str(error) or type(error).__name__)
            sock.close()
            return
        except asyncio.CancelledError:
            sock.close()
            raise
        if admitted.done():
            peer.drop()
        else:
            admitted.set_result(peer)
