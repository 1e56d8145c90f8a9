"""What every transport must do. Derive a test class from `TransportSuite` and give it a fixture `transport`.

class TestMyTransport(TransportSuite):
    @pytest.fixture
    def transport(self): return MyTransport()

Both sides run in one process and one event loop; what needs a second process is tested elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from worldline.errors import LinkCut, Malformed, TimedOut, Unauthenticated, Unavailable, WorldlineError
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.transport.protocol import KEY_BYTES, ArenaBytes, Landed, Link, RecordIn, Transport
from worldline.wire.framing import HEADER_BYTES, RECORD_BYTES_MAX, Header, RecordType, build_header

MIB = 1024 * 1024
CAPACITY_BYTES = 4 * MIB
WAIT_S = 20.0
"""For what must happen."""
STUCK_S = 0.3
"""For what must not."""
LINKS = 200
RECORDS_UNREAD_MAX = 80
"""Records of 1 MiB that a link may keep for a receiver that does not read."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two ends of one link."""

    source: Link
    target: Link


def a_record(nbytes: int, octet: int = 0) -> bytes:
    """A record with `nbytes` of body that no transport looks into."""
    return build_header(Header(RecordType.MANIFEST, True, nbytes)) + bytes([octet]) * nbytes


def a_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def fill(arena: ArenaBytes, seed: int) -> None:
    """Other bytes everywhere for another seed."""
    octets = np.frombuffer(arena.bytes_at(Extent(0, arena.capacity)), np.uint8)
    octets[:] = np.random.default_rng(seed).integers(0, 256, arena.capacity, np.uint8)


def content(arena: ArenaBytes, extent: Extent | None = None) -> bytes:
    return bytes(arena.bytes_at(extent or Extent(0, arena.capacity)))


def tiles(nbytes: int, capacity: int = CAPACITY_BYTES) -> list[Extent]:
    """The whole arena in extents of `nbytes`."""
    return [Extent(offset, min(nbytes, capacity - offset)) for offset in range(0, capacity, nbytes)]


@contextlib.asynccontextmanager
async def linked(transport: Transport, capacity: int = CAPACITY_BYTES, target_capacity: int = 0) -> AsyncIterator[Pair]:
    """A link between two arenas of different content."""
    key = a_key()
    arena = Arena.create(capacity, "source")
    own = None if transport.hands_over else Arena.create(target_capacity or capacity, "target")
    fill(arena, 1)
    if own is not None:
        fill(own, 2)
    listener = await transport.listen(key, own)
    target, source = await asyncio.gather(
        listener.accept(WAIT_S), transport.connect(listener.address, key, arena, WAIT_S)
    )
    try:
        yield Pair(source, target)
    finally:
        await source.fence()
        await target.fence()
        await listener.close()
        target.arena.close()
        arena.close()


async def landed(link: Link, nbytes: int) -> list[Extent]:
    """The landings up to `nbytes` in all, as the link tells them."""
    extents: list[Extent] = []
    async with asyncio.timeout(WAIT_S):
        while nbytes > 0:
            event = await link.receive()
            assert isinstance(event, Landed), f"a landing was due, not {type(event).__name__}"
            extents.append(event.extent)
            nbytes -= event.extent.nbytes
    return extents


def joined(parts: Sequence[Extent]) -> list[Extent]:
    """Parts that follow each other without a gap as one."""
    whole: list[Extent] = []
    for part in parts:
        if whole and part.offset == whole[-1].offset + whole[-1].nbytes:
            whole[-1] = Extent(whole[-1].offset, whole[-1].nbytes + part.nbytes)
        else:
            whole.append(part)
    return whole


async def received(link: Link) -> bytes:
    """The next event, which must be a record."""
    async with asyncio.timeout(WAIT_S):
        event = await link.receive()
    assert isinstance(event, RecordIn), f"a record was due, not {type(event).__name__}"
    return event.data


async def ending(link: Link) -> WorldlineError:
    """The error with which receiving ends."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await link.receive()
            except WorldlineError as error:
                return error


async def post_until_refused(link: Link, extents: Sequence[Extent], deadline_s: float) -> WorldlineError:
    """Posts again and again until the link says no."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await link.post(extents, deadline_s)
            except WorldlineError as error:
                return error


class TransportSuite:
    """One behaviour each; the name is the sentence."""

    links = LINKS
    """Made and closed one after another. Fewer where a link alone takes a second."""

    async def test_records_arrive_whole_and_in_order_in_both_directions(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            records = [a_record(nbytes, nbytes % 251) for nbytes in (2, 3, 100, 4096, 70_000, 5)]
            for record in records:
                await pair.source.send(record)
                await pair.target.send(record[:HEADER_BYTES] + record[:HEADER_BYTES:-1] + record[HEADER_BYTES:][:1])
            assert [await received(pair.target) for _ in records] == records
            backward = [await received(pair.source) for _ in records]
            assert [sorted(data) for data in backward] == [sorted(data) for data in records]

    async def test_landings_and_records_keep_the_order_in_which_they_were_sent(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            first, second = Extent(0, MIB), Extent(3 * MIB, 4096)
            await pair.source.send(a_record(2, 1))
            await pair.source.post([first], WAIT_S)
            await pair.source.send(a_record(2, 2))
            await pair.source.post([second], WAIT_S)
            await pair.source.send(a_record(2, 3))
            assert await received(pair.target) == a_record(2, 1)
            assert await landed(pair.target, first.nbytes) == [first]
            assert await received(pair.target) == a_record(2, 2)
            assert await landed(pair.target, second.nbytes) == [second]
            assert await received(pair.target) == a_record(2, 3)

    async def test_exactly_the_bytes_posted_land_where_they_were_and_no_other_changes(
        self, transport: Transport
    ) -> None:
        async with linked(transport) as pair:
            expected = bytearray(content(pair.target.arena))
            extents = [Extent(1, 1), Extent(4095, 2), Extent(MIB - 1, MIB + 3), Extent(CAPACITY_BYTES - 5, 5)]
            crossed = await pair.source.post(extents, WAIT_S)
            assert joined(await landed(pair.target, sum(extent.nbytes for extent in extents))) == extents
            for extent in extents:
                expected[extent.offset : extent.offset + extent.nbytes] = content(pair.source.arena, extent)
            assert content(pair.target.arena) == bytes(expected)
            assert crossed == (0 if transport.hands_over else sum(extent.nbytes for extent in extents))

    async def test_what_is_rewritten_after_a_post_lands_as_it_was_or_as_it_is_and_then_stays(
        self, transport: Transport
    ) -> None:
        """Whether anything is rewritten in time is chance; what must never be seen is a third octet, or a late one."""
        capacity = 24 * MIB
        async with linked(transport, capacity=capacity) as pair:
            before = content(pair.source.arena)
            posting = asyncio.create_task(pair.source.post([Extent(0, capacity)], WAIT_S))
            receiving = asyncio.create_task(landed(pair.target, capacity))
            await posting
            fill(pair.source.arena, 3)
            after = content(pair.source.arena)
            await receiving
            there = content(pair.target.arena)
            if transport.hands_over:
                assert there == after
                return
            old, new, found = (np.frombuffer(octets, np.uint8) for octets in (before, after, there))
            assert np.all((found == old) | (found == new))
            fill(pair.source.arena, 4)
            assert content(pair.target.arena) == there

    async def test_a_handed_over_arena_can_not_be_written_by_the_target(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            assert pair.target.arena.bytes_at(Extent(0, 1)).readonly == transport.hands_over
            assert pair.target.arena.capacity == pair.source.arena.capacity

    async def test_thousands_of_small_extents_land(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            extents = [Extent(offset, 61) for offset in range(0, CAPACITY_BYTES - 61, 509)]
            got, _ = await asyncio.gather(landed(pair.target, 61 * len(extents)), pair.source.post(extents, WAIT_S))
            assert got == extents
            assert all(content(pair.target.arena, e) == content(pair.source.arena, e) for e in extents)

    async def test_large_extents_land_from_their_beginning_to_their_end_before_what_comes_after_them(
        self, transport: Transport
    ) -> None:
        """What is posted is rewritten and posted again at once: the second bytes are the ones that stay."""
        capacity = 24 * MIB
        async with linked(transport, capacity=capacity) as pair:
            extents = [Extent(13 * MIB, 11 * MIB - 5), Extent(7, 64), Extent(0, 12 * MIB + 3)]
            nbytes = sum(extent.nbytes for extent in extents)

            async def post_twice() -> None:
                await pair.source.post(extents, WAIT_S)
                await pair.source.send(a_record(2, 1))
                fill(pair.source.arena, 5)
                await pair.source.post(extents, WAIT_S)
                await pair.source.send(a_record(2, 2))

            posting = asyncio.create_task(post_twice())
            for octet in (1, 2):
                assert joined(await landed(pair.target, nbytes)) == joined(extents)
                assert await received(pair.target) == a_record(2, octet)
            await posting
            assert all(content(pair.target.arena, e) == content(pair.source.arena, e) for e in extents)

    async def test_a_post_keeps_to_the_rate_that_it_was_given_until_it_is_taken_back(
        self, transport: Transport
    ) -> None:
        """At 1 MiB a second 4 MiB do not leave within a fraction of a second; without a rate they do."""
        if transport.hands_over:
            return
        async with linked(transport, capacity=4 * MIB) as pair:
            pair.source.pace(MIB)
            posting = asyncio.create_task(pair.source.post(tiles(256 * 1024), WAIT_S))
            receiving = asyncio.create_task(landed(pair.target, 4 * MIB))
            done, _ = await asyncio.wait([receiving], timeout=STUCK_S)
            assert not done
            pair.source.pace(None)
            await posting
            await receiving

    async def test_posting_nothing_sends_nothing(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            assert await pair.source.post([], WAIT_S) == 0
            await pair.source.send(a_record(2))
            assert await received(pair.target) == a_record(2)

    @pytest.mark.parametrize(
        "extent", [Extent(CAPACITY_BYTES - 4, 5), Extent(-1, 4), Extent(0, 0), Extent(0, 65 * MIB)]
    )
    async def test_an_extent_that_no_target_may_take_is_refused_at_the_source(
        self, transport: Transport, extent: Extent
    ) -> None:
        async with linked(transport) as pair:
            with pytest.raises(ValueError, match="can't be posted"):
                await pair.source.post([Extent(0, 4), extent], WAIT_S)
            await pair.source.send(a_record(2))
            assert await received(pair.target) == a_record(2), "nothing was sent, and the link still works"

    async def test_the_target_posts_nothing(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            with pytest.raises(ValueError, match="only the source posts"):
                await pair.target.post([Extent(0, 4)], WAIT_S)

    async def test_an_extent_beyond_the_targets_arena_is_refused_before_a_byte_is_written(
        self, transport: Transport
    ) -> None:
        if transport.hands_over:
            return
        async with linked(transport, target_capacity=CAPACITY_BYTES // 2) as pair:
            before = content(pair.target.arena)
            error = await post_until_refused(pair.source, 500 * [Extent(CAPACITY_BYTES // 2 - 4, 8)], STUCK_S)
            assert isinstance(error, Unavailable)
            assert isinstance(await ending(pair.target), Malformed)
            assert content(pair.target.arena) == before

    async def test_a_peer_with_another_key_is_turned_away_and_waiting_goes_on(self, transport: Transport) -> None:
        key = a_key()
        with Arena.create(MIB, "source") as arena, Arena.create(MIB, "target") as own:
            listener = await transport.listen(key, None if transport.hands_over else own)
            accepting = asyncio.create_task(listener.accept(WAIT_S))
            for _ in range(3):
                with pytest.raises(Unauthenticated):
                    await transport.connect(listener.address, a_key(), arena, WAIT_S)
            source = await transport.connect(listener.address, key, arena, WAIT_S)
            target = await accepting
            await source.send(a_record(2))
            assert await received(target) == a_record(2)
            await close_all(source, target)

    async def test_a_key_opens_one_link_only(self, transport: Transport) -> None:
        key = a_key()
        with Arena.create(MIB, "source") as arena, Arena.create(MIB, "target") as own:
            listener = await transport.listen(key, None if transport.hands_over else own)
            target, source = await asyncio.gather(
                listener.accept(WAIT_S), transport.connect(listener.address, key, arena, WAIT_S)
            )
            with pytest.raises((LinkCut, TimedOut)):
                await transport.connect(listener.address, key, arena, STUCK_S)
            with pytest.raises(LinkCut):
                await listener.accept(STUCK_S)
            await source.send(a_record(2))
            assert await received(target) == a_record(2), "the link is not disturbed"
            await close_all(source, target)

    async def test_waiting_for_nobody_ends_at_its_deadline_and_may_begin_again(self, transport: Transport) -> None:
        key = a_key()
        with Arena.create(MIB, "source") as arena, Arena.create(MIB, "target") as own:
            listener = await transport.listen(key, None if transport.hands_over else own)
            with pytest.raises(TimedOut):
                await listener.accept(STUCK_S / 10)
            target, source = await asyncio.gather(
                listener.accept(WAIT_S), transport.connect(listener.address, key, arena, WAIT_S)
            )
            await close_all(source, target)

    async def test_nobody_listens_after_close(self, transport: Transport) -> None:
        with Arena.create(MIB, "source") as arena, Arena.create(MIB, "target") as own:
            listener = await transport.listen(a_key(), None if transport.hands_over else own)
            accepting = asyncio.create_task(listener.accept(WAIT_S))
            await asyncio.sleep(0)
            await listener.close()
            await listener.close()
            with pytest.raises(LinkCut):
                await accepting
            with pytest.raises(LinkCut):
                await transport.connect(listener.address, a_key(), arena, WAIT_S)

    async def test_what_was_sent_before_the_source_closed_is_received_before_the_cut(
        self, transport: Transport
    ) -> None:
        async with linked(transport) as pair:
            await pair.source.post([Extent(0, MIB)], WAIT_S)
            await pair.source.send(a_record(9))
            await pair.source.fence()
            assert await landed(pair.target, MIB) == [Extent(0, MIB)]
            assert await received(pair.target) == a_record(9)
            for _ in range(2):
                assert isinstance(await ending(pair.target), LinkCut)

    async def test_a_target_that_is_gone_ends_posts_sends_and_receives_of_the_source(
        self, transport: Transport
    ) -> None:
        async with linked(transport) as pair:
            await pair.target.send(a_record(9))
            await pair.target.fence()
            assert isinstance(await post_until_refused(pair.source, tiles(MIB), WAIT_S), LinkCut)
            with pytest.raises(LinkCut):
                await pair.source.send(a_record(2))
            assert await received(pair.source) == a_record(9), "its last words are still received"
            assert isinstance(await ending(pair.source), LinkCut)

    async def test_a_target_that_goes_in_the_middle_of_a_post_ends_it(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            posting = asyncio.create_task(post_until_refused(pair.source, tiles(64 * 1024), WAIT_S))
            await landed(pair.target, MIB)
            await pair.target.fence()
            assert isinstance(await posting, LinkCut)

    async def test_the_last_words_of_a_target_that_goes_in_the_middle_of_a_post_are_received(
        self, transport: Transport
    ) -> None:
        async with linked(transport) as pair:
            posting = asyncio.create_task(post_until_refused(pair.source, tiles(64 * 1024), WAIT_S))
            await landed(pair.target, MIB)
            await pair.target.send(a_record(9))
            await pair.target.fence()
            assert isinstance(await posting, LinkCut)
            assert await received(pair.source) == a_record(9)
            assert isinstance(await ending(pair.source), LinkCut)

    async def test_a_post_to_a_target_that_does_not_read_ends_at_its_deadline_and_so_does_the_link(
        self, transport: Transport
    ) -> None:
        async with linked(transport) as pair:
            error = await post_until_refused(pair.source, tiles(512), STUCK_S)
            assert isinstance(error, TimedOut)
            for again in (pair.source.post([Extent(0, 1)], WAIT_S), pair.source.send(a_record(2))):
                with pytest.raises(LinkCut):
                    await again
            assert isinstance(await ending(pair.target), LinkCut)

    async def test_a_receiver_that_does_not_read_makes_nobody_keep_more_than_a_few_records(
        self, transport: Transport
    ) -> None:
        async with linked(transport) as pair:
            taken = 0
            with contextlib.suppress(TimeoutError):
                while taken <= RECORDS_UNREAD_MAX:
                    async with asyncio.timeout(STUCK_S):
                        await pair.source.send(a_record(MIB))
                    taken += 1
            assert 0 < taken <= RECORDS_UNREAD_MAX

    async def test_a_cancelled_post_leaves_the_link_unusable_and_both_sides_know(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            posting = asyncio.create_task(post_until_refused(pair.source, tiles(512), WAIT_S))
            await landed(pair.target, MIB)
            await asyncio.sleep(STUCK_S)
            posting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await posting
            assert isinstance(await ending(pair.target), LinkCut)

    async def test_nothing_is_written_after_a_fence_while_the_source_goes_on(self, transport: Transport) -> None:
        """1. The source posts without end. 2. Something lands. 3. The target fences. 4. Its memory is another's now."""
        async with linked(transport) as pair:
            posting = asyncio.create_task(post_until_refused(pair.source, tiles(64 * 1024), WAIT_S))
            await landed(pair.target, MIB)
            await pair.target.fence()
            if not transport.hands_over:
                fill(pair.target.arena, 4)
            another = content(pair.target.arena)
            assert isinstance(await posting, LinkCut)
            assert content(pair.target.arena) == another

    async def test_a_fence_is_idempotent_and_ends_receiving(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            receiving = asyncio.create_task(ending(pair.target))
            await asyncio.sleep(0)
            await asyncio.gather(pair.target.fence(), pair.target.fence())
            await pair.target.fence()
            assert isinstance(await receiving, LinkCut)
            assert isinstance(await ending(pair.target), LinkCut)
            with pytest.raises(LinkCut):
                await pair.target.send(a_record(2))

    async def test_the_largest_record_passes_and_a_larger_one_is_not_sent(self, transport: Transport) -> None:
        async with linked(transport) as pair:
            largest = a_record(RECORD_BYTES_MAX - HEADER_BYTES, 7)
            _, data = await asyncio.gather(pair.source.send(largest), received(pair.target))
            assert data == largest
            for broken in (largest + b"x", largest[:-1], b"", a_record(9)[:20], b"x" * 40):
                with pytest.raises(Malformed):
                    await pair.source.send(broken)
            await pair.source.send(a_record(2))
            assert await received(pair.target) == a_record(2)

    async def test_two_hundred_links_leave_no_descriptor_thread_or_memory_behind(self, transport: Transport) -> None:
        async def one(number: int) -> None:
            async with linked(transport, capacity=64 * 1024) as pair:
                await pair.source.post([Extent(0, 64 * 1024)], WAIT_S)
                await pair.source.send(a_record(64 * 1024, number % 256))
                await landed(pair.target, 64 * 1024)
                await received(pair.target)

        for number in range(10):
            await one(number)
        before = resources()
        for number in range(self.links):
            await one(number)
        after = resources()
        assert after.descriptors <= before.descriptors
        assert after.threads <= before.threads
        assert after.memory_bytes - before.memory_bytes < self.links * 32 * 1024


async def close_all(source: Link, target: Link) -> None:
    await source.fence()
    await target.fence()
    target.arena.close()


@dataclass(frozen=True, slots=True)
class Resources:
    """What this process holds."""

    descriptors: int
    threads: int
    memory_bytes: int


def resources() -> Resources:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Resources(len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), pages * 4096)
