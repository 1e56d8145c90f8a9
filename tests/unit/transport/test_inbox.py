import asyncio
import threading

import pytest

from worldline.errors import LinkCut, Malformed, TimedOut
from worldline.schema.layout import Extent
from worldline.transport.deadline import Deadline
from worldline.transport.inbox import Inbox
from worldline.transport.protocol import Landed, RecordIn


def record(nbytes):
    return RecordIn(bytes(nbytes))


async def test_events_come_out_in_order_and_the_end_after_them():
    inbox = Inbox()
    inbox.put(record(1))
    inbox.put(Landed(Extent(0, 1)))
    inbox.end(Malformed("broken"))
    inbox.end(LinkCut("later"))
    assert await inbox.get() == record(1)
    assert await inbox.get() == Landed(Extent(0, 1))
    for _ in range(2):
        with pytest.raises(Malformed, match="broken"):
            await inbox.get()


@pytest.mark.parametrize(("events_max", "bytes_max"), [(2, 1000), (1000, 20)])
async def test_a_full_inbox_holds_the_filling_thread_back(events_max, bytes_max):
    inbox = Inbox(bytes_max, events_max)
    inbox.put(record(10))
    inbox.put(record(10))
    with pytest.raises(TimedOut):
        inbox.put(record(10), Deadline(0.01))
    thread = threading.Thread(target=inbox.put, args=(record(9),))
    thread.start()
    assert [await inbox.get() for _ in range(3)] == [record(10), record(10), record(9)]
    thread.join()


async def test_one_event_larger_than_the_room_still_passes():
    inbox = Inbox(bytes_max=5)
    inbox.put(record(10))
    assert await inbox.get() == record(10)


async def test_the_end_frees_a_thread_that_waits_for_room():
    inbox = Inbox(events_max=1)
    inbox.put(record(1))
    errors = []

    def fill():
        try:
            inbox.put(record(1))
        except LinkCut as error:
            errors.append(error)

    thread = threading.Thread(target=fill)
    thread.start()
    inbox.end(LinkCut("closed"))
    thread.join()
    assert len(errors) == 1


async def test_a_small_landing_wakes_the_reader_once_it_is_announced():
    inbox = Inbox()
    getting = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    inbox.put(Landed(Extent(0, 10)))
    inbox.announce()
    assert await getting == Landed(Extent(0, 10))


async def test_a_reader_that_was_cancelled_loses_no_event():
    inbox = Inbox()
    getting = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    getting.cancel()
    inbox.put(record(3))
    with pytest.raises(asyncio.CancelledError):
        await getting
    assert await inbox.get() == record(3)
