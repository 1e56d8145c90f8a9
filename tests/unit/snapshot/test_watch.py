"""The kernel's word on what was written, and the fence that can be taken back."""

import random

import numpy as np
import pytest

from worldline.runtime.host_handover import HandedOver
from worldline.schema.layout import Extent
from worldline.snapshot.arena import PAGE_BYTES, Arena, Range, carry
from worldline.snapshot.watch import Watch

PAGES = 64


@pytest.fixture
def arena():
    with Arena.create(PAGES * PAGE_BYTES, "watched") as arena:
        arena.bytes_at(page(0, PAGES))[:] = b"a" * (PAGES * PAGE_BYTES)
        yield arena


@pytest.fixture
def watch(arena):
    found = arena.watch()
    if found is None:
        pytest.skip("this system has no asynchronous write protection (Linux 6.7)")
    return found


def page(first, count=1):
    return Extent(first * PAGE_BYTES, count * PAGE_BYTES)


def test_exactly_the_pages_written_since_they_were_armed_are_named(arena, watch):
    watch.arm([page(0, PAGES)])
    assert watch.written() == []
    for octet in (3 * PAGE_BYTES + 5, 4 * PAGE_BYTES, 40 * PAGE_BYTES - 1):
        arena.bytes_at(Extent(octet, 1))[0] = 1
    assert watch.written() == [page(3, 2), page(39)]


def test_a_page_armed_again_is_clean_again_and_a_disarmed_one_counts_as_written(arena, watch):
    watch.arm([page(0, PAGES)])
    arena.bytes_at(page(1))[:] = bytes(PAGE_BYTES)
    watch.arm([page(1)])
    watch.disarm([page(7)])
    assert watch.written() == [page(7)]


def test_memory_that_was_never_touched_is_watched_too(watch):
    with Arena.create(PAGES * PAGE_BYTES, "empty") as empty:
        fresh = empty.watch()
        assert isinstance(fresh, Watch)
        fresh.arm([page(0, PAGES)])
        empty.bytes_at(Extent(9 * PAGE_BYTES, 1))[0] = 1
        assert fresh.written() == [page(9)]


def test_a_withdrawn_arena_is_read_as_it_was_and_a_late_writer_writes_nothing_of_it(arena):
    late = np.frombuffer(arena.bytes_at(page(0, PAGES)), np.uint8)
    arena.withdraw()
    assert not late.any()
    late[:] = 7
    assert bytes(arena.bytes_at(page(0, PAGES))) == b"a" * (PAGES * PAGE_BYTES)
    arena.give_back()
    assert late.tobytes() == b"a" * (PAGES * PAGE_BYTES)


def test_what_is_given_back_is_written_at_its_addresses_again(arena):
    view = np.frombuffer(arena.bytes_at(page(0, PAGES)), np.uint8)
    for value in (1, 2):
        arena.withdraw()
        arena.give_back()
        view[PAGE_BYTES] = value
        assert arena.bytes_at(Extent(PAGE_BYTES, 1))[0] == value


def test_the_watch_goes_with_a_withdrawn_arena_and_comes_back_with_it(arena, watch):
    view = np.frombuffer(arena.bytes_at(page(0, PAGES)), np.uint8)
    watch.arm([page(0, PAGES)])
    view[2 * PAGE_BYTES] = 1
    arena.withdraw()
    view[3 * PAGE_BYTES] = 1
    assert watch.written() == [page(2)]
    arena.give_back()
    view[4 * PAGE_BYTES] = 1
    assert watch.written() == [page(2), page(4)]


def test_what_is_written_at_the_old_addresses_before_they_are_covered_counts_as_written(arena, watch):
    view = np.frombuffer(arena.bytes_at(page(0, PAGES)), np.uint8)
    watch.arm([page(0, PAGES)])
    aside = Range(arena.capacity)

    def move():
        done = carry(arena.address, aside.address, arena.capacity)
        view[5 * PAGE_BYTES] = 1
        return done

    if watch.follow(move, aside.address):
        assert any(found.offset <= 5 * PAGE_BYTES < found.offset + found.nbytes for found in watch.written())


def test_an_arena_touched_in_part_is_carried_as_one_and_its_watch_with_it():
    """Where the kernel is told something of a part of a mapping, it is two mappings from then on."""
    with Arena.create(PAGES * PAGE_BYTES, "touched") as arena:
        arena.touch(page(0, 5))
        watch = arena.watch()
        if watch is None:
            pytest.skip("this system has no asynchronous write protection (Linux 6.7)")
        arena.withdraw()
        arena.give_back()
        assert arena.watch() is watch


def test_a_withdrawn_arena_that_is_closed_reaches_nothing_any_more(arena):
    view = np.frombuffer(arena.bytes_at(page(0, PAGES)), np.uint8)
    arena.withdraw()
    aside = np.frombuffer(arena.bytes_at(page(0, PAGES)), np.uint8)
    arena.close()
    assert not view.any() and not aside.any()


def test_a_handed_over_arena_names_the_pages_that_this_process_has_copies_of(arena):
    with HandedOver.take(arena) as taken:
        if taken.written_here() is None:
            pytest.skip("this system has no PAGEMAP_SCAN (Linux 6.7)")
        assert bytes(taken.bytes_at(Extent(0, 2))) == b"aa"
        taken.bytes_at(Extent(5 * PAGE_BYTES, 1))[0] = 1
        assert taken.written_here() == [page(5)]
        assert arena.bytes_at(Extent(5 * PAGE_BYTES, 1))[0] == ord("a")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_written_is_missed_whatever_parts_of_large_pages_are_armed(seed):
    """Memory that the system may give in huge pages, which arming a part of takes apart."""
    chance, pages = random.Random(seed), 4096
    with Arena.create(pages * PAGE_BYTES, "w") as arena:
        arena.touch(Extent(0, arena.capacity))
        octets = np.frombuffer(arena.bytes_at(Extent(0, arena.capacity)), np.uint8)
        octets[:] = 1
        watch = arena.watch()
        if watch is None:
            pytest.skip("this system watches no writes")
        written = set(range(pages))
        for _ in range(100):
            first = chance.randrange(pages)
            some = range(first, min(pages, first + chance.choice([1, 16, 512, 700])))
            extent = Extent(first * PAGE_BYTES, len(some) * PAGE_BYTES)
            match chance.randrange(3):
                case 0:
                    watch.arm([extent])
                    written -= set(some)
                case 1:
                    watch.disarm([extent])
                    written |= set(some)
                case _:
                    octets[first * PAGE_BYTES + 7] ^= 1
                    written.add(first)
            seen = [
                found
                for each in watch.written()
                for found in range(each.offset // PAGE_BYTES, (each.offset + each.nbytes) // PAGE_BYTES)
            ]
            assert written <= set(seen)
