"""Lanes digest off the event loop, behind a bounded queue, and know their own rate."""

import asyncio
import os
import threading

import pytest

from unit.verify.kit import Octets
from worldline.clock import ManualClock
from worldline.errors import LaneFull
from worldline.schema.layout import Extent
from worldline.verify.digests import leaf_digests
from worldline.verify.lanes import (
    JOB_BYTES,
    NICENESS,
    RATE_BYTES_PER_S_UNMEASURED,
    STRETCH_BYTES,
    STRETCHES,
    Lanes,
    batches,
)

MIB = 1 << 20


class Gated(Octets):
    """Memory that lets nobody read before the gate opens."""

    def __init__(self, nbytes):
        super().__init__(nbytes)
        self.gate = threading.Event()
        self.readers = set()

    def bytes_at(self, extent):
        self.readers.add(threading.get_ident())
        assert self.gate.wait(30)
        return super().bytes_at(extent)


@pytest.fixture
def lanes():
    made = Lanes(2, jobs_max=2)
    yield made
    made.close()


def jobs(count):
    """Extents that make `count` jobs over `JOB_BYTES` of memory."""
    return [Extent(0, JOB_BYTES)] * count


async def test_lanes_give_every_digest_in_order(lanes):
    memory = Octets(MIB)
    memory.data[:] = bytes(range(256)) * 4096
    extents = [Extent(at, 1000) for at in range(0, MIB - 1000, 1000)]
    assert await lanes.digests(memory, extents) == leaf_digests(memory, extents)
    assert await lanes.digests(memory, []) == []


async def test_many_jobs_pass_a_short_queue(lanes):
    memory = Octets(JOB_BYTES)
    assert len(await lanes.digests(memory, jobs(7))) == 7
    assert lanes.queued_bytes == 0
    assert lanes.digested_bytes == 7 * JOB_BYTES


async def test_the_event_loop_goes_on_while_lanes_are_full_and_no_digest_runs_on_it(lanes):
    memory = Gated(JOB_BYTES)
    task = asyncio.create_task(lanes.digests(memory, jobs(5)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not task.done()
    assert lanes.queued_bytes == 2 * JOB_BYTES
    memory.gate.set()
    assert len(await task) == 5
    assert threading.get_ident() not in memory.readers


async def test_a_full_queue_refuses_at_once_and_takes_all_jobs_or_none(lanes):
    memory = Gated(JOB_BYTES)
    first = lanes.submit(memory, jobs(1))
    with pytest.raises(LaneFull):
        lanes.submit(memory, jobs(2))
    assert lanes.queued_bytes == JOB_BYTES
    second = lanes.submit(memory, jobs(1))
    memory.gate.set()
    assert [len(future.result(30)) for future in first + second] == [1, 1]


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_the_caller_reads_with_the_lanes_whatever_room_they_have(lanes, count):
    memory = Octets(JOB_BYTES)
    memory.data[:1024] = bytes(range(256)) * 4
    extents = [Extent(n, JOB_BYTES - n) for n in range(count)]
    assert lanes.read(memory, extents) == leaf_digests(memory, extents)
    assert lanes.queued_bytes == 0


def test_the_caller_reads_alone_where_the_lanes_are_full(lanes):
    full, memory = Gated(JOB_BYTES), Octets(JOB_BYTES)
    busy = lanes.submit(full, jobs(2))
    assert len(lanes.read(memory, jobs(3))) == 3
    full.gate.set()
    assert [len(future.result(30)) for future in busy] == [1, 1]


async def test_a_cancelled_request_gives_its_room_back(lanes):
    memory = Gated(JOB_BYTES)
    task = asyncio.create_task(lanes.digests(memory, jobs(6)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    memory.gate.set()
    assert len(await lanes.digests(memory, jobs(3))) == 3
    assert lanes.queued_bytes == 0


async def test_two_requests_share_the_queue(lanes):
    memory = Octets(JOB_BYTES)
    found = await asyncio.gather(*(lanes.digests(memory, jobs(4)) for _ in range(3)))
    assert [len(part) for part in found] == [4, 4, 4]


async def test_an_error_in_a_lane_is_the_callers(lanes):
    with pytest.raises(ValueError, match="outside"):
        await lanes.digests(Octets(10), [Extent(0, 11)])
    assert len(await lanes.digests(Octets(10), [Extent(0, 10)])) == 1


class Slow(Octets):
    """Memory of which each read takes `seconds` of a manual clock."""

    def __init__(self, nbytes, clock, seconds):
        super().__init__(nbytes)
        self.clock, self.seconds = clock, seconds

    def bytes_at(self, extent):
        self.clock.advance(self.seconds)
        return super().bytes_at(extent)


async def test_lanes_measure_what_they_take():
    clock = ManualClock()
    lanes = Lanes(1, clock=clock)
    assert lanes.rate_bytes_per_s == RATE_BYTES_PER_S_UNMEASURED
    for _ in range(2):
        await lanes.digests(Slow(4 * MIB, clock, 0.5), [Extent(0, 4 * MIB)])
    assert lanes.busy_s == 1.0
    assert lanes.rate_bytes_per_s == 8 * MIB
    lanes.close()


async def test_the_slowest_of_the_last_stretches_is_what_lanes_are_taken_to_do():
    clock = ManualClock()
    lanes = Lanes(1, clock=clock)
    for seconds in (1.0, 4.0, 1.0):
        await lanes.digests(Slow(STRETCH_BYTES, clock, seconds), [Extent(0, STRETCH_BYTES)])
    assert lanes.rate_bytes_per_s == STRETCH_BYTES / 4.0
    for _ in range(STRETCHES):
        await lanes.digests(Slow(STRETCH_BYTES, clock, 2.0), [Extent(0, STRETCH_BYTES)])
    assert lanes.rate_bytes_per_s == STRETCH_BYTES / 2.0
    lanes.close()


def test_close_waits_for_the_lane_that_reads():
    lanes = Lanes(1)
    memory = Gated(JOB_BYTES)
    running, *waiting = lanes.submit(memory, jobs(3))
    while not memory.readers:
        pass
    closer = threading.Thread(target=lanes.close)
    closer.start()
    assert all(future.cancelled() or not future.done() for future in waiting)
    memory.gate.set()
    closer.join(30)
    assert running.done()
    lanes.close()
    with pytest.raises(RuntimeError):
        lanes.submit(memory, jobs(1))


def test_a_lane_gives_way_to_the_other_threads_of_its_process(lanes):
    class Asked(Octets):
        def bytes_at(self, extent):
            self.niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
            return super().bytes_at(extent)

    memory, before = Asked(MIB), os.getpriority(os.PRIO_PROCESS, 0)
    lanes.submit(memory, [Extent(0, MIB)])[0].result()
    assert memory.niceness == min(before + NICENESS, 19)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_lanes_without_a_thread_or_room_are_a_mistake():
    for arguments in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="lanes need"):
            Lanes(*arguments)


def test_small_leaves_share_a_job_and_none_is_lost():
    extents = [Extent(at, 64 * 1024) for at in range(0, 3 * JOB_BYTES, 64 * 1024)]
    parts = batches(extents)
    assert [extent for part in parts for extent in part] == extents
    assert len(parts) == 3
