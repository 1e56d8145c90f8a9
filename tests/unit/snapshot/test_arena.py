"""An arena's size is sealed, its close is a fence, and a thousand sessions leave nothing behind."""

import faulthandler
import fcntl
import gc
import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from worldline.errors import Malformed
from worldline.schema.layout import Extent
from worldline.snapshot.arena import PAGE_BYTES, Arena

MIB = 1 << 20


def tensor_over(arena, extent):
    return torch.frombuffer(arena.bytes_at(extent), dtype=torch.uint8)


def open_fds():
    return len(list(Path("/proc/self/fd").iterdir()))


def mappings():
    return len(Path("/proc/self/maps").read_text().splitlines())


def resident_kib():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])


PAGES_BYTES = (PAGE_BYTES, 2 * MIB)
"""Of shared memory, as the system gives it out."""


def test_a_new_arena_is_zero_and_costs_memory_only_where_it_is_touched():
    with Arena.create(64 * MIB, "sparse") as arena:
        assert arena.resident_bytes() == 0
        arena.bytes_at(Extent(10 * MIB, 1))[0] = 7
        page_bytes = arena.resident_bytes()
        assert page_bytes in PAGES_BYTES
        arena.touch(Extent(20 * MIB, 2 * MIB))
        assert arena.resident_bytes() == page_bytes + 2 * MIB
        assert not any(arena.bytes_at(Extent(20 * MIB, 2 * MIB)))


def test_capacity_is_rounded_up_to_pages():
    with Arena.create(1, "small") as arena:
        assert arena.capacity == PAGE_BYTES


@pytest.mark.parametrize(("offset", "nbytes"), [(-1, 2), (0, PAGE_BYTES + 1), (PAGE_BYTES, 1), (1, -2)])
def test_bytes_outside_the_arena_are_refused(offset, nbytes):
    with Arena.create(PAGE_BYTES, "bounds") as arena, pytest.raises(ValueError, match="outside"):
        arena.bytes_at(Extent(offset, nbytes))


@pytest.mark.parametrize("extent", [Extent(5, 10), Extent(100, 3 * PAGE_BYTES), Extent(0, PAGE_BYTES), Extent(7, 0)])
def test_zero_clears_exactly_its_extent_and_frees_whole_pages(extent):
    with Arena.create(8 * PAGE_BYTES, "zero") as arena:
        whole = arena.bytes_at(Extent(0, arena.capacity))
        whole[:] = b"\xff" * arena.capacity
        arena.zero(extent)
        expected = bytearray(b"\xff" * arena.capacity)
        expected[extent.offset : extent.offset + extent.nbytes] = bytes(extent.nbytes)
        assert bytes(whole) == bytes(expected)


def test_close_is_a_fence_that_no_late_writer_passes():
    """1. A tensor is made over the arena. 2. Another mapping of it is attached. 3. The first arena is closed.
    4. The tensor is written. 5. The other mapping sees none of it.
    """
    arena = Arena.create(MIB, "fence")
    late = tensor_over(arena, Extent(0, MIB))
    late.fill_(1)
    other = Arena.attach(arena.fd, MIB, writable=False)
    arena.close()
    assert late.sum() == 0
    late.fill_(9)
    assert bytes(other.bytes_at(Extent(0, 4))) == b"\1\1\1\1"
    other.close()


def test_close_frees_the_memory_while_a_tensor_lives_on():
    arena = Arena.create(64 * MIB, "freed")
    late = tensor_over(arena, Extent(0, 64 * MIB))
    late.fill_(1)
    before = resident_kib()
    arena.close()
    assert before - resident_kib() > 60 * 1024
    assert late.sum() == 0


def test_a_closed_arena_gives_no_bytes():
    arena = Arena.create(MIB, "closed")
    arena.close()
    arena.close()
    for use in (lambda: arena.fd, lambda: arena.bytes_at(Extent(0, 1)), arena.allow_writes, arena.resident_bytes):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_an_attached_arena_is_the_same_memory_and_can_only_be_read():
    with Arena.create(MIB, "shared") as arena, Arena.attach(arena.fd, MIB, writable=False) as other:
        arena.bytes_at(Extent(100, 3))[:] = b"abc"
        view = other.bytes_at(Extent(100, 3))
        assert bytes(view) == b"abc"
        assert view.readonly
        with pytest.raises(ValueError, match="read-only"):
            other.zero(Extent(0, 1))


def test_write_access_comes_in_place_after_the_commit():
    with Arena.create(MIB, "commit") as arena, Arena.attach(arena.fd, MIB, writable=False) as other:
        other.touch(Extent(0, MIB))
        other.allow_writes()
        other.bytes_at(Extent(0, 3))[:] = b"new"
        assert bytes(arena.bytes_at(Extent(0, 3))) == b"new"


def test_an_arena_lives_on_in_its_last_mapping_when_its_maker_closes_it():
    arena = Arena.create(MIB, "handed")
    arena.bytes_at(Extent(0, 4))[:] = b"here"
    other = Arena.attach(arena.fd, MIB, writable=True)
    arena.close()
    assert bytes(other.bytes_at(Extent(0, 4))) == b"here"
    other.close()


def test_a_handed_over_file_that_its_owner_could_cut_is_refused(tmp_path):
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, MIB)
    plain = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(plain, MIB)
    try:
        for fd in (unsealed, plain):
            with pytest.raises(Malformed):
                Arena.attach(fd, MIB, writable=False)
    finally:
        os.close(unsealed)
        os.close(plain)


def test_an_arena_of_another_size_than_named_is_refused():
    with Arena.create(MIB, "size") as arena, pytest.raises(Malformed):
        Arena.attach(arena.fd, 2 * MIB, writable=False)


def test_nobody_can_change_an_arenas_size():
    with Arena.create(MIB, "sealed") as arena:
        with pytest.raises(PermissionError):
            os.ftruncate(arena.fd, 0)
        assert fcntl.fcntl(arena.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK


def test_a_thousand_sessions_leave_descriptors_mappings_and_memory_as_they_were():
    def session():
        arena = Arena.create(16 * MIB, "many")
        tensor = tensor_over(arena, Extent(0, MIB // 4)).fill_(1)
        other = Arena.attach(arena.fd, arena.capacity, writable=False)
        assert other.bytes_at(Extent(0, 1))[0] == 1
        arena.close()
        other.close()
        return tensor

    for _ in range(10):
        session()
    gc.collect()
    before = open_fds(), mappings(), resident_kib()
    for _ in range(1000):
        session()
    gc.collect()
    assert open_fds() == before[0]
    assert abs(mappings() - before[1]) <= 2  # the allocator's own
    assert resident_kib() - before[2] < 16 * 1024


def test_an_arena_that_is_dropped_unclosed_is_closed():
    before = open_fds()
    arena = Arena.create(MIB, "dropped")
    assert open_fds() == before + 1
    del arena
    gc.collect()
    assert open_fds() == before


def test_a_forked_child_can_not_write_the_arena():
    with Arena.create(PAGE_BYTES, "forked") as arena:
        view = arena.bytes_at(Extent(0, 1))
        arena.withdraw()
        arena.give_back()
        child = os.fork()
        if child == 0:
            faulthandler.disable()
            view[0] = 1
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV
        assert view[0] == 0


def test_an_arena_tells_where_it_has_memory():
    with Arena.create(64 * MIB, "sparse") as arena:
        assert arena.occupied() == []
        for offset in (0, 10 * MIB, 64 * MIB - 1):
            arena.bytes_at(Extent(offset, 1))[0] = 7
        page_bytes = arena.resident_bytes() // 3
        assert page_bytes in PAGES_BYTES
        last = Extent(64 * MIB - page_bytes, page_bytes)
        assert arena.occupied() == [Extent(0, page_bytes), Extent(10 * MIB, page_bytes), last]
        arena.bytes_at(Extent(0, arena.capacity))[:] = bytes(arena.capacity)
        assert arena.occupied() == [Extent(0, arena.capacity)]


def test_a_close_that_does_not_wait_is_a_fence_for_a_watched_arena_too():
    arena = Arena.create(MIB, "watched")
    other = Arena.attach(arena.fd, MIB, writable=False)
    late = tensor_over(arena, Extent(0, MIB))
    watch = arena.watch()
    if watch is not None:
        watch.arm([Extent(0, MIB)])
    arena.close(wait=False)
    late.fill_(7)
    assert not any(other.bytes_at(Extent(0, MIB)))
    other.close()
    for thread in [thread for thread in threading.enumerate() if thread.name == "arena-unmap"]:
        thread.join()
