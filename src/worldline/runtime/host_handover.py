"""A handed-over arena between its proof and its commit: the target's engine is bound to it, and nothing reaches the
source.

Invariant: until `own`, every write of this process goes to private copies of the pages it touches. `own` puts the
shared memory at the same addresses, so that what was bound stays bound; the private copies are gone then.
"""

from __future__ import annotations

import mmap
from typing import Self

from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.snapshot.watch import private_pages

_MAP_NORESERVE = 0x4000


class HandedOver(Arena):
    """Made by `take`. An engine can be installed into it and tried before the commit, at the cost of the pages it
    writes.
    """

    _owned = False

    @classmethod
    def take(cls, arena: Arena) -> Self:
        """A second mapping of `arena`'s memory, private and writable."""
        return cls.attach(arena.fd, arena.capacity, writable=True)

    def own(self) -> None:
        """From here on this is the session's arena, shared with nobody. Only after the source was fenced."""
        self._owned = True
        self._map(mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self.fd)

    def written_here(self) -> list[Extent] | None:
        """The pages that this process has written, and so has copies of; None where the system can't say, or `own` was
        called.
        """
        return None if self._owned else private_pages(self.address, self.capacity)

    def zero(self, extent: Extent) -> None:
        """Before the commit nothing: what is free is zero already, and a hole would be punched into the source's
        memory.
        """
        if self._owned:
            super().zero(extent)

    def _map(self, protection: int, flags: int, fd: int) -> None:
        if fd >= 0 and not self._owned:
            flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
        super()._map(protection, flags, fd)
