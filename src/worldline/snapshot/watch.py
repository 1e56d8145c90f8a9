"""Which pages of an arena this process has written, by the kernel's own word.

Invariant: `written` names every page that was written through the watched mapping since it was armed, and every page
that was not armed. It sees no other mapping of the same memory and no device: nothing of this project makes either
while a session is watched.

Linux: userfaultfd with asynchronous write protection (6.7) and PAGEMAP_SCAN; a write to an armed page costs about two
microseconds, once, and is never refused. `Watch.over` says None where the system has none of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import struct
import threading
from collections.abc import Callable, Iterable

from worldline.schema.layout import Extent

_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1
_API_VERSION = 0xAA
_EVENT_REMAP = 1 << 2
_WP_SHMEM = 1 << 12
_WP_UNPOPULATED = 1 << 13
_WP_ASYNC = 1 << 15
_FEATURES = _EVENT_REMAP | _WP_SHMEM | _WP_UNPOPULATED | _WP_ASYNC
_EVENT_BYTES = 32

_IOC_API = 0xC018AA3F
_IOC_REGISTER = 0xC020AA00
_IOC_WRITEPROTECT = 0xC018AA06
_REGISTER_WRITEPROTECT = 2

_IOC_PAGEMAP_SCAN = 0xC0606610
_PAGE_WRITTEN = 1 << 1
_PAGE_FILE = 1 << 2
_PAGE_PRESENT = 1 << 3
_PAGE_SWAPPED = 1 << 4
_REGIONS = 1024

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)


class _Scan(ctypes.Structure):
    """`struct pm_scan_arg` of linux/fs.h."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "size",
            "flags",
            "start",
            "end",
            "walk_end",
            "vec",
            "vec_len",
            "max_pages",
            "category_inverted",
            "category_mask",
            "category_anyof_mask",
            "return_mask",
        )
    )


class Watch:
    """One mapping under watch. Made by `over`."""

    def __init__(self, faults: int, address: int, nbytes: int) -> None:
        """Takes the descriptor over."""
        self._faults = faults
        self._address = address
        self._nbytes = nbytes

    @classmethod
    def over(cls, address: int, nbytes: int) -> Watch | None:
        """Watches a mapping of shared memory, nothing of it armed. None where this system can't."""
        number = _USERFAULTFD.get(platform.machine())
        faults = -1 if number is None else _libc.syscall(number, os.O_CLOEXEC | _USER_MODE_ONLY)
        if faults < 0:
            return None
        try:
            _ioctl(faults, _IOC_API, struct.pack("QQQ", _API_VERSION, _FEATURES, 0))
            _ioctl(faults, _IOC_REGISTER, struct.pack("QQQQ", address, nbytes, _REGISTER_WRITEPROTECT, 0))
            _scan(address, address + mmap.PAGESIZE, _PAGE_WRITTEN, 0, 0)
        except OSError:
            os.close(faults)
            return None
        return cls(faults, address, nbytes)

    def arm(self, extents: Iterable[Extent]) -> None:
        """From here on a write to a page under `extents` is seen."""
        self._protect(extents, 1)

    def disarm(self, extents: Iterable[Extent]) -> None:
        """The whole pages under `extents` count as written, and writing them costs nothing."""
        self._protect(extents, 0)

    def written(self) -> list[Extent]:
        """What was written since it was armed, or never armed; whole pages, ascending."""
        found = _scan(self._address, self._address + self._nbytes, _PAGE_WRITTEN, 0, 0)
        return [Extent(start - self._address, end - start) for start, end in found]

    def follow(self, move: Callable[[], bool], address: int) -> bool:
        """`move()` puts the mapping at `address`, by mremap, and says whether it did; what was armed stays armed there.

        The kernel holds the mover until its event was read, hence the thread. What another thread touches meanwhile at
        the old addresses, while they still reach the memory, counts as written.
        """
        reader = threading.Thread(target=os.read, args=(self._faults, _EVENT_BYTES), daemon=True)
        reader.start()
        if not move():
            return False
        reader.join()
        before, self._address = self._address, address
        late = _scan(before, before + self._nbytes, 0, 0, _PAGE_PRESENT | _PAGE_SWAPPED)
        self.disarm(Extent(start - before, end - start) for start, end in late)
        return True

    def close(self) -> None:
        """Nothing is watched any more. Idempotent."""
        if self._faults >= 0:
            os.close(self._faults)
            self._faults = -1

    def _protect(self, extents: Iterable[Extent], mode: int) -> None:
        for start, nbytes in _pages(extents):
            _ioctl(self._faults, _IOC_WRITEPROTECT, struct.pack("QQQ", self._address + start, nbytes, mode))

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def private_pages(address: int, nbytes: int) -> list[Extent] | None:
    """The pages of a private mapping of a file that have been written: they are copies now. None where the system
    can't say.
    """
    anyof = _PAGE_PRESENT | _PAGE_SWAPPED
    try:
        found = _scan(address, address + nbytes, _PAGE_FILE, _PAGE_FILE, anyof)
    except OSError:
        return None
    return [Extent(start - address, end - start) for start, end in found]


def whole_pages(extent: Extent) -> Extent:
    """The pages of which `extent` has a byte."""
    start = extent.offset // mmap.PAGESIZE * mmap.PAGESIZE
    return Extent(start, -(-(extent.offset + extent.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE - start)


def _pages(extents: Iterable[Extent]) -> list[tuple[int, int]]:
    """Whole pages over the extents, adjacent ones joined: start and size."""
    joined: list[tuple[int, int]] = []
    for extent in sorted(extents, key=lambda extent: extent.offset):
        pages = whole_pages(extent)
        start, end = pages.offset, pages.offset + pages.nbytes
        if joined and start <= joined[-1][0] + joined[-1][1]:
            first = joined[-1][0]
            joined[-1] = (first, max(end, first + joined[-1][1]) - first)
        elif end > start:
            joined.append((start, end - start))
    return joined


def _scan(start: int, end: int, mask: int, inverted: int, anyof: int) -> list[tuple[int, int]]:
    """Address ranges whose pages have all categories of `mask` (those in `inverted`: not) and one of `anyof`."""
    vector = (ctypes.c_uint64 * (3 * _REGIONS))()
    found: list[tuple[int, int]] = []
    descriptor = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while start < end:
            query = _Scan(
                ctypes.sizeof(_Scan), 0, start, end, 0, ctypes.addressof(vector), _REGIONS, 0, inverted, mask, anyof,
                mask | anyof,
            )  # fmt: skip
            count = _libc.ioctl(descriptor, _IOC_PAGEMAP_SCAN, ctypes.addressof(query))
            if count < 0:
                raise OSError(ctypes.get_errno(), "PAGEMAP_SCAN")
            for at in range(count):
                first, last = int(vector[3 * at]), int(vector[3 * at + 1])
                if found and found[-1][1] == first:
                    found[-1] = (found[-1][0], last)
                else:
                    found.append((first, last))
            start = int(query.walk_end)
    finally:
        os.close(descriptor)
    return found


def _ioctl(descriptor: int, request: int, argument: bytes) -> None:
    buffer = ctypes.create_string_buffer(argument, len(argument))
    if _libc.ioctl(descriptor, request, ctypes.addressof(buffer)) < 0:
        raise OSError(ctypes.get_errno(), f"userfaultfd {request:#x}")
