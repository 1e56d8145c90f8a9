"""What someone without the key, or with it and bad intent, can do to a link: nothing."""

import array
import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from worldline.errors import BadValue, LinkCut, Malformed, TimedOut, Unauthenticated
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.testing.transports import (
    MIB,
    WAIT_S,
    a_key,
    a_record,
    content,
    ending,
    fill,
    landed,
    linked,
    received,
    resources,
    tiles,
)
from worldline.transport.handshake import prove_to_target
from worldline.transport.rendezvous import UNPROVED_MAX
from worldline.transport.shm import ShmTransport
from worldline.transport.tcp import TcpTransport
from worldline.wire.framing import Header, RecordType, build_header
from worldline.wire.handshake import Role, build_greeting, prove
from worldline.wire.records import Chunk, Shared, encode


@pytest.fixture(params=[TcpTransport, ShmTransport], ids=["tcp", "shm"])
def transport(request):
    return request.param()


async def raw(address):
    """A connected socket that follows no protocol."""
    loop = asyncio.get_running_loop()
    family = socket.AF_UNIX if address.startswith("/") else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    host, _, port = address.partition(":")
    try:
        if family == socket.AF_UNIX:
            sock.connect(address)
        else:
            await loop.sock_connect(sock, (host, int(port)))
    except OSError:
        sock.close()
        raise
    return sock


@contextlib.asynccontextmanager
async def waiting(transport):
    """A listener that waits, the key, and the task that gets the link."""
    key = a_key()
    with Arena.create(MIB, "target") as own:
        listener = await transport.listen(key, None if transport.hands_over else own)
        accepting = asyncio.create_task(listener.accept(WAIT_S))
        await asyncio.sleep(0)
        yield listener, key, accepting
        await listener.close()
        with contextlib.suppress(LinkCut):
            link = await accepting
            await link.fence()
            link.arena.close()


async def connects(transport, listener, key, accepting):
    with Arena.create(MIB, "source") as arena:
        source = await transport.connect(listener.address, key, arena, WAIT_S)
        target = await accepting
        await source.send(a_record(5))
        assert await received(target) == a_record(5)
        await source.fence()


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n\r\n", b"WLDK\x02\0\0\0" + bytes(32), os.urandom(500)])
async def test_peers_that_speak_another_language_do_not_end_the_waiting(transport, words):
    async with waiting(transport) as (listener, key, accepting):
        peers = [await raw(listener.address) for _ in range(5)]
        for peer in peers:
            await asyncio.get_running_loop().sock_sendall(peer, words)
        await connects(transport, listener, key, accepting)
        for peer in peers:
            peer.close()


async def test_a_crowd_of_silent_peers_does_not_keep_the_source_out(transport):
    async with waiting(transport) as (listener, key, accepting):
        peers = []
        for _ in range(UNPROVED_MAX):
            peers.append(await raw(listener.address))
            await asyncio.sleep(0)  # the listener gets a turn, as it has where peers are other processes
        await connects(transport, listener, key, accepting)
        for peer in peers:
            peer.close()


async def test_more_unproved_peers_than_allowed_turn_away_the_oldest(transport):
    async with waiting(transport) as (listener, _, _):
        peers = []
        for _ in range(UNPROVED_MAX + 1):
            peers.append(await raw(listener.address))
            await asyncio.sleep(0.001)
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(peers[0], 1) == b""
        for peer in peers:
            peer.close()


async def test_a_proof_can_not_be_reflected(transport):
    """A peer without the key sends the target's own proof back to it."""
    async with waiting(transport) as (listener, key, accepting):
        loop = asyncio.get_running_loop()
        peer = await raw(listener.address)
        await loop.sock_sendall(peer, build_greeting(bytes(32)))
        challenge = b""
        while len(challenge) < 64:
            challenge += await loop.sock_recv(peer, 64)
        await loop.sock_sendall(peer, challenge[32:])
        assert await loop.sock_recv(peer, 1) == b""
        peer.close()
        await connects(transport, listener, key, accepting)


async def test_the_key_itself_is_never_sent(transport):
    async with waiting(transport) as (listener, key, _):
        loop = asyncio.get_running_loop()
        peer = await raw(listener.address)
        await loop.sock_sendall(peer, build_greeting(bytes(32)))
        challenge = await loop.sock_recv(peer, 64)
        assert key not in challenge
        assert challenge[32:] == prove(key, Role.TARGET, bytes(32), challenge[:32])
        peer.close()


async def test_a_source_gives_up_on_a_listener_without_the_key(transport):
    """Somebody else took the address over and answers every greeting with noise."""
    with Arena.create(MIB, "source") as arena:
        async with waiting(transport) as (listener, _, _):
            with pytest.raises(Unauthenticated):
                await transport.connect(listener.address, a_key(), arena, WAIT_S)


async def test_a_source_gives_up_on_a_listener_that_says_nothing(transport):
    """The listener exists, but nobody accepts."""
    with Arena.create(MIB, "source") as arena, Arena.create(MIB, "target") as own:
        listener = await transport.listen(a_key(), None if transport.hands_over else own)
        with pytest.raises(TimedOut):
            await transport.connect(listener.address, a_key(), arena, 0.1)
        await listener.close()


async def test_a_stranger_does_not_disturb_a_running_transfer(transport):
    async with waiting(transport) as (listener, key, accepting):
        with Arena.create(MIB, "source") as arena:
            fill(arena, 1)
            source = await transport.connect(listener.address, key, arena, WAIT_S)
            target = await accepting
            with pytest.raises((ConnectionError, FileNotFoundError)):
                await raw(listener.address)
            posting = asyncio.create_task(source.post(tiles(4096, MIB), WAIT_S))
            await landed(target, MIB)
            await posting
            assert content(target.arena) == content(arena)
            await source.fence()


async def proved(listener, key, accepting):
    """A peer that holds the key and then breaks the rules, and the target's link."""
    peer = await raw(listener.address)
    await prove_to_target(peer, key)
    return peer, await accepting


def frame(record, number=0):
    return record[:20] + number.to_bytes(8, "little") + record[28:]


@pytest.mark.parametrize(
    "words",
    [
        b"x" * 64,
        frame(encode(Shared((Extent(0, 1),)))),
        frame(encode(Chunk(Extent(MIB - 1, 2)))) + b"xx",
        frame(encode(Chunk(Extent(2**62, 2)))) + b"xx",
        frame(a_record(2), number=1),
        build_header(Header(RecordType.CHUNK, True, 16, 2)) + bytes(16) + b"xx",
    ],
)
async def test_a_source_that_breaks_the_format_writes_nothing(words):
    transport = TcpTransport()
    async with waiting(transport) as (listener, key, accepting):
        peer, target = await proved(listener, key, accepting)
        before = content(target.arena)
        await asyncio.get_running_loop().sock_sendall(peer, words)
        assert isinstance(await ending(target), Malformed)
        assert content(target.arena) == before
        await target.send(a_record(2))  # it can still say why
        peer.close()


async def test_a_target_can_not_write_to_the_source(transport):
    async with linked(transport) as pair:
        before = content(pair.source.arena)
        record = encode(Shared((Extent(0, 1),)))
        with pytest.raises(ValueError, match="posted, not sent"):
            await pair.target.send(record)
        pair.target._channel._sock.sendall(frame(record))
        assert isinstance(await ending(pair.source), Malformed)
        assert content(pair.source.arena) == before


@pytest.mark.parametrize(
    "address", ["10.0.0.1:80", "0.0.0.0:80", "localhost:80", "127.0.0.1", "127.0.0.1:0", "[::1]:80"]
)
async def test_tcp_goes_to_loopback_only(address):
    with Arena.create(MIB, "source") as arena, pytest.raises(BadValue, match=r"127\.0\.0\.1"):
        await TcpTransport().connect(address, a_key(), arena, WAIT_S)


async def test_tcp_listens_on_loopback_only():
    with Arena.create(MIB, "target") as own:
        listener = await TcpTransport().listen(a_key(), own)
        assert listener.address.startswith("127.0.0.1:")
        assert listener._sock.getsockname()[0] == "127.0.0.1"
        await listener.close()


async def test_a_key_of_another_length_is_the_callers_mistake(transport):
    with Arena.create(MIB, "arena") as arena:
        for key in (b"", bytes(31), bytes(33)):
            with pytest.raises(ValueError, match="32 bytes"):
                await transport.listen(key, None if transport.hands_over else arena)
            with pytest.raises(ValueError, match="32 bytes"):
                await transport.connect("127.0.0.1:1", key, arena, WAIT_S)


# ---- what is handed over


async def test_the_socket_of_a_hand_over_is_private_and_gone_after_use():
    transport = ShmTransport()
    async with waiting(transport) as (listener, key, accepting):
        directory = Path(listener.address).parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        await connects(transport, listener, key, accepting)
        assert not directory.exists()


def a_plain_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(MIB))
    return os.open(path, os.O_RDWR)


def an_unsealed_memfd(_):
    descriptor = os.memfd_create("unsealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, MIB)
    return descriptor


def a_pipe(_):
    reading, writing = os.pipe()
    os.close(writing)
    return reading


@pytest.mark.parametrize("make", [a_plain_file, an_unsealed_memfd, a_pipe])
async def test_only_a_sealed_arena_is_taken_over(make, tmp_path):
    """An arena that its owner could cut would let the owner kill the reader."""
    await hand_over(make(tmp_path), MIB)


@pytest.mark.parametrize("capacity", [0, 4096, MIB + 4096, 2**60])
async def test_an_arena_of_another_size_than_named_is_not_taken_over(capacity):
    with Arena.create(MIB, "source") as arena:
        await hand_over(os.dup(arena.fd), capacity)


async def test_more_than_one_descriptor_is_not_kept():
    before = resources().descriptors
    with Arena.create(MIB, "source") as arena:
        await hand_over(os.dup(arena.fd), 2**60, extra=[arena.fd] * 10)
    assert resources().descriptors <= before


async def hand_over(descriptor, capacity, extra=()):
    """Hands over what must not be taken; the target turns the peer away and waits on for the real one."""
    transport = ShmTransport()
    async with waiting(transport) as (listener, key, accepting):
        peer = await raw(listener.address)
        await prove_to_target(peer, key)
        data = b"WLDA" + bytes(4) + capacity.to_bytes(8, "little")
        descriptors = array.array("i", [descriptor, *extra])
        peer.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        os.close(descriptor)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
        peer.close()
        await connects(transport, listener, key, accepting)
