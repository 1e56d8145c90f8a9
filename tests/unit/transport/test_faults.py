"""Each planted fault does what it says, and never harms the source."""

import asyncio

import numpy as np
import pytest

from worldline.errors import BadValue, LinkCut, TimedOut
from worldline.schema.fault import FaultName, parse_fault
from worldline.schema.layout import Extent
from worldline.testing.faults import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    FaultyTransport,
    Flip,
    LateWriter,
    Lie,
    Reorder,
    Stall,
    Truncate,
)
from worldline.testing.transports import (
    CAPACITY_BYTES,
    MIB,
    STUCK_S,
    WAIT_S,
    a_record,
    content,
    ending,
    landed,
    linked,
    received,
    tiles,
)
from worldline.transport.memory import MemoryTransport
from worldline.transport.named_faults import PLANTED, plant
from worldline.transport.registry import SHIPPED, open_transport


@pytest.fixture(params=sorted(set(SHIPPED) - {"nixl"}))
def transport(request):
    return open_transport(request.param)


async def moved(pair, extents):
    """Posts and waits for all landings; the number of target bytes that differ from the source's."""
    before = content(pair.source.arena)
    await asyncio.gather(pair.source.post(extents, WAIT_S), landed(pair.target, sum(e.nbytes for e in extents)))
    assert content(pair.source.arena) == before, "the source is unharmed"
    return differences(pair)


def differences(pair):
    source, target = (np.frombuffer(content(link.arena), np.uint8) for link in (pair.source, pair.target))
    return np.flatnonzero(source != target).tolist()


async def test_without_a_fault_nothing_differs(transport):
    async with linked(transport) as pair:
        assert await moved(pair, tiles(MIB)) == []


async def test_flip_changes_one_byte_and_sending_again_does_not_heal_it(transport):
    async with linked(FaultyTransport(transport, Flip, seed=3)) as pair:
        wrong = await moved(pair, tiles(MIB))
        assert len(wrong) == 1
        assert wrong[0] < MIB, "the victim is in the first landing"
        assert await moved(pair, tiles(CAPACITY_BYTES // 2)) == wrong


async def test_equal_seeds_flip_the_same_byte(transport):
    victims = []
    for seed in (3, 3, 4):
        async with linked(FaultyTransport(transport, Flip, seed=seed)) as pair:
            victims.append(await moved(pair, tiles(MIB)))
    assert victims[0] == victims[1] != victims[2]


async def test_lie_reports_landed_and_withholds_the_last_64_bytes(transport):
    async with linked(FaultyTransport(transport, Lie, seed=0)) as pair:
        extents = tiles(MIB)
        ends = [end - 64 + n for end in range(MIB, CAPACITY_BYTES + 1, MIB) for n in range(64)]
        assert await moved(pair, extents) == ends
        assert await moved(pair, extents) == ends


async def test_a_lie_about_less_than_64_bytes_withholds_them_all(transport):
    async with linked(FaultyTransport(transport, Lie, seed=0)) as pair:
        await moved(pair, tiles(MIB))
        assert set(range(100, 110)) <= set(await moved(pair, [Extent(100, 10)]))


async def test_cut_ends_the_link_in_the_middle_of_the_first_post(transport):
    async with linked(FaultyTransport(transport, Cut, seed=0)) as pair:
        with pytest.raises(LinkCut):
            await pair.source.post(tiles(MIB), WAIT_S)
        assert await landed(pair.target, CAPACITY_BYTES // 2) == tiles(MIB)[:2]
        assert isinstance(await ending(pair.target), LinkCut)
        with pytest.raises(LinkCut):
            await pair.source.send(a_record(2))


async def test_cut_splits_a_single_extent(transport):
    async with linked(FaultyTransport(transport, Cut, seed=0)) as pair:
        with pytest.raises(LinkCut):
            await pair.source.post([Extent(0, MIB)], WAIT_S)
        assert await landed(pair.target, MIB // 2) == [Extent(0, MIB // 2)]


async def test_stall_delivers_nothing_until_the_deadline(transport):
    async with linked(FaultyTransport(transport, Stall, seed=0)) as pair:
        before = content(pair.target.arena)
        with pytest.raises(TimedOut):
            await pair.source.post(tiles(MIB), STUCK_S / 10)
        assert isinstance(await ending(pair.target), LinkCut)
        assert content(pair.target.arena) == before


async def test_drop_leaves_one_extent_out_and_reports_the_same_bytes(transport):
    async with linked(FaultyTransport(transport, Drop, seed=5)) as pair:
        crossed = await pair.source.post(tiles(MIB), WAIT_S)
        assert crossed == (0 if transport.hands_over else CAPACITY_BYTES)
        got = await landed(pair.target, 3 * MIB)
        assert len(set(tiles(MIB)) - set(got)) == 1
        assert await pair.source.post(tiles(MIB), WAIT_S) == crossed
        assert await landed(pair.target, CAPACITY_BYTES) == tiles(MIB)


async def test_duplicate_delivers_records_and_extents_twice(transport):
    async with linked(FaultyTransport(transport, Duplicate, seed=0)) as pair:
        await pair.source.send(a_record(2))
        await pair.source.post([Extent(0, 10)], WAIT_S)
        assert [await received(pair.target) for _ in range(2)] == [a_record(2)] * 2
        assert await landed(pair.target, 20) == [Extent(0, 10)] * 2


async def test_reorder_lands_the_same_extents(transport):
    async with linked(FaultyTransport(transport, Reorder, seed=1)) as pair:
        extents = tiles(64 * 1024)
        got, _ = await asyncio.gather(landed(pair.target, CAPACITY_BYTES), pair.source.post(extents, WAIT_S))
        assert got != extents
        assert sorted(got, key=lambda extent: extent.offset) == extents
        assert differences(pair) == []


@pytest.mark.parametrize("name", ["memory", "tcp"])
async def test_a_late_writer_writes_after_its_failure_until_it_is_fenced(name):
    """1. Something lands. 2. The link reports a failure. 3. The writer goes on. 4. A fence. 5. Memory is another's."""
    async with linked(FaultyTransport(open_transport(name), LateWriter, seed=0)) as pair:
        await pair.source.post([Extent(0, MIB)], WAIT_S)
        assert isinstance(await ending(pair.target), LinkCut)
        async with asyncio.timeout(WAIT_S):
            await asyncio.to_thread(pair.target.wrote.wait)
        await pair.target.fence()
        pair.target.arena.bytes_at(Extent(0, MIB))[:] = bytes(MIB)
        await asyncio.sleep(0.02)
        assert content(pair.target.arena, Extent(0, MIB)) == bytes(MIB)


async def test_a_handed_over_arena_has_no_late_writer():
    with pytest.raises(BadValue):
        async with linked(FaultyTransport(open_transport("shm"), LateWriter, seed=0)):
            pass


async def test_truncate_leaves_the_end_of_each_post_out_and_reports_the_same_bytes(transport):
    async with linked(FaultyTransport(transport, Truncate, seed=5)) as pair:
        crossed = await pair.source.post(tiles(MIB), WAIT_S)
        assert crossed == (0 if transport.hands_over else CAPACITY_BYTES)
        got = await landed(pair.target, CAPACITY_BYTES - MIB)
        assert got == tiles(MIB)[:-1]


async def test_delay_changes_nothing_but_time(transport):
    async with linked(FaultyTransport(transport, Delay, seed=5)) as pair:
        assert await moved(pair, tiles(MIB)) == []


def test_a_fleets_faults_are_known_by_name():
    assert set(PLANTED) < set(FaultName)
    assert plant(MemoryTransport(), parse_fault("flip")).name == "memory"
    assert plant(open_transport("shm"), parse_fault("flip,3")).hands_over
    with pytest.raises(BadValue, match="flip, lie, cut"):
        plant(MemoryTransport(), parse_fault("late-write"))
