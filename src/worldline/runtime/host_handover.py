"""A handed-over arena between its proof and its commit: the target's engine is bound to it, and nothing reaches the
source.

Invariant: until `own`, every write of this process goes to private copies of the pages it touches. `own` puts the
shared memory at the same addresses, so that what was bound stays bound; the private copies are gone then.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterable, Sequence
from typing import Self

from worldline.schema.layout import Extent
from worldline.snapshot.arena import MADV_POPULATE_READ, Arena, Range, advise, carry, put
from worldline.snapshot.watch import Watch, private_pages, whole_pages

_MAP_NORESERVE = 0x4000


class HandedOver(Arena):
    """Made by `take`. An engine can be installed into it and tried before the commit, at the cost of the pages it
    writes.
    """

    _owned = False
    _ready: Range | None = None
    """Where the shared memory waits, writable and faulted in, at addresses that nobody was told."""
    _over_ready: Watch | None = None
    armed: Sequence[Extent] = ()
    """After `own`: what is under the watch since before anybody here could write it; ascending."""

    def __init__(self, fd: int, capacity: int, *, writable: bool) -> None:
        """See `Arena`; use `take`."""
        self._turn = threading.Lock()
        super().__init__(fd, capacity, writable=writable)

    @classmethod
    def take(cls, arena: Arena) -> Self:
        """A second mapping of `arena`'s memory, private and writable."""
        return cls.attach(arena.fd, arena.capacity, writable=True)

    def make_ready(self, extents: Iterable[Extent], watched: bool) -> None:
        """Maps and faults in what `own` will need, and puts it under watch where it is to be `watched`, while the
        source still plays. From any thread, once; where `own` or `close` was sooner nothing of it is kept. `extents`
        ascend and don't overlap.
        """
        ready = Range(self.capacity)
        put(ready.address, self.capacity, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self.fd)
        stretches = [whole_pages(extent) for extent in extents if extent.nbytes]

        def fault_in() -> None:
            for stretch in stretches:
                advise(ready.address + stretch.offset, stretch.nbytes, MADV_POPULATE_READ)

        fault_in()
        watch = Watch.over(ready.address, self.capacity) if watched else None
        if watch is not None:
            watch.arm(stretches)
            fault_in()  # to arm part of a huge page of shared memory takes all of it out of the page tables
        with self._turn:
            late = self._owned or self.closed
            if not late:
                self._ready, self._over_ready = ready, watch
                self.armed = () if watch is None else stretches
        if late:
            self._drop(ready, watch)

    def own(self) -> None:
        """From here on this is the session's arena, shared with nobody. Only after the source was fenced."""
        with self._turn:
            self._owned = True
            ready, watch = self._take_ready()
        if ready is not None and self._carry_ready(ready, watch):
            self._watch = watch
            self._drop(ready, None)
            return
        self.armed = ()
        self._map(mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self.fd)
        if ready is not None:
            self._drop(ready, watch)

    def _take_ready(self) -> tuple[Range | None, Watch | None]:
        ready, watch = self._ready, self._over_ready
        self._ready = self._over_ready = None
        return ready, watch

    def _carry_ready(self, ready: Range, watch: Watch | None) -> bool:
        def move() -> bool:
            return carry(ready.address, self.address, self.capacity)

        return move() if watch is None else watch.follow(move, self.address)

    def close(self, wait: bool = True) -> None:
        """See `Arena.close`."""
        with self._turn:
            ready, watch = self._take_ready()
            super().close(wait)
        if ready is not None:
            self._drop(ready, watch)

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

    def _drop(self, ready: Range, watch: Watch | None) -> None:
        """Nothing of the memory is behind those addresses any more."""
        if watch is not None:
            watch.close()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        put(ready.address, self.capacity, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1)

    def _map(self, protection: int, flags: int, fd: int) -> None:
        if fd >= 0 and not self._owned:
            flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
        super()._map(protection, flags, fd)
