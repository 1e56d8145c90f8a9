"""TCP on loopback: the source's bytes are received straight into the target's arena, no copy between.

Peers prove a key and are otherwise not trusted at all; nothing is encrypted, so no address but loopback is taken.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator, Sequence

from worldline.errors import BadValue, LinkCut, Malformed, TimedOut
from worldline.schema.layout import Extent
from worldline.transport.handshake import admit_source, check_key, prove_to_target
from worldline.transport.protocol import ArenaBytes, Link, Listener
from worldline.transport.rendezvous import BACKLOG, Admitted, SocketListener
from worldline.transport.stream import StreamLink, check_landing
from worldline.wire.records import Chunk, Record, encode

LOOPBACK = "127.0.0.1"
SOCKET_BUFFER_BYTES = 512 * 1024
"""Larger ones only cost caches on loopback: 64 MiB doubled the CPU time."""
USER_TIMEOUT_S = 30.0
"""Sent bytes that the peer's system has not taken for so long mean that the link is cut."""

_ADDRESS = re.compile(r"([^:]+):([0-9]{1,5})\Z")


class ChunkCarrier:
    """Each extent is one CHUNK record with the bytes behind it."""

    def __init__(self, arena: ArenaBytes, *, is_target: bool) -> None:
        self._arena = arena
        self.is_target = is_target

    def outgoing(self, extents: Sequence[Extent]) -> Iterator[tuple[bytes, memoryview | None]]:
        for extent in extents:
            yield encode(Chunk(extent)), self._arena.bytes_at(extent)

    def landing(self, record: Record, receive_into: Callable[[memoryview], None]) -> Sequence[Extent]:
        if not (self.is_target and isinstance(record, Chunk)):
            raise Malformed(f"{type(record).__name__} is not a record for this side of a tcp link")
        check_landing(record.extent, self._arena.capacity)
        with self._arena.bytes_at(record.extent) as view:
            receive_into(view)
        return [record.extent]

    def crossed(self, extents: Sequence[Extent]) -> int:
        return sum(extent.nbytes for extent in extents)


class TcpTransport:
    """See `Transport`."""

    name = "tcp"
    hands_over = False

    async def listen(self, key: bytes, arena: ArenaBytes | None) -> Listener:
        check_key(key)
        if arena is None:
            raise ValueError("tcp needs an arena to receive into")
        own = arena
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            _tune(sock)
            sock.setblocking(False)
            sock.bind((LOOPBACK, 0))
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise

        async def admit(peer: socket.socket) -> Admitted:
            await admit_source(peer, key)
            return Admitted(peer, own, handed_over=False)

        def to_link(peer: Admitted) -> Link:
            _tune(peer.sock)
            return StreamLink(peer.sock, peer.arena, ChunkCarrier(peer.arena, is_target=True), "tcp-target")

        return SocketListener(sock, f"{LOOPBACK}:{sock.getsockname()[1]}", admit, to_link)

    async def connect(self, address: str, key: bytes, arena: ArenaBytes, deadline_s: float) -> Link:
        check_key(key)
        endpoint = _parse_address(address)
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            _tune(sock)
            sock.setblocking(False)
            async with asyncio.timeout(deadline_s):
                await asyncio.get_running_loop().sock_connect(sock, endpoint)
                await prove_to_target(sock, key)
        except BaseException as error:
            sock.close()
            if isinstance(error, TimeoutError):
                raise TimedOut(f"no link to {address} within {deadline_s} s") from error
            if isinstance(error, OSError):
                raise LinkCut(f"no link to {address}: {error.strerror or error}") from error
            raise
        return StreamLink(sock, arena, ChunkCarrier(arena, is_target=False), "tcp-source")


def _parse_address(address: str) -> tuple[str, int]:
    match = _ADDRESS.match(address)
    if match is None or match[1] != LOOPBACK or not 0 < int(match[2]) < 65_536:
        raise BadValue(f"a tcp link goes to {LOOPBACK}:PORT only, not to {address[:80]!r}", address=address[:80])
    return match[1], int(match[2])


def _tune(sock: socket.socket) -> None:
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(USER_TIMEOUT_S * 1000))
