"""Extents are lent to the system, and everything that held of copied ones holds of them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from worldline.errors import LinkCut, TimedOut
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.testing.transports import WAIT_S, a_record, content, linked
from worldline.transport.channel import LENT_BYTES_MAX, LENT_BYTES_MIN, LENT_STEP_BYTES, POLL_S, Channel, lent_at_once
from worldline.transport.coding import PROBE_BYTES, WARM_WIDE_BYTES
from worldline.transport.deadline import Deadline
from worldline.transport.spread_source import ChunkSource, Spreading
from worldline.transport.tcp import SOCKET_BUFFER_BYTES, TcpTransport

MIB = 1024 * 1024
CAPACITY_BYTES = 32 * MIB
DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(CAPACITY_BYTES, "lent") as made:
        room = np.frombuffer(made.bytes_at(Extent(0, CAPACITY_BYTES)), np.uint8)
        room[:] = np.resize(np.random.default_rng(0).integers(0, 256, MIB + 13, np.uint8), CAPACITY_BYTES)
        yield made


@contextlib.contextmanager
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    for sock in (here, there):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    with here, there:
        yield here, there


def read_all(sock: socket.socket, into: bytearray, pause_s: float = 0.0, at_once: int = MIB) -> threading.Thread:
    def read() -> None:
        with contextlib.suppress(OSError):  # ended in the middle
            while got := sock.recv(at_once):
                into.extend(got)
                time.sleep(pause_s)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_small_and_large_pieces_leave_in_order_around_the_size_that_is_lent(arena: Arena) -> None:
    sizes = [LENT_BYTES_MIN + by for by in (-1, 0, 1)] + [1, 5 * MIB + 3, 4095]
    extents = [Extent(offset, size) for size in sizes for offset in (0, 1, 4095, CAPACITY_BYTES - size)]
    pieces = [piece for number, extent in enumerate(extents) for piece in (bytes([number]) * 16, b"", extent)]
    expected = b"".join(content(arena, piece) if isinstance(piece, Extent) else piece for piece in pieces)
    came = bytearray()
    with ends() as (here, there):
        reading = read_all(there, came)
        channel = Channel(here, arena)
        channel.send(iter(pieces), Deadline(WAIT_S))
        channel.end()
        reading.join()
        channel.close()
    assert came == expected


def test_a_hole_is_sent_as_zeros_and_costs_no_memory() -> None:
    came = bytearray()
    with ends() as (here, there), Arena.create(8 * MIB, "hole") as arena:
        arena.bytes_at(Extent(3 * MIB + 5, 3))[:] = b"abc"
        reading = read_all(there, came)
        channel = Channel(here, arena)
        channel.send(iter([Extent(0, 8 * MIB)]), Deadline(WAIT_S))
        channel.end()
        reading.join()
        channel.close()
        assert arena.resident_bytes() < 4 * MIB
    assert came == bytes(3 * MIB + 5) + b"abc" + bytes(5 * MIB - 8)


@pytest.mark.parametrize("wide", [False, True])
def test_a_peer_that_takes_a_little_at_a_time_does_not_outlast_the_deadline(arena: Arena, wide: bool) -> None:
    with ends() as (here, there):
        channel = Channel(here, arena)
        if wide:
            channel.widen()
        reading = read_all(there, bytearray(), pause_s=0.05, at_once=50_000)
        with pytest.raises(TimedOut):
            channel.send(iter([Extent(0, CAPACITY_BYTES)]), Deadline(1.0))
        channel.end()
        with contextlib.suppress(OSError):  # it is over already
            there.shutdown(socket.SHUT_RDWR)
        reading.join()
        channel.close()


def test_a_call_lends_no_more_than_can_be_waited_for_before_the_deadline() -> None:
    """A peer that takes a little now and then keeps the system in each step for just under `POLL_S`."""
    assert lent_at_once(5 * POLL_S) == 5 * LENT_STEP_BYTES
    assert lent_at_once(0.0) == lent_at_once(-1.0) == LENT_STEP_BYTES
    assert lent_at_once(3600.0) == LENT_BYTES_MAX


def test_who_sends_to_a_peer_that_never_reads_is_woken_by_the_end(arena: Arena) -> None:
    with ends() as (here, there):
        channel, raised = Channel(here, arena), []

        def send() -> None:
            try:
                channel.send(iter([Extent(0, CAPACITY_BYTES)]), Deadline(WAIT_S))
            except LinkCut as error:
                raised.append(error)

        sending = threading.Thread(target=send)
        sending.start()
        time.sleep(0.1)
        channel.end()
        sending.join(WAIT_S)
        assert not sending.is_alive()
        assert raised
        channel.close()
        assert there.fileno() >= 0


def test_a_channel_leaves_no_descriptor_behind(arena: Arena) -> None:
    before = len(list(DESCRIPTORS.iterdir()))
    with ends() as (here, there):
        came = bytearray()
        reading = read_all(there, came)
        channel = Channel(here, arena)
        channel.send(iter([Extent(0, MIB)]), Deadline(WAIT_S))
        channel.end()
        reading.join()
        channel.close()
    assert len(list(DESCRIPTORS.iterdir())) == before


class ClosedMeanwhile:
    """1. The channel reads the arena's number. 2. The arena is closed. 3. Another file is opened under that number."""

    def __init__(self, arena: Arena, other: int) -> None:
        self._arena, self._other = arena, other
        self.capacity = arena.capacity
        self.bytes_at = arena.bytes_at

    @property
    def fd(self) -> int:
        fd = self._arena.fd
        self._arena.close()
        os.dup2(self._other, fd)
        return fd

    def close(self) -> None:
        self._arena.close()


def test_another_file_that_came_under_the_number_of_a_closed_arena_is_never_sent() -> None:
    with ends() as (here, there), Arena.create(MIB, "other") as other:
        other.bytes_at(Extent(0, MIB))[:] = b"x" * MIB
        arena = Arena.create(MIB, "closed")
        number = arena.fd
        with pytest.raises(ValueError, match="closed"):
            Channel(here, ClosedMeanwhile(arena, other.fd))
        os.close(number)
        assert there.fileno() >= 0


def test_an_owner_that_closes_the_arena_changes_nothing_of_what_is_sent(arena: Arena) -> None:
    came, expected = bytearray(), content(arena, Extent(0, MIB))
    with ends() as (here, there):
        reading = read_all(there, came)
        channel = Channel(here, arena)
        arena.close()
        with Arena.create(MIB, "next"):  # takes the number that is free now
            channel.send(iter([Extent(0, MIB)]), Deadline(WAIT_S))
        channel.end()
        reading.join()
        channel.close()
    assert came == expected


def test_what_a_wide_buffer_takes_is_less_than_what_a_link_is_warmed_with_before_it_is_measured_again(
    arena: Arena,
) -> None:
    """Else the measure is of the buffer, and a link that became slow is never found out."""
    with ends() as (here, there):
        channel = Channel(here, arena)
        channel.widen()
        taken = 0
        with pytest.raises(TimedOut):
            for start, end in pairwise(range(0, CAPACITY_BYTES, MIB)):
                channel.send(iter([Extent(start, end - start)]), Deadline(0.5))
                taken += end - start
        channel.end()
        channel.close()
        assert there.fileno() >= 0
    assert taken < WARM_WIDE_BYTES + PROBE_BYTES // 2


@pytest.mark.parametrize("near", [False, True])
async def test_only_a_near_link_is_widened(arena: Arena, near: bool) -> None:
    """A long one's buffer grows by itself, and would be cut to the system's limit for good."""
    source = ChunkSource(arena, dial=lambda port, index: None, spreading=Spreading(near=near))
    assert not source.fast
    source._coder.link_bytes_per_s = 3e9
    assert source.fast is near
    await source.close()


async def test_after_a_post_that_failed_half_way_nothing_follows_on_the_link() -> None:
    """Small extents are copied, and their arena is closed."""
    async with linked(TcpTransport(), capacity=4 * MIB) as pair:
        pair.source.arena.close()
        with pytest.raises(ValueError, match="closed"):
            await pair.source.post([Extent(0, MIB), Extent(2 * MIB, 9)], WAIT_S)
        with pytest.raises(LinkCut):
            await pair.source.send(a_record(2))
