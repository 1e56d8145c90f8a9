"""Moves between hosts of sessions whose windows roll: rows that moved are told, new ones sent, and a wrong declaration
costs time and nothing else.

Each move opens the same way: 1 the whole state is sent while the session stands  2 the session makes one block  3 the
next cut, one block after the last whole round, freezes.
"""

import asyncio

import pytest

from scenarios.duet import hall, spec
from scenarios.test_host_moves import assert_like_its_twin, open_pair
from worldline.errors import LinkCut
from worldline.transport.protocol import RecordIn
from worldline.wire.framing import RecordType

TINY = "worldline.testing.tiny:TinyWorld"
ODD = "scenarios.odd_worlds"
WIDTH = 1 << 14


class Gate:
    """A transport whose source hears only when it is told to of what the target has read of the first round.

    No gate at the end of a post: what is posted may lie in the arena alone, and lands as the next block rewrote it.
    """

    def __init__(self, inner, cut_at=None):
        self.cut_at = cut_at
        self.name, self.hands_over, self._inner = inner.name, inner.hands_over, inner
        self.read, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def connect(self, *where, **how):
        return GatedLink(await self._inner.connect(*where, **how), self)


class GatedLink:
    def __init__(self, inner, gate):
        self._inner, self._gate = inner, gate

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def send(self, record):
        if record[5] == self._gate.cut_at:
            await self._inner.fence()
        await self._inner.send(record)

    async def receive(self):
        event = await self._inner.receive()
        if isinstance(event, RecordIn) and event.data[5] == RecordType.DIGESTS:
            self._gate.read.set()
            await self._gate.go_on.wait()
        return event


@pytest.fixture
async def stage(tmp_path):
    async with hall(tmp_path, "a", "b") as stage:
        yield stage


async def move_one_block_behind(stage, transport="tcp", cut_at=None):
    gate = stage.transports["a"][transport] = Gate(stage.transports["a"][transport], cut_at)
    move = asyncio.create_task(stage.move("walk", "b", transport))
    await gate.read.wait()
    await stage.play("walk", 1)
    gate.go_on.set()
    return await move


async def bytes_moved(stage, world):
    await open_pair(stage, spec(world, width=WIDTH))
    receipt, _ = await move_one_block_behind(stage)
    assert receipt.source_root == receipt.target_root
    await assert_like_its_twin(stage)
    return receipt.bytes_moved - receipt.state_bytes


async def test_rows_that_moved_are_not_sent_again(stage):
    """Two of seven rows of each cache are new, and one was kept. Other state is new every block and goes too."""
    cache_bytes = 2 * 7 * 2 * WIDTH * 4
    assert await bytes_moved(stage, TINY) < 0.6 * cache_bytes


async def test_rows_of_an_engine_that_declares_nothing_are_found_by_what_they_hold(stage):
    width = 2 * WIDTH  # a segment of a cache is over a MiB
    await open_pair(stage, spec(f"{ODD}:UndeclaredWorld", width=width))
    receipt, _ = await move_one_block_behind(stage)
    cache_bytes = 2 * 7 * 2 * width * 4
    assert receipt.bytes_moved - receipt.state_bytes < 0.6 * cache_bytes
    await assert_like_its_twin(stage)


async def test_rows_cross_any_link_that_carries_records(stage):
    await open_pair(stage, spec(TINY, width=WIDTH))
    receipt, _ = await move_one_block_behind(stage, "memory")
    assert receipt.source_root == receipt.target_root
    assert receipt.bytes_moved < 1.5 * receipt.state_bytes
    await assert_like_its_twin(stage)


async def test_rows_that_did_not_move_as_declared_are_sent_whole_and_never_installed(stage):
    """1 rows are copied from the wrong place  2 the target says so  3 their leaves are sent whole  4 the seal."""
    await open_pair(stage, spec(f"{ODD}:LyingWorld", width=WIDTH))
    receipt, _ = await move_one_block_behind(stage)
    assert receipt.rounds == 3
    assert receipt.source_root == receipt.target_root
    await assert_like_its_twin(stage)


async def test_a_shared_arena_takes_no_rows(stage):
    await open_pair(stage, spec(TINY, width=WIDTH))
    receipt, _ = await move_one_block_behind(stage, "shm")
    assert receipt.bytes_moved == 0
    await assert_like_its_twin(stage)


async def test_an_attempt_that_ends_between_its_copies_leaves_the_retry_a_clean_start(stage):
    """1 the target has copied rows  2 the link breaks before the new ones  3 the next attempt starts from nothing."""
    await open_pair(stage, spec(TINY, width=WIDTH))
    used_bytes = (await stage.facts("b")).memory_used_bytes
    with pytest.raises(LinkCut):
        await move_one_block_behind(stage, cut_at=RecordType.ROWS)
    assert (await stage.facts("b")).memory_used_bytes == used_bytes
    receipt, _ = await stage.move("walk", "b", "memory")
    assert receipt.source_root == receipt.target_root
    await assert_like_its_twin(stage)
