"""A host's memory: who holds how much of the limit, and the arenas that are kept warm for who comes next.

Invariants
  A reservation is made before its memory is touched, and given back after.
  A warm slot is a reservation too: keeping one never promises memory twice, and who takes one takes its reservation
  over. An arena is handed out once; a used one never becomes a slot again.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

from worldline.clock import Clock
from worldline.runtime.host_worlds import Built, Engines, MemoryLedger
from worldline.runtime.messages import Prewarm, Prewarmed, SessionSpec
from worldline.schema.contract import Contract
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.snapshot.memory import arena_capacity

SLOTS_MAX = 64
"""Of one size."""


@dataclass(slots=True)
class _Slot:
    holder: str
    arena: Arena


@dataclass(slots=True)
class HostMemory:
    """`reserve` and then `arena` for each holder, `hand_on` and `release` as its life goes."""

    ledger: MemoryLedger
    _slots: dict[int, list[_Slot]] = field(default_factory=dict)
    """By what a session of theirs reserves."""
    _taken: dict[str, Arena] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def slot_bytes(self) -> list[int]:
        """The size of each warm slot."""
        return sorted(nbytes for nbytes, slots in self._slots.items() for _ in slots)

    def reserve(self, holder: str, nbytes: int) -> None:
        """A warm slot of this size, if there is one. Raises `NoCapacity`."""
        slots = self._slots.get(nbytes)
        if slots:
            slot = slots.pop()
            self.ledger.hand_on(slot.holder, holder)
            self._taken[holder] = slot.arena
        else:
            self.ledger.reserve(holder, nbytes)

    def arena(self, holder: str, state_bytes_max: int) -> Arena:
        """The arena that goes with the reservation: the slot's, or a new one."""
        warm = self._taken.pop(holder, None)
        return Arena.create(arena_capacity(state_bytes_max), holder) if warm is None else warm

    def hand_on(self, holder: str, heir: str) -> None:
        self.ledger.hand_on(holder, heir)

    def release(self, holder: str) -> None:
        """Idempotent."""
        unused = self._taken.pop(holder, None)
        if unused is not None:
            unused.close()
        self.ledger.release(holder)

    def close(self) -> None:
        for nbytes in tuple(self._slots):
            self._shrink(nbytes, 0)

    async def prewarm(self, order: Prewarm, engines: Engines, clock: Clock) -> Prewarmed:
        """See `Prewarm`. Refused with `NoCapacity`: then what slots there are stay."""
        began_s = clock.monotonic_s()
        built = await engines.get(SessionSpec(order.world, 0, order.options, Contract()))
        stands_s = clock.monotonic_s()
        await self._keep(built, min(max(order.slots, 0), SLOTS_MAX))
        size = built.world.state_bytes_max
        return Prewarmed(
            slots=len(self._slots.get(size, ())),
            arena_bytes=size,
            engine_s=stands_s - began_s,
            arenas_s=clock.monotonic_s() - stands_s,
        )

    async def _keep(self, built: Built, slots: int) -> None:
        size = built.world.state_bytes_max
        self._shrink(size, slots)
        while len(self._slots.setdefault(size, [])) < slots:
            holder = f"slot {next(self._numbers)}"
            self.ledger.reserve(holder, size)
            arena = Arena.create(arena_capacity(size), holder)
            try:
                await asyncio.to_thread(arena.touch, Extent(0, size))
            except BaseException:
                arena.close()
                self.ledger.release(holder)
                raise
            self._slots[size].append(_Slot(holder, arena))

    def _shrink(self, size: int, slots: int) -> None:
        kept = self._slots.get(size, [])
        while len(kept) > slots:
            slot = kept.pop()
            slot.arena.close()
            self.ledger.release(slot.holder)
