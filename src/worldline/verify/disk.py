"""The disk under an image: the real one, and one that fails as planted."""

from __future__ import annotations

import errno
import os
import random
from typing import Protocol

from worldline.schema.fault import Fault, FaultName

_ERRNO = {FaultName.ENOSPC: errno.ENOSPC, FaultName.EIO: errno.EIO}
_WRITES_BEFORE_MAX = 4
"""An image has a header, a manifest, its digests and a segment at least."""


class Disk(Protocol):
    """Where an image's bytes go."""

    def write(self, fd: int, data: memoryview, at: int) -> int:
        """How many were taken. Raises `OSError`."""
        ...


class RealDisk:
    def write(self, fd: int, data: memoryview, at: int) -> int:
        return os.pwrite(fd, data, at)


class FailingDisk:
    """Fails, or keeps less than it says, at the write that the fault's seed chooses, and at all that follow."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._chance = random.Random(fault.seed)
        self._good = self._chance.randrange(_WRITES_BEFORE_MAX)

    def write(self, fd: int, data: memoryview, at: int) -> int:
        if self._good:
            self._good -= 1
            return os.pwrite(fd, data, at)
        number = _ERRNO.get(self._fault.name)
        if number is not None:
            raise OSError(number, f"planted: {os.strerror(number)}")
        os.pwrite(fd, data[: self._chance.randrange(len(data))], at)
        return len(data)


def disk_of(fault: Fault | None) -> Disk:
    """The real one, unless a fault of a disk is planted under the image; one at a step is under the record."""
    if fault is None or fault.step is not None or fault.name not in {*_ERRNO, FaultName.SHORT_WRITE}:
        return RealDisk()
    return FailingDisk(fault)
