"""The disk under an image: the real one, and one that fails as planted."""

from __future__ import annotations

import errno
import logging
import os
import random
from typing import Protocol

from worldline.schema.fault import Fault, FaultName, Verb

_ERRNO = {FaultName.ENOSPC: errno.ENOSPC, FaultName.EIO: errno.EIO}
_OF_IMAGE = {
    Verb.PARK: frozenset({*_ERRNO, FaultName.SHORT_WRITE}),
    Verb.RESUME: frozenset({FaultName.EIO, FaultName.FLIP, FaultName.TRUNCATE}),
}
_WRITES_BEFORE_MAX = 4
"""An image has a header, a manifest, its digests and a segment at least."""

log = logging.getLogger(__name__)


class Disk(Protocol):
    """Where an image's bytes go, and come from."""

    def write(self, fd: int, data: memoryview, at: int) -> int:
        """How many were taken. Raises `OSError`."""
        ...

    def flush(self, fd: int) -> None:
        """Raises `OSError`."""
        ...

    def read(self, fd: int, into: memoryview, at: int) -> int:
        """How many there were; 0 beyond the file's end. Raises `OSError`."""
        ...


class RealDisk:
    def write(self, fd: int, data: memoryview, at: int) -> int:
        return os.pwrite(fd, data, at)

    def flush(self, fd: int) -> None:
        os.fsync(fd)

    def read(self, fd: int, into: memoryview, at: int) -> int:
        return os.preadv(fd, [into], at)


class FailingDisk(RealDisk):
    """Fails, or keeps less than it says, at the write or the flush that the fault's seed chooses, and at all that
    follow.
    """

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._chance = random.Random(fault.seed)
        self._good = self._chance.randrange(_WRITES_BEFORE_MAX + (fault.name in _ERRNO))

    def write(self, fd: int, data: memoryview, at: int) -> int:
        if self._good:
            self._good -= 1
            return os.pwrite(fd, data, at)
        self._fail()
        os.pwrite(fd, data[: self._chance.randrange(len(data))], at)
        return len(data)

    def flush(self, fd: int) -> None:
        self._fail()
        os.fsync(fd)

    def _fail(self) -> None:
        number = _ERRNO.get(self._fault.name)
        if number is not None:
            raise OSError(number, f"planted: {os.strerror(number)}")


class MisreadDisk(RealDisk):
    """From one place of the file on, which the fault's seed chooses, nothing is read, or nothing without an error; or
    one bit of that place is read wrong.
    """

    def __init__(self, fault: Fault) -> None:
        self._name = fault.name
        self._chance = random.Random(fault.seed)
        self._place: int | None = None

    def read(self, fd: int, into: memoryview, at: int) -> int:
        if self._place is None:
            self._place = self._chance.randrange(os.fstat(fd).st_size)
        done, before = os.preadv(fd, [into], at), self._place - at
        if self._name is FaultName.FLIP:
            if 0 <= before < done:
                into[before] ^= 1
            return done
        if before >= done:
            return done
        if self._name is FaultName.EIO:
            raise OSError(errno.EIO, f"planted: {os.strerror(errno.EIO)}")
        return max(before, 0)


def disk_of(fault: Fault | None, verb: Verb) -> Disk:
    """The real one, unless a fault is planted under the image that this verb writes or reads; one at a step is
    elsewhere.
    """
    if fault is None or fault.step is not None:
        return RealDisk()
    if fault.name not in _OF_IMAGE.get(verb, ()):
        return RealDisk()
    log.warning("planted: %s", fault)
    return FailingDisk(fault) if verb is Verb.PARK else MisreadDisk(fault)
