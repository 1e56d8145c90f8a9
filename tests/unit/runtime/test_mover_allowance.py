"""A source without a grant sends nothing, and with one no more than its rate times its length."""

from __future__ import annotations

import asyncio

import pytest

from worldline.clock import ManualClock
from worldline.errors import TimedOut
from worldline.runtime.mover_allowance import Allowance
from worldline.schema.layout import Extent

RATE = 1000.0


class Wire:
    """A link that takes everything at once, and notes when."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.posted: list[tuple[float, int]] = []
        self.rates: list[float | None] = []

    def pace(self, rate_bytes_per_s: float | None) -> None:
        self.rates.append(rate_bytes_per_s)

    async def post(self, extents: tuple[Extent, ...], deadline_s: float) -> int:
        self.posted += [(self.clock.monotonic_s(), extent.nbytes) for extent in extents]
        return sum(extent.nbytes for extent in extents)

    async def send(self, record: bytes) -> None:
        self.posted.append((self.clock.monotonic_s(), len(record)))


@pytest.fixture
def clock():
    return ManualClock(100.0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def extents(*sizes: int) -> list[Extent]:
    offsets = [sum(sizes[:at]) for at in range(len(sizes))]
    return [Extent(offset, size) for offset, size in zip(offsets, sizes, strict=True)]


async def test_nothing_is_sent_without_a_grant_and_all_of_it_under_grants_that_have_room(clock):
    allowance, wire = Allowance(clock), Wire(clock)
    posting = asyncio.create_task(allowance.post(wire, extents(400, 400, 400), 60.0))
    await settle()
    assert wire.posted == []
    allowance.grant(RATE, 1.0)
    await settle()
    assert wire.posted == [(100.0, 400), (100.0, 400)]  # the third has no room in one second
    assert wire.rates == [RATE, RATE]
    clock.advance(0.5)
    allowance.grant(RATE, 1.0)
    assert await posting == 1200
    assert wire.posted[2] == (100.5, 400)


async def test_a_link_that_takes_bytes_at_once_gets_no_more_than_the_rate_for_it(clock):
    allowance, wire = Allowance(clock), Wire(clock)
    posting = asyncio.create_task(allowance.post(wire, extents(*[100] * 100), 60.0))
    for _ in range(10):
        allowance.grant(RATE, 1.0)
        await settle()
        clock.advance(0.5)
    assert sum(size for _, size in wire.posted) <= RATE * 5.5
    posting.cancel()
    await asyncio.wait([posting])


async def test_idle_is_the_time_in_which_all_that_was_posted_was_through_and_nothing_more_might_be_sent(clock):
    allowance, wire = Allowance(clock), Wire(clock)
    posting = asyncio.create_task(allowance.post(wire, extents(500, 500, 500), 60.0))
    await settle()
    clock.advance(2.0)
    allowance.grant(RATE, 1.1)  # after two seconds of waiting there is room for two extents
    await settle()
    assert allowance.idle_s == 2.0
    clock.advance(4.0)  # one of these four seconds the link was sending
    allowance.grant(RATE, 1.0)
    await posting
    assert allowance.idle_s == 5.0


async def test_the_rate_is_of_the_time_in_which_something_was_sent(clock):
    class Slow(Wire):
        async def post(self, extents, deadline_s):
            clock.advance(2.0)
            return await super().post(extents, deadline_s)

    allowance, wire = Allowance(clock), Slow(clock)
    assert allowance.bytes_per_s is None
    posting = asyncio.create_task(allowance.post(wire, extents(400), 60.0))
    await settle()
    clock.advance(30.0)
    allowance.grant(RATE, 1.0)
    assert await posting == 400
    assert allowance.bytes_per_s == 200.0


async def test_a_grant_ends_by_itself(clock):
    allowance, wire = Allowance(clock), Wire(clock)
    allowance.grant(RATE, 1.0)
    clock.advance(1.0)
    posting = asyncio.create_task(allowance.send(wire, bytes(10), 60.0))
    await settle()
    assert wire.posted == []
    allowance.grant(RATE, 1.0)
    await posting
    assert wire.posted == [(101.0, 10)]


async def test_no_grant_before_the_deadline_is_a_missed_deadline(clock):
    with pytest.raises(TimedOut, match="no grant"):
        await Allowance(clock).post(Wire(clock), extents(1), 0.01)
