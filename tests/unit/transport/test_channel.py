import socket
import threading

import numpy as np
import pytest

from worldline.errors import LinkCut, TimedOut
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.transport.channel import LENT_BYTES_MAX, LENT_BYTES_MIN, Channel
from worldline.transport.deadline import Deadline

CAPACITY_BYTES = 16 << 20
WAIT_S = 30.0


@pytest.fixture
def arena():
    with Arena.create(CAPACITY_BYTES, "channel") as made:
        octets = np.frombuffer(made.bytes_at(Extent(0, CAPACITY_BYTES)), np.uint8)
        octets[: CAPACITY_BYTES // 2] = np.random.default_rng(1).integers(0, 256, CAPACITY_BYTES // 2, np.uint8)
        yield made


@pytest.fixture
def ends():
    """A connected pair over loopback: the sending side, then the other one."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as one:
        other, _ = listener.accept()
        with other:
            other.settimeout(WAIT_S)
            yield one, other


def sent(channel, pieces, other, nbytes):
    """What comes out at the other end of so many bytes."""
    sending = threading.Thread(target=channel.send, args=(iter(pieces), Deadline(WAIT_S)))
    sending.start()
    got = bytearray()
    while len(got) < nbytes:
        got += other.recv(1 << 20)
    sending.join()
    return bytes(got)


@pytest.mark.parametrize(
    "sizes",
    [
        [LENT_BYTES_MIN - 1],
        [LENT_BYTES_MIN],
        [LENT_BYTES_MAX + 1],
        [7, LENT_BYTES_MIN, 1, LENT_BYTES_MAX, 4096, LENT_BYTES_MIN + 5, 3],
    ],
)
@pytest.mark.parametrize("start", [0, 4095, CAPACITY_BYTES // 2 - 9])
def test_octets_and_stretches_of_an_arena_arrive_in_order_lent_or_copied(arena, ends, sizes, start):
    pieces, expected = [], b""
    for number, nbytes in enumerate(sizes):
        extent = Extent(start, min(nbytes, CAPACITY_BYTES - start))
        pieces += [b"head %d" % number, extent]
        expected += b"head %d" % number + bytes(arena.bytes_at(extent))
    one, other = ends
    channel = Channel(one, arena)
    assert sent(channel, pieces, other, len(expected)) == expected
    channel.close()


def test_an_owner_that_closes_the_arena_changes_nothing_of_what_its_number_meant(arena, ends):
    one, other = ends
    channel = Channel(one, arena)
    extent = Extent(0, LENT_BYTES_MIN)
    expected = bytes(arena.bytes_at(extent))
    arena.close()
    with Arena.create(CAPACITY_BYTES, "next"):  # takes the number that is free now
        assert sent(channel, [extent], other, extent.nbytes) == expected
    channel.close()


def test_a_peer_that_takes_nothing_of_what_is_lent_is_given_up_at_the_deadline(arena, ends):
    channel = Channel(ends[0], arena)
    channel.widen()
    with pytest.raises(TimedOut):
        channel.send(iter([Extent(0, CAPACITY_BYTES), Extent(0, CAPACITY_BYTES)]), Deadline(0.5))
    channel.close()


def test_whoever_lends_when_the_channel_ends_wakes(arena, ends):
    channel = Channel(ends[0], arena)
    failed = []

    def send():
        with pytest.raises(LinkCut) as caught:
            channel.send(iter([Extent(0, CAPACITY_BYTES)] * 4), Deadline(WAIT_S))
        failed.append(caught.value)

    sending = threading.Thread(target=send)
    sending.start()
    other = ends[1]
    assert other.recv(1)
    channel.end()
    sending.join(WAIT_S)
    assert failed and not sending.is_alive()
    channel.close()
