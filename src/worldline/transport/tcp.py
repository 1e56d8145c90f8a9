"""TCP: the source's bytes are received straight into the target's arena, no copy between.

Peers prove a key and are otherwise not trusted at all. Nothing is encrypted, so no address but loopback is taken; with
certificates (`tls`) everything is, and any address may be. An emulated fabric's network counts as loopback where that
is asked for and proven (`private_network`).
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address

from worldline.errors import BadValue, LinkCut, Malformed, TimedOut, Unauthenticated
from worldline.schema.layout import Extent
from worldline.transport.handshake import admit_source, check_key, prove_to_target
from worldline.transport.private_network import check_private
from worldline.transport.protocol import ArenaBytes, Link, Listener
from worldline.transport.rendezvous import BACKLOG, Admitted, SocketListener
from worldline.transport.stream import StreamLink, check_landing
from worldline.transport.tls import TlsIdentity, TlsSocket
from worldline.wire.records import Chunk, Record, encode

LOOPBACK = "127.0.0.1"
SOCKET_BUFFER_BYTES = 512 * 1024
"""Larger ones only cost caches on loopback: 64 MiB doubled the CPU time."""
USER_TIMEOUT_S = 30.0
"""Sent bytes that the peer's system has not taken for so long mean that the link is cut."""

_ADDRESS = re.compile(r"(?:([a-z0-9-]{1,63})@)?([0-9]{1,3}(?:\.[0-9]{1,3}){3}):([0-9]{1,5})\Z")


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
    """See `Transport`. With an identity all links are TLS, and hosts without one of the same authority are no peers."""

    name = "tcp"
    hands_over = False

    def __init__(
        self, identity: TlsIdentity | None = None, address: str = LOOPBACK, *, fabric_private: bool = False
    ) -> None:
        """`address` is where targets listen. Raises `Unauthenticated` for one that others reach without an identity.

        With `fabric_private` an emulated fabric's is taken without one, if `check_private` finds that it is that.
        """
        try:
            found = ip_address(address)
        except ValueError as error:
            raise BadValue(f"a host listens on an address, not on {address[:80]!r}") from error
        if found.version != 4 or found.is_unspecified:
            raise BadValue(f"a host listens on one IPv4 address that its peers know, not on {address}")
        if identity is None and not found.is_loopback:
            if not fabric_private:
                raise Unauthenticated(
                    f"others can reach {address}: without certificates a host listens on loopback alone"
                )
            check_private(address)
        self._identity = identity
        self._address = address
        self._private = fabric_private and not found.is_loopback

    async def listen(self, key: bytes, arena: ArenaBytes | None) -> Listener:
        check_key(key)
        if arena is None:
            raise ValueError("tcp needs an arena to receive into")
        own = arena
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            _tune(sock)
            sock.setblocking(False)
            sock.bind((self._address, 0))
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise

        async def admit(peer: socket.socket) -> Admitted:
            proved = peer if self._identity is None else await self._identity.accept(peer)
            try:
                await admit_source(proved, key)
            except BaseException:
                proved.close()
                raise
            return Admitted(proved, own, handed_over=False)

        def to_link(peer: Admitted) -> Link:
            _tune(peer.sock)
            return StreamLink(peer.sock, peer.arena, ChunkCarrier(peer.arena, is_target=True), "tcp-target")

        place = f"{self._address}:{sock.getsockname()[1]}"
        return SocketListener(
            sock, place if self._identity is None else f"{self._identity.host}@{place}", admit, to_link
        )

    async def connect(self, address: str, key: bytes, arena: ArenaBytes, deadline_s: float) -> Link:
        check_key(key)
        host, *endpoint = self._parse(address)
        raw = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock: socket.socket | TlsSocket = raw
        try:
            _tune(raw)
            raw.setblocking(False)
            async with asyncio.timeout(deadline_s):
                await asyncio.get_running_loop().sock_connect(raw, tuple(endpoint))
                if self._identity is not None:
                    sock = await self._identity.connect(raw, host)
                await prove_to_target(sock, key)
        except BaseException as error:
            sock.close()
            if isinstance(error, TimeoutError):
                raise TimedOut(f"no link to {address} within {deadline_s} s") from error
            if isinstance(error, OSError):
                raise LinkCut(f"no link to {address}: {error.strerror or error}") from error
            raise
        return StreamLink(sock, arena, ChunkCarrier(arena, is_target=False), "tcp-source")

    def _parse(self, address: str) -> tuple[str, str, int]:
        """Host (empty without TLS), address and port. Raises `BadValue`."""
        match = _ADDRESS.match(address)
        secure = self._identity is not None
        wrong = match is None or not 0 < int(match[3]) < 65_536 or (match[1] is not None) != secure
        if wrong or (match is not None and not (secure or self._private) and match[2] != LOOPBACK):
            form = "HOST@ADDRESS:PORT, with TLS," if secure else f"{LOOPBACK}:PORT"
            raise BadValue(f"a tcp link goes to {form} only, not to {address[:80]!r}", address=address[:80])
        assert match is not None
        return match[1] or "", match[2], int(match[3])


def _tune(sock: socket.socket | TlsSocket) -> None:
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(USER_TIMEOUT_S * 1000))
