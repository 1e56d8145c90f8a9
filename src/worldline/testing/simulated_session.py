"""A session of the simulation: a few bytes, rewritten in part by each block, and an engine that holds at boundaries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from worldline.migration.rounds import Limits
from worldline.schema.ids import Epoch
from worldline.schema.inventory import Free, Kind
from worldline.schema.layout import LEAF_BYTES_MIN, Extent, Layout, Manifest, Placement, Segment

if TYPE_CHECKING:
    from worldline.testing.simulated_host import Host

SEGMENTS = 10
SEGMENT_BYTES = 64
CAPACITY = SEGMENTS * SEGMENT_BYTES
REWRITTEN = 3
"""Segments that a block rewrites."""
BLOCK_S = 0.03
LIMITS = Limits(chunk_bytes=2 * SEGMENT_BYTES, tail_bytes_min=SEGMENT_BYTES, rate_bytes_min=1, rounds_max=5)
LAYOUT = Layout(tuple(Segment(f"s{n}", SEGMENT_BYTES, Kind.CACHE, Free()) for n in range(SEGMENTS)), (), LEAF_BYTES_MIN)
PLACEMENTS = tuple(Placement(n * SEGMENT_BYTES, SEGMENT_BYTES, resident=True) for n in range(SEGMENTS))


class Arena:
    """The bytes of a state, as `verify.digests` reads them."""

    def __init__(self, data: bytes = bytes(CAPACITY)) -> None:
        self.data = bytearray(data)

    def bytes_at(self, extent: Extent) -> memoryview:
        return memoryview(self.data)[extent.offset : extent.offset + extent.nbytes]


def advance(data: bytearray, block: int, action: int) -> None:
    """One block: a chained digest of state, block and action rewrites a few segments.

    So an action lost, repeated or swapped shows in every later state.
    """
    chain = hashlib.blake2b(bytes(data[:SEGMENT_BYTES]) + block.to_bytes(8, "little") + bytes([action])).digest()
    for step in range(REWRITTEN):
        at = 0 if step == 0 else 1 + (block * REWRITTEN + step) % (SEGMENTS - 1)
        data[at * SEGMENT_BYTES : (at + 1) * SEGMENT_BYTES] = hashlib.blake2b(chain + bytes([step])).digest()


def manifest_at(block: int) -> Manifest:
    return Manifest(LAYOUT, PLACEMENTS, block)


@dataclass(slots=True)
class Engine:
    """One session at its host. Plays while it is neither held nor closed."""

    host: Host
    epoch: Epoch
    arena: Arena
    block: int
    queue: list[int] = field(default_factory=list)
    held_by: str | None = None
    closed: bool = False
    busy: bool = False
    waiting: tuple[str, Callable[[], None]] | None = None
    """A hold that waits for the boundary."""

    @property
    def plays(self) -> bool:
        return self.host.alive and not self.closed and self.held_by is None

    @property
    def queued(self) -> int:
        return self.block + len(self.queue)

    def act(self, number: int, action: int) -> int | None:
        """None, or the number that is due where `number` jumps ahead."""
        if number > self.queued + 1:
            return self.queued + 1
        if number == self.queued + 1:
            self.queue.append(action)
            self._go_on()
        return None

    def hold(self, move: str, then: Callable[[], None]) -> None:
        self.waiting = (move, then)
        if not self.busy:
            self._boundary()

    def release(self, move: str) -> None:
        if self.waiting is not None and self.waiting[0] == move:
            self.waiting = None
        if self.held_by == move:
            self.held_by = None
            self._boundary()

    def _boundary(self) -> None:
        if self.waiting is not None and self.held_by is None:
            self.held_by, then = self.waiting
            self.waiting = None
            self.host.sim.after(0.001, then)
        self._go_on()

    def _go_on(self) -> None:
        if self.plays and self.queue and not self.busy:
            self.busy = True
            self.host.sim.after(BLOCK_S, self._finish_block)

    def _finish_block(self) -> None:
        self.busy = False
        if self.closed or not self.host.alive:
            return
        self.block += 1
        advance(self.arena.data, self.block, self.queue.pop(0))
        self.host.sim.gateway.block_from(self)
        self._boundary()
