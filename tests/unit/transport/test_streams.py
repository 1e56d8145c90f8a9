"""A tcp link's other streams: those that don't come, that come without a key, twice, or with nonsense."""

import asyncio
import contextlib
import socket

import pytest

from worldline.errors import LinkCut, Malformed, Unauthenticated, Unavailable
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
    joined,
    landed,
    linked,
    received,
    resources,
)
from worldline.transport.handshake import prove_to_target, receive_exactly, stream_key
from worldline.transport.spread_source import Spreading
from worldline.transport.tcp import TcpTransport
from worldline.verify.budget import CORES_MAX, Budget
from worldline.wire.framing import HEADER_BYTES, Numberer, split_record
from worldline.wire.records import decode_record, encode
from worldline.wire.spread import Doors, Piece, Spread, Streams

PIECE = 64 * 1024
MANY = Spreading(streams=2, open_bytes=1, extent_bytes_min=PIECE, piece_bytes=PIECE)


class Wire:
    """A source that follows the protocol by hand: the link's own stream, and as many others as it likes."""

    def __init__(self, sock, key, address):
        self.sock, self.key, self.address = sock, key, address
        self.numberer = Numberer()

    @classmethod
    async def connect(cls, address, key, port=None, index=None):
        host, _, own_port = address.partition(":")
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (host, port or int(own_port)))
            await prove_to_target(sock, key if index is None else stream_key(key, index))
        except BaseException:
            sock.close()
            raise
        return cls(sock, key, address)

    async def send(self, record, payload=b""):
        octets = encode(record)
        stamped = self.numberer.stamp(octets[:HEADER_BYTES]) + octets[HEADER_BYTES:] + payload
        await asyncio.get_running_loop().sock_sendall(self.sock, stamped)

    async def doors(self, count):
        """The ports that the target opens."""
        await self.send(Streams(count))
        while True:
            header = await receive_exactly(self.sock, HEADER_BYTES)
            body = await receive_exactly(self.sock, int.from_bytes(header[8:12], "little"))
            unnumbered = header[:20] + bytes(8) + header[28:]
            record = decode_record(split_record(unnumbered + body).record)
            if isinstance(record, Doors):
                return record.ports

    async def stream(self, port, index):
        return await Wire.connect(self.address, self.key, port, index)

    def close(self):
        self.sock.close()


@contextlib.asynccontextmanager
async def by_hand(capacity=4 * MIB):
    """A target's link and arena, and a source by hand."""
    key = a_key()
    with Arena.create(capacity, "target") as own:
        fill(own, 2)
        listener = await TcpTransport().listen(key, own)
        accepting = asyncio.create_task(listener.accept(WAIT_S))
        wire = await Wire.connect(listener.address, key)
        link = await accepting
        try:
            yield link, wire
        finally:
            wire.close()
            await link.fence()


async def test_pieces_land_in_their_places_whatever_stream_brings_them():
    async with by_hand() as (link, wire):
        first, second = await wire.doors(2)
        left, right = await wire.stream(first, 0), await wire.stream(second, 1)
        await right.send(Piece(0, 1, 100), b"b" * 100)
        await wire.send(Spread(Extent(8, PIECE + 100), 0, PIECE))
        await left.send(Piece(0, 0, PIECE), b"a" * PIECE)
        assert joined(await landed(link, PIECE + 100)) == [Extent(8, PIECE + 100)]
        assert content(link.arena, Extent(8, PIECE + 100)) == b"a" * PIECE + b"b" * 100
        left.close()
        right.close()


async def test_a_stream_with_another_key_is_turned_away_and_the_right_one_still_comes():
    async with by_hand() as (link, wire):
        (port,) = await wire.doors(1)
        with pytest.raises(Unauthenticated):
            await Wire.connect(wire.address, a_key(), port, 0)
        with pytest.raises(Unauthenticated):
            await Wire.connect(wire.address, wire.key, port, 1)
        stream = await wire.stream(port, 0)
        await wire.send(Spread(Extent(0, 100), 0, PIECE))
        await stream.send(Piece(0, 0, 100), b"c" * 100)
        assert await landed(link, 100) == [Extent(0, 100)]
        stream.close()


async def test_a_door_lets_one_stream_in():
    async with by_hand() as (link, wire):
        (port,) = await wire.doors(1)
        stream = await wire.stream(port, 0)
        with pytest.raises((LinkCut, OSError)):
            await wire.stream(port, 0)
        await wire.send(Spread(Extent(0, 100), 0, PIECE))
        await stream.send(Piece(0, 0, 100), b"c" * 100)
        assert await landed(link, 100) == [Extent(0, 100)]
        stream.close()


async def test_the_link_goes_on_while_a_stream_does_not_come():
    async with by_hand() as (link, wire):
        await wire.doors(2)
        octets = a_record(9)
        stamped = wire.numberer.stamp(octets[:HEADER_BYTES]) + octets[HEADER_BYTES:]
        await asyncio.get_running_loop().sock_sendall(wire.sock, stamped)
        assert await received(link) == octets


async def test_streams_that_are_gone_cut_a_spread_that_lacks_a_piece():
    async with by_hand() as (link, wire):
        (port,) = await wire.doors(1)
        stream = await wire.stream(port, 0)
        await wire.send(Spread(Extent(0, 2 * PIECE), 0, PIECE))
        await stream.send(Piece(0, 0, PIECE), b"c" * PIECE)
        stream.close()
        assert isinstance(await ending(link), LinkCut)


NONSENSE = {
    "a piece twice": [Piece(0, 0, PIECE), Piece(0, 0, PIECE)],
    "a piece of another length": [Piece(0, 0, 100)],
    "a piece that is none": [Piece(0, 2, PIECE)],
    "a record that is no piece": [Streams(1)],
}


@pytest.mark.parametrize("records", NONSENSE.values(), ids=NONSENSE.keys())
async def test_a_stream_that_breaks_the_format_ends_the_link_and_writes_nowhere_else(records):
    async with by_hand() as (link, wire):
        (port,) = await wire.doors(1)
        stream = await wire.stream(port, 0)
        before = content(link.arena, Extent(2 * PIECE, MIB))
        await wire.send(Spread(Extent(0, 2 * PIECE), 0, PIECE))
        for record in records:
            with contextlib.suppress(OSError):
                await stream.send(record, b"x" * getattr(record, "nbytes", 0))
        assert isinstance(await ending(link), Malformed)
        assert content(link.arena, Extent(2 * PIECE, MIB)) == before
        stream.close()


async def test_a_piece_waits_for_its_spread_and_writes_nothing_before():
    async with by_hand() as (link, wire):
        (port,) = await wire.doors(1)
        stream = await wire.stream(port, 0)
        before = content(link.arena)
        await stream.send(Piece(1, 0, 100), b"x" * 100)
        await asyncio.sleep(0.1)
        assert content(link.arena) == before
        stream.close()


@pytest.mark.parametrize(
    "record", [Spread(Extent(4 * MIB - 10, 100), 0, PIECE), Spread(Extent(0, 100), 1, PIECE)], ids=["beyond", "number"]
)
async def test_a_spread_that_no_target_may_take_is_refused(record):
    async with by_hand() as (link, wire):
        await wire.doors(1)
        await wire.send(record)
        assert isinstance(await ending(link), Malformed)


async def test_streams_are_asked_for_once():
    async with by_hand() as (link, wire):
        await wire.doors(1)
        await wire.send(Streams(1))
        assert isinstance(await ending(link), Malformed)


async def test_a_target_that_opens_no_door_gets_chunks():
    """Its answer names ports at which nobody listens."""
    async with linked(TcpTransport(spreading=MANY)) as pair:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        pair.target._carrier._begin_to_admit = lambda count: asyncio.ensure_future(
            pair.target._tell(encode(Doors((port,) * count)))
        )
        posting = asyncio.create_task(pair.source.post([Extent(0, MIB)], WAIT_S))
        assert joined(await landed(pair.target, MIB)) == [Extent(0, MIB)]
        await posting
        assert content(pair.target.arena, Extent(0, MIB)) == content(pair.source.arena, Extent(0, MIB))


async def test_a_link_with_streams_leaves_nothing_behind_when_it_is_fenced_in_the_middle():
    before = resources()
    async with linked(TcpTransport(spreading=MANY)) as pair:
        posting = asyncio.create_task(pair.source.post([Extent(0, 4 * MIB)] * 50, WAIT_S))
        await landed(pair.target, MIB)
        await pair.target.fence()
        held = content(pair.target.arena)
        with pytest.raises(Unavailable):
            await posting
        assert content(pair.target.arena) == held
    after = resources()
    assert after.descriptors <= before.descriptors
    assert after.threads <= before.threads


class Counted(Budget):
    """What was spent in all."""

    total_s = 0.0

    def spend(self, cpu_s):
        self.total_s += cpu_s
        super().spend(cpu_s)


@pytest.mark.parametrize("streams", [0, 2])
async def test_each_end_of_a_link_spends_its_own_hosts_budget(streams):
    here, there = (Counted(CORES_MAX, lambda: False) for _ in range(2))
    spreading = Spreading(streams=streams, open_bytes=1, link_bytes_per_s_min=0.0)
    receiving, sending = TcpTransport().within(there), TcpTransport(spreading=spreading).within(here)
    key, nbytes = a_key(), 32 * MIB
    with Arena.create(nbytes, "source") as source, Arena.create(nbytes, "target") as target:
        listener = await receiving.listen(key, target)
        there_end, here_end = await asyncio.gather(
            listener.accept(WAIT_S), sending.connect(listener.address, key, source, WAIT_S)
        )
        await asyncio.gather(here_end.post([Extent(0, nbytes)], WAIT_S), landed(there_end, nbytes))
        await here_end.fence()
        await there_end.fence()
        await listener.close()
    assert min(here.total_s, there.total_s) > 0.001
