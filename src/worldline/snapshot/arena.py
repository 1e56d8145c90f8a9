"""One session's memory behind a file descriptor: a sparse memfd, mapped once.

Invariants:
- The size never changes: the memfd is sealed against growing and shrinking, so no peer can make a reader fault.
- `close` is a fence. When it returns, no address of this process reaches the memfd any more, whoever still holds
  tensors or memoryviews over the arena: their addresses then hold private zeros. (A plain `munmap` would make a late
  writer crash the host; waiting for the last tensor would leave it writing into memory that another host owns by
  then.) The addresses themselves are given back when the last such view is collected.
- A handed-over arena is attached without write access, and gets it by `allow_writes`, once its epoch is in force.
- `withdraw` is a fence that can be taken back: the page tables are moved to another address, the pages stay. Until
  `give_back`, whoever writes at the addresses he was given writes private zeros, and `bytes_at` reads the arena itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import threading
from typing import Self

import numpy as np

from worldline.errors import Malformed
from worldline.schema.layout import Extent
from worldline.snapshot.watch import Watch

PAGE_BYTES = mmap.PAGESIZE
CAPACITY_BYTES_MAX = 1 << 46

_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_MREMAP = 1 | 2 | 4
"""MAYMOVE, FIXED, DONTUNMAP: the page tables go, the mapping stays behind empty, so nobody else gets its addresses."""
_MOVE_ALIGN = 2 * 1024 * 1024
"""Where both addresses are equal modulo this, whole page tables are moved: 0.2 ms a GiB, against 40 to 130 to unmap."""
MADV_POPULATE_READ = 22
_MADV_POPULATE_WRITE = 23
_CLEARED_BYTES = 32 * 1024 * 1024
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.mremap.restype = ctypes.c_void_p
_libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_libc.madvise.restype = ctypes.c_int
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mprotect.restype = ctypes.c_int
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Arena:
    """`capacity` bytes behind `fd`. Made by `create` or `attach`; any thread may read it."""

    def __init__(self, fd: int, capacity: int, *, writable: bool) -> None:
        """Takes `fd` over. Use `create` or `attach`."""
        self._fd = fd
        self._capacity = capacity
        self._writable = writable
        self._home = Range(capacity)
        self._view: memoryview | None = self._home.view
        self._address = self._home.address
        self._aside: Range | None = None
        self._watch: Watch | None = None
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._map(protection, mmap.MAP_SHARED, fd)

    @classmethod
    def create(cls, capacity: int, name: str) -> Self:
        """A new arena of zeros that costs memory only where it is touched. `capacity` is rounded up to whole
        pages.
        """
        if not 0 < capacity <= CAPACITY_BYTES_MAX:
            raise ValueError(f"an arena of {capacity} bytes")
        capacity = -(-capacity // PAGE_BYTES) * PAGE_BYTES
        fd = os.memfd_create(f"worldline-{name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, capacity)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            return cls(fd, capacity, writable=True)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, capacity: int, *, writable: bool) -> Self:
        """Maps the arena behind `fd`, which stays the caller's (it is duplicated).

        Raises `Malformed` when `fd` is not a sealed memfd of exactly `capacity` bytes: an unsealed one could be cut
        by its owner, and reading it would then kill this process.
        """
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        except OSError as error:
            raise Malformed("what was handed over is not an arena: it has no seals", errno=error.errno) from error
        size = os.fstat(fd).st_size
        if seals & _SEALS != _SEALS or size != capacity or not 0 < capacity <= CAPACITY_BYTES_MAX:
            raise Malformed("the arena handed over is not a sealed one of the size named", size=size, capacity=capacity)
        own = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)
        try:
            return cls(own, capacity, writable=writable)
        except BaseException:
            os.close(own)
            raise

    @property
    def fd(self) -> int:
        """The memfd. Raises `ValueError` after `close`."""
        if self._view is None:
            raise ValueError("the arena is closed")
        return self._fd

    @property
    def capacity(self) -> int:
        """Bytes, a multiple of the page size."""
        return self._capacity

    @property
    def address(self) -> int:
        """Where byte 0 lies in this process."""
        return self._address

    @property
    def writable(self) -> bool:
        """Whether this process may write."""
        return self._writable

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._view is None

    def bytes_at(self, extent: Extent) -> memoryview:
        """The bytes themselves, no copy; read-only where the arena is. Raises `ValueError` outside the arena or
        after `close`.
        """
        if self._view is None:
            raise ValueError("the arena is closed")
        end = extent.offset + extent.nbytes
        if not 0 <= extent.offset <= end <= self._capacity:
            raise ValueError(f"{extent} is outside an arena of {self._capacity} bytes")
        view = self._view[extent.offset : end]
        return view if self._writable else view.toreadonly()

    def zero(self, extent: Extent) -> None:
        """Makes the bytes zero; whole pages of them are given back to the system."""
        view = self.bytes_at(extent)
        first = -(-extent.offset // PAGE_BYTES) * PAGE_BYTES
        last = (extent.offset + extent.nbytes) // PAGE_BYTES * PAGE_BYTES
        if not self._writable:
            raise ValueError("the arena is read-only")
        octets = np.frombuffer(view, np.uint8)
        if last <= first:
            octets[:] = 0
            return
        octets[: first - extent.offset] = 0
        octets[last - extent.offset :] = 0
        advise(self._address + first, last - first, mmap.MADV_REMOVE)

    def allow_writes(self) -> None:
        """Gives a read-only mapping write access in place, with nothing faulted in anew. Only for the owner in
        force.
        """
        if self._view is None:
            raise ValueError("the arena is closed")
        if _libc.mprotect(self._address, self._capacity, mmap.PROT_READ | mmap.PROT_WRITE) != 0:
            raise OSError(ctypes.get_errno(), "mprotect of an arena")
        self._writable = True

    @property
    def withdrawn(self) -> bool:
        """Whether `withdraw` is in force."""
        return self._aside is not None

    def withdraw(self) -> None:
        """From here on no address that was handed out reaches the memfd; `bytes_at` does. Idempotent."""
        if self._aside is not None:
            return
        _ = self.fd
        aside = Range(self._capacity)
        self._carry(self._address, aside.address)
        _cover(self._address, self._capacity)
        self._aside, self._view = aside, aside.view

    def give_back(self) -> None:
        """Undoes `withdraw`: the addresses reach the memfd again. What was written there meanwhile is gone."""
        aside = self._aside
        if aside is None or self._view is None:
            return
        self._carry(aside.address, self._address)
        _cover(aside.address, self._capacity)
        self._aside, self._view = None, self._home.view

    def watch(self) -> Watch | None:
        """The watch over this process's writes to the arena, made when first asked for; None where there is none."""
        if self._watch is None and self._aside is None:
            self._watch = Watch.over(self._address, self._capacity)
        return self._watch

    def unwatch(self) -> None:
        """Ends the watch, so that writes cost nothing again. Idempotent."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _carry(self, origin: int, to: int) -> None:
        """Moves the mapping's page tables, and the watch with them. Where the system can't do that for shared memory
        the mapping is made anew, and the watch is over: it knows nothing of what was written through the old one.
        """

        def move() -> bool:
            return carry(origin, to, self._capacity)

        watch = self._watch
        if move() if watch is None else watch.follow(move, to):
            return
        self.unwatch()
        put(to, self._capacity, mmap.PROT_READ | (mmap.PROT_WRITE if self._writable else 0), mmap.MAP_SHARED, self._fd)

    def touch(self, extent: Extent) -> None:
        """Faults the pages in, so that a later freeze does not pay for it. Costs memory where the arena was still a
        hole.
        """
        view = self.bytes_at(extent)
        if extent.nbytes == 0 or self._aside is not None:
            return
        first = extent.offset // PAGE_BYTES * PAGE_BYTES
        option = _MADV_POPULATE_WRITE if self._writable else MADV_POPULATE_READ
        try:
            advise(self._address + first, extent.offset + extent.nbytes - first, option)
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: a system before Linux 5.14
                raise
            np.frombuffer(view, np.uint8)[::PAGE_BYTES].max()

    def resident_bytes(self) -> int:
        """Memory that the arena takes in the whole system, whoever has mapped it."""
        return os.fstat(self.fd).st_blocks * 512

    def occupied(self) -> list[Extent]:
        """Where there is memory behind the arena, whoever has mapped it."""
        found: list[Extent] = []
        at = 0
        while at < self._capacity:
            try:
                start = os.lseek(self.fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # ENXIO: nothing but a hole is left
                    raise
                break
            at = os.lseek(self.fd, start, os.SEEK_HOLE)
            found.append(Extent(start, at - start))
        return found

    def close(self, wait: bool = True) -> None:
        """Fences this process off the arena and gives its part of the memory back, whatever views still exist.
        Idempotent. Without `wait` the fence holds at the return, and the page tables are cleared after it.
        """
        if self._view is None:
            return
        if wait:
            self.unwatch()
        elif self._aside is None:
            self.withdraw()
        if self._aside is None:
            _cover(self._address, self._capacity)
        self._view = None
        self._writable = False
        os.close(self._fd)
        del self._home
        aside, self._aside = self._aside, None
        watch, self._watch = self._watch, None
        if aside is not None and wait:
            _cover(aside.address, self._capacity)
        elif aside is not None:
            threading.Thread(target=_clear, args=(aside, self._capacity, watch), name="arena-unmap").start()

    def _map(self, protection: int, flags: int, fd: int) -> None:
        put(self._address, self._capacity, protection, flags, fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_view", None) is not None:
            self.close()


class Range:
    """Reserved addresses, so aligned that the page tables of one range can be moved to another as they are.

    They are a mapping of Python's, which lives as long as a view of it does; the memfd is put over it. (Mapped by
    Python itself, the memfd would stay open inside the mapping object until the last view is gone.)
    """

    def __init__(self, capacity: int) -> None:
        reserved = mmap.mmap(-1, capacity + _MOVE_ALIGN, flags=_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        start = int(np.frombuffer(reserved, np.uint8, 1).__array_interface__["data"][0])
        shift = -start % _MOVE_ALIGN
        self.address = start + shift
        self.view = memoryview(reserved)[shift : shift + capacity]


def carry(origin: int, to: int, nbytes: int) -> bool:
    """Moves the page tables of one `Range`'s mapping to another; the mapping stays behind empty. False where the system
    does not do that for shared memory; nothing has changed then.
    """
    return _CARRIES and bool(_libc.mremap(origin, nbytes, nbytes, _MREMAP, to) == to)


def advise(address: int, nbytes: int, advice: int) -> None:
    """`madvise`. Raises `OSError`."""
    if _libc.madvise(address, nbytes, advice) != 0:
        raise OSError(ctypes.get_errno(), "madvise of an arena")


def put(address: int, nbytes: int, protection: int, flags: int, fd: int) -> None:
    """Maps at exactly these addresses. A child that is forked has no part of shared memory: no fence or watch of this
    process would reach it there. For shared memory huge pages are asked for, and come where the system gives it any.
    """
    got = _libc.mmap(address, nbytes, protection, flags | _MAP_FIXED, fd, 0)
    if got != address:
        raise OSError(ctypes.get_errno(), "mmap of an arena")
    if flags & mmap.MAP_SHARED:
        advise(address, nbytes, mmap.MADV_DONTFORK)
        with contextlib.suppress(OSError):  # a system without them
            advise(address, nbytes, mmap.MADV_HUGEPAGE)


def _clear(aside: Range, nbytes: int, watch: Watch | None) -> None:
    """What nobody reaches any more is cleared, in pieces: the process's other threads can't touch a new page meanwhile,
    and an engine's first block would wait for all of it.
    """
    if watch is not None:
        watch.close()
    for at in range(0, nbytes, _CLEARED_BYTES):
        _cover(aside.address + at, min(_CLEARED_BYTES, nbytes - at))


def _cover(address: int, nbytes: int) -> None:
    """Private zeros in place of what was mapped."""
    try:
        put(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE, -1)
    except OSError:
        # A system that promises no more memory than it has: the fence holds, but a late writer ends the process.
        put(address, nbytes, mmap.PROT_READ, _PRIVATE, -1)


def _can_carry() -> bool:
    """Whether mremap leaves a mapping of shared memory behind (Linux 5.13)."""
    fd = os.memfd_create("worldline-probe", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, PAGE_BYTES)
        origin, to = mmap.mmap(fd, PAGE_BYTES), mmap.mmap(-1, PAGE_BYTES, flags=_PRIVATE)
        places = [int(np.frombuffer(area, np.uint8, 1).__array_interface__["data"][0]) for area in (origin, to)]
        done = _libc.mremap(places[0], PAGE_BYTES, PAGE_BYTES, _MREMAP, places[1])
        return bool(done == places[1])
    finally:
        os.close(fd)


_CARRIES = _can_carry()
