"""What a fleet that knows its ports promises of lanes and memory, over real hosts of this process."""

import asyncio

import pytest

from hall import CONTRACT, WAIT_S, Hall
from worldline.errors import DeadlineMissed, NoCapacity
from worldline.runtime import messages as wire
from worldline.runtime.messages import Move
from worldline.schema.contract import Contract
from worldline.testing.memory_store import MemoryStore

WIDTH = 1 << 13
ARENA_BYTES = 64 * 1024 + 320 * WIDTH
"""What a host reserves for a session of that width."""


@pytest.fixture
async def hall(tmp_path):
    hall = Hall(tmp_path / "run", MemoryStore())
    yield hall
    await hall.close()


async def until_it_is_booked(hall, session):
    """A move is in the journal after it was booked."""
    async with asyncio.timeout(WAIT_S):
        while (name := (await hall.describe(session)).move) is None or await hall.store.move(name) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_move_that_its_targets_lane_could_not_carry_in_time_names_the_lane(hall):
    """The ports are a thousand times as fast as any lane."""
    await hall.start_host("a")
    await hall.start_host("b")
    await hall.start_controller(port_bytes_per_s=1e13)
    row = await hall.open("a", contract=Contract(pause_bound_s=0.001, completion_deadline_s=0.001))
    with pytest.raises(DeadlineMissed, match="lane of host b is too slow") as refused:
        await hall.move(row.id, "b")
    assert refused.value.facts["slowest"] == "lane"


async def test_memory_that_is_promised_is_not_promised_again_and_who_waits_is_told_how_long(hall):
    """1. Host c is full. 2. One session of it is on its way to a. 3. Another wants to c: it may when that has left."""
    for name, rooms in (("a", 2), ("b", 1), ("c", 2)):
        await hall.start_host(name, memory_bytes=rooms * ARENA_BYTES)
    await hall.start_controller(port_bytes_per_s=2 * ARENA_BYTES)
    leaving, _ = [await hall.open("c", width=WIDTH) for _ in range(2)]
    coming = await hall.open("b", width=WIDTH)
    moving = asyncio.create_task(hall.move(leaving.id, "a"))
    await until_it_is_booked(hall, leaving.id)
    with pytest.raises(NoCapacity, match="not promised") as refused:
        await hall.move(coming.id, "c")
    assert refused.value.facts["bottleneck"] == "memory"
    assert 0 < refused.value.facts["earliest_in_s"] < WAIT_S
    assert (await moving).outcome == "done"
    assert (await hall.move(coming.id, "c")).outcome == "done"


async def test_a_controller_that_begins_anew_gives_up_a_move_that_its_hosts_do_not_have(hall):
    """1. A move is in the journal. 2. The controller ends before any host was asked. 3. The next finds no attempt."""
    for name in ("a", "b"):
        await hall.start_host(name)
    await hall.start_controller(port_bytes_per_s=1e8)
    row = await hall.open("a", contract=CONTRACT)
    done = await hall.move(row.id, "b")
    await hall.stop_controller()
    begun = Move("m-again", row.id, done.mode, "tcp", "b", "a", "begun", None, None, None, [], done.started_at_s, None)
    await hall.store.journal(begun)
    await hall.start_controller(port_bytes_per_s=1e8)
    async with asyncio.timeout(WAIT_S):
        while (found := await hall.ask(wire.GetMove("m-again"), Move)).outcome is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert found.outcome == "refused"
    assert (await hall.describe(row.id)).host == "b"
    assert (await hall.move(row.id, "a")).outcome == "done"
