"""What a side of an attempt still has to send."""

import asyncio

import pytest

from worldline.errors import LinkCut
from worldline.runtime.mover_outbox import Outbox
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.transport.memory import MemoryLink
from worldline.transport.protocol import Landed, RecordIn
from worldline.wire.records import RoundEnd, encode


@pytest.fixture
async def links():
    with Arena.create(1 << 20, "source") as ours, Arena.create(1 << 20, "target") as theirs:
        source, target = MemoryLink.pair(ours, theirs)
        yield source, target
        await source.fence()
        await target.fence()


async def test_records_and_posts_leave_in_the_order_in_which_they_were_put(links):
    source, target = links
    outbox = Outbox(source, lambda error: None)
    outbox.put_record(encode(RoundEnd(1, 0)))
    outbox.put_post(_post)
    outbox.put_record(encode(RoundEnd(2, 0)))
    got = [await target.receive() for _ in range(3)]
    assert [type(event) for event in got] == [RecordIn, Landed, RecordIn]
    await outbox.close()


async def _post(link):
    await link.post([Extent(0, 4096)], 5.0)


async def test_what_was_put_before_the_close_still_leaves(links):
    source, target = links
    outbox = Outbox(source, lambda error: None)
    for number in range(10):
        outbox.put_record(encode(RoundEnd(number + 1, 0)))
    await outbox.close()
    for number in range(10):
        assert (await target.receive()).data == encode(RoundEnd(number + 1, 0))
    with pytest.raises(LinkCut):
        await target.receive()


async def test_a_failure_is_told_once_and_drops_what_follows(links):
    source, target = links
    told = []
    outbox = Outbox(source, told.append)
    await target.fence()
    for number in range(3):
        outbox.put_record(encode(RoundEnd(number + 1, 0)))
    async with asyncio.timeout(10):
        while not told:  # noqa: ASYNC110 - told by a callback
            await asyncio.sleep(0.005)
    await outbox.close()
    await outbox.close()
    assert [type(error) for error in told] == [LinkCut]


async def test_a_post_under_way_does_not_delay_the_close(links):
    source, _ = links
    outbox = Outbox(source, lambda error: None)
    begun = asyncio.Event()

    async def endless(_):
        begun.set()
        await asyncio.Event().wait()

    outbox.put_post(endless)
    await begun.wait()
    async with asyncio.timeout(1.5):  # less than what a flush may take
        await outbox.close()
