"""One machine, no copy: the target maps the source's own arena, read-only, and is told which extents to digest.

The memfd travels over a Unix socket in a private directory after the key proof, and only between processes of one user.
A sealed memfd can't be cut, so no source can make the target fault; a read-only mapping can't harm the source.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Sequence

from worldline.errors import LinkCut, Malformed, TimedOut
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.transport.deadline import Deadline
from worldline.transport.handshake import admit_source, check_key, prove_to_target, receive_exactly
from worldline.transport.protocol import ArenaBytes, Link, Listener
from worldline.transport.rendezvous import Admitted, SocketListener
from worldline.transport.stream import Carrier, Records, StreamLink, check_landing
from worldline.transport.unix import check_path, check_same_user, connect_to, private_listener
from worldline.wire.framing import SHARED_EXTENTS_MAX
from worldline.wire.records import Record, Shared, encode

MAPPED = b"\x01"

_HAND_OVER = struct.Struct("<4sIQ")
_HAND_OVER_MAGIC = b"WLDA"


class SharedCarrier(Carrier):
    """Extents are named, in one record for many; their bytes stay where they are."""

    def __init__(self, arena: ArenaBytes, *, is_target: bool) -> None:
        self._arena = arena
        self.is_target = is_target

    def outgoing(self, extents: Sequence[Extent], deadline: Deadline) -> Records:
        for first in range(0, len(extents), SHARED_EXTENTS_MAX):
            yield encode(Shared(tuple(extents[first : first + SHARED_EXTENTS_MAX]))), None

    def landing(self, record: Record, receive_into: Callable[[memoryview], None]) -> Sequence[Extent]:
        if not (self.is_target and isinstance(record, Shared)):
            raise Malformed(f"{type(record).__name__} is not a record for this side of a shm link")
        for extent in record.extents:
            check_landing(extent, self._arena.capacity)
        return record.extents

    def crossed(self, extents: Sequence[Extent]) -> int:
        return 0


class ShmTransport:
    """See `Transport`."""

    name = "shm"
    hands_over = True

    async def listen(self, key: bytes, arena: ArenaBytes | None) -> Listener:
        check_key(key)
        if (arena is None) is not self.hands_over:
            raise ValueError(f"{self.name} was given {'no' if arena is None else 'an'} arena to receive into")
        sock, path, clean_up = private_listener()

        async def admit(peer: socket.socket) -> Admitted:
            check_same_user(peer)
            await admit_source(peer, key)
            return Admitted(peer, await _receive_arena(peer), handed_over=True)

        def to_link(peer: Admitted) -> Link:
            return self.target_link(peer, arena)

        return SocketListener(sock, path, admit, to_link, clean_up)

    def target_link(self, peer: Admitted, arena: ArenaBytes | None) -> Link:
        """The link of an admitted source; `arena` is None: its own is the link's."""
        return StreamLink(peer.sock, peer.arena, SharedCarrier(peer.arena, is_target=True), "shm-target")

    async def connect(self, address: str, key: bytes, arena: ArenaBytes, deadline_s: float) -> Link:
        check_key(key)
        check_path(address)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(deadline_s):
                await connect_to(sock, address)
                check_same_user(sock)
                await prove_to_target(sock, key)
                socket.send_fds(sock, [_HAND_OVER.pack(_HAND_OVER_MAGIC, 0, arena.capacity)], [arena.fd])
                if await receive_exactly(sock, len(MAPPED)) != MAPPED:
                    raise LinkCut("the target did not map the arena")
        except BaseException as error:
            sock.close()
            if isinstance(error, TimeoutError):
                raise TimedOut(f"no link to {address} within {deadline_s} s") from error
            if isinstance(error, OSError):
                raise LinkCut(f"no link to {address}: {error.strerror or error}") from error
            raise
        return StreamLink(sock, arena, SharedCarrier(arena, is_target=False), "shm-source")


async def _receive_arena(sock: socket.socket) -> Arena:
    """Maps what the source hands over, read-only. Raises `Malformed` for all but a sealed arena of the size named."""
    data, descriptors = await _receive_descriptors(sock)
    try:
        if len(data) != _HAND_OVER.size or len(descriptors) != 1:
            raise Malformed("a hand-over is one descriptor and its size")
        magic, reserved, capacity = _HAND_OVER.unpack(data)
        if magic != _HAND_OVER_MAGIC or reserved != 0:
            raise Malformed("a hand-over in another format")
        arena = Arena.attach(descriptors[0], capacity, writable=False)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    try:
        await asyncio.get_running_loop().sock_sendall(sock, MAPPED)
    except BaseException:
        arena.close()
        raise
    return arena


async def _receive_descriptors(sock: socket.socket) -> tuple[bytes, list[int]]:
    """One message with at most one descriptor; the system closes any beyond that."""
    await _until_readable(sock)
    room = socket.CMSG_LEN(array.array("i").itemsize)
    data, ancillary, _, _ = sock.recvmsg(_HAND_OVER.size, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, octets in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(octets[: len(octets) - len(octets) % descriptors.itemsize])
    return data, list(descriptors)


async def _until_readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(sock, readable.set)
    try:
        await readable.wait()
    finally:
        with contextlib.suppress(OSError, ValueError):
            loop.remove_reader(sock)
