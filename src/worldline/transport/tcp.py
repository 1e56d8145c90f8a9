"""TCP: the source's bytes are received straight into the target's arena, no copy between.

Peers prove a key and are otherwise not trusted at all. Nothing is encrypted, so no address but loopback is taken; with
certificates (`tls`) everything is, and any address may be. An emulated fabric's network counts as loopback where that
is asked for and proven (`private_network`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from copy import copy
from dataclasses import replace
from ipaddress import ip_address
from typing import Final, NamedTuple

from worldline.errors import BadValue, LinkCut, TimedOut, Unauthenticated
from worldline.transport.coding import AUTO, check_choice
from worldline.transport.handshake import admit_source, check_key, prove_to_target, stream_key
from worldline.transport.private_network import check_private
from worldline.transport.protocol import ArenaBytes, Link, Listener
from worldline.transport.rendezvous import BACKLOG, Admitted, SocketListener
from worldline.transport.spread_source import ANSWER_S, ChunkSource, Spreading
from worldline.transport.spread_target import ChunkTarget, Door
from worldline.transport.stream import StreamLink
from worldline.transport.tls import AnySocket, TlsIdentity
from worldline.verify.budget import Budget

LOOPBACK = "127.0.0.1"
SOCKET_BUFFER_BYTES: Final = 512 * 1024
"""To begin with: larger ones cost caches where the peer is near (64 MiB doubled the CPU time); see `Channel.widen`."""
NEAR_RTT_US: Final = 1000
USER_TIMEOUT_S: Final = 30.0
"""Sent bytes that the peer's system has not taken for so long mean that the link is cut."""
CONGESTION: Final = b"cubic"
"""The system's default may be bbr, which paces by itself."""
_INFO_BYTES: Final = 104
_INFO_RTT: Final = 68
"""Of `struct tcp_info`: the smoothed round trip, in microseconds."""

_ADDRESS = re.compile(r"(?:([a-z0-9-]{1,63})@)?([0-9]{1,3}(?:\.[0-9]{1,3}){3}):([0-9]{1,5})\Z")


class Place(NamedTuple):
    """Where a target listens; `host` is empty without TLS."""

    host: str
    ip: str
    port: int


class TcpTransport:
    """See `Transport`. With an identity all links are TLS, and hosts without one of the same authority are no peers."""

    name = "tcp"
    hands_over = False

    def __init__(
        self,
        identity: TlsIdentity | None = None,
        address: str = LOOPBACK,
        *,
        fabric_private: bool = False,
        spreading: Spreading = Spreading(),  # noqa: B008 - a frozen value
        codec: str = AUTO,
    ) -> None:
        """`address` is where targets listen. Raises `Unauthenticated` for one that others reach without an identity.

        `codec`, of links that this side connects: one of `coding.CHOICES`.
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
        self._spreading = spreading
        self._codec = check_choice(codec)
        self._budget: Budget | None = None
        self._identity = identity
        self._address = address
        self._private = fabric_private and not found.is_loopback

    def coding(self, codec: str) -> TcpTransport:
        """This transport, with that codec for what it connects."""
        other = copy(self)
        other._codec = check_choice(codec)
        return other

    def within(self, budget: Budget) -> TcpTransport:
        """This transport, its links' processor time out of that budget."""
        other = copy(self)
        other._budget = budget
        return other

    async def listen(self, key: bytes, arena: ArenaBytes | None) -> Listener:
        check_key(key)
        if arena is None:
            raise ValueError("tcp needs an arena to receive into")
        own = arena

        def to_link(peer: Admitted) -> Link:
            carrier = ChunkTarget(own, lambda index: self._open_door(stream_key(key, index), own), self._budget)
            return StreamLink(_fitted(peer.sock), own, carrier, "tcp-target", self._budget)

        sock, place = self._bind()
        return SocketListener(sock, place, lambda peer: self._admit(peer, key, own), to_link)

    async def connect(self, address: str, key: bytes, arena: ArenaBytes, deadline_s: float) -> Link:
        check_key(key)
        host, ip, port = self._parse(address)

        async def dial(port: int, index: int) -> AnySocket:
            return await self._dial(Place(host, ip, port), stream_key(key, index), ANSWER_S)

        sock = await self._dial(Place(host, ip, port), key, deadline_s)
        spreading = replace(self._spreading, near=_is_near(sock))
        carrier = ChunkSource(arena, dial, spreading, self._codec, self._budget)
        return StreamLink(sock, arena, carrier, "tcp-source", self._budget)

    async def _dial(self, place: Place, key: bytes, deadline_s: float) -> AnySocket:
        raw = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock: AnySocket = raw
        try:
            _tune(raw)
            raw.setblocking(False)
            async with asyncio.timeout(deadline_s):
                await asyncio.get_running_loop().sock_connect(raw, (place.ip, place.port))
                if self._identity is not None:
                    sock = await self._identity.connect(raw, place.host)
                await prove_to_target(sock, key)
        except BaseException as error:
            sock.close()
            if isinstance(error, TimeoutError):
                raise TimedOut(f"no link to {place.ip}:{place.port} within {deadline_s} s") from error
            if isinstance(error, OSError):
                raise LinkCut(f"no link to {place.ip}:{place.port}: {error.strerror or error}") from error
            raise
        return _fitted(sock)

    async def _admit(self, peer: socket.socket, key: bytes, arena: ArenaBytes) -> Admitted:
        proved = peer if self._identity is None else await self._identity.accept(peer)
        try:
            await admit_source(proved, key)
        except BaseException:
            proved.close()
            raise
        return Admitted(proved, arena, handed_over=False)

    async def _open_door(self, key: bytes, arena: ArenaBytes) -> Door:
        sock, place = self._bind()
        port = int(sock.getsockname()[1])
        return _StreamDoor(port, SocketListener(sock, place, lambda peer: self._admit(peer, key, arena), _socket_of))

    def _bind(self) -> tuple[socket.socket, str]:
        """A listening socket, and its place as sources are told it."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            _tune(sock)
            sock.setblocking(False)
            sock.bind((self._address, 0))
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
        place = f"{self._address}:{sock.getsockname()[1]}"
        return sock, place if self._identity is None else f"{self._identity.host}@{place}"

    def _parse(self, address: str) -> Place:
        """Raises `BadValue`."""
        match = _ADDRESS.match(address)
        secure = self._identity is not None
        wrong = match is None or not 0 < int(match[3]) < 65_536 or (match[1] is not None) != secure
        if wrong or (match is not None and not (secure or self._private) and match[2] != LOOPBACK):
            form = "HOST@ADDRESS:PORT, with TLS," if secure else f"{LOOPBACK}:PORT"
            raise BadValue(f"a tcp link goes to {form} only, not to {address[:80]!r}", address=address[:80])
        assert match is not None
        return Place(match[1] or "", match[2], int(match[3]))


class _StreamDoor:
    """See `Door`."""

    def __init__(self, port: int, listener: SocketListener[AnySocket]) -> None:
        self.port = port
        self._listener = listener

    async def accept(self, deadline_s: float) -> AnySocket:
        return await self._listener.accept(deadline_s)

    async def close(self) -> None:
        await self._listener.close()


def _socket_of(peer: Admitted) -> AnySocket:
    return _fitted(peer.sock)


def _tune(sock: socket.socket) -> None:
    """Before the handshake; a listening socket's go over to those it accepts."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(USER_TIMEOUT_S * 1000))
    with contextlib.suppress(OSError):  # a system without it keeps its own
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION)


def _fitted(sock: AnySocket) -> AnySocket:
    """A connected socket with small buffers where the peer is near; on a long path the system's tuning knows better."""
    if _is_near(sock):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    return sock


def _is_near(sock: AnySocket) -> bool:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    return int(struct.unpack_from("=I", info, _INFO_RTT)[0]) < NEAR_RTT_US
