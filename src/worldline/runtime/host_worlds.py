"""The engines of a host: built when first asked for, kept, and named by their plan. And what memory the host has
left.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from worldline.clock import Clock
from worldline.errors import BadValue, NoCapacity
from worldline.runtime.messages import SessionSpec
from worldline.schema.plan import Plan
from worldline.units import format_bytes, format_seconds
from worldline.worlds.plan import plan_of
from worldline.worlds.protocol import World
from worldline.worlds.registry import build_world

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Built:
    """An engine and the plan by which it computes."""

    world: World
    plan: Plan

    def problem_with(self, action: int) -> tuple[str, str] | None:
        """Code and sentence if the world has no such action. Asked before the action is queued: in a step it would
        poison.
        """
        count = len(self.world.actions)
        if self.world.readout.kind == "image" and not 0 <= action < count:
            return BadValue.code, f"world {self.world.name!r} has no action {action}; it has 0 to {count - 1}"
        if action < -1 or (count and action >= count):
            return BadValue.code, f"world {self.world.name!r} has no token {action}"
        return None


class Engines:
    """Worlds by name and options. One is built at a time, in a thread of its own; sessions play on meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._built: dict[bytes, Built] = {}
        self._building = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="builder")

    @property
    def names(self) -> list[str]:
        """The worlds built so far."""
        return sorted({built.world.name for built in self._built.values()})

    async def get(self, spec: SessionSpec) -> Built:
        """The engine for `spec`. Raises `UnknownWorld`, `MissingExtra`, `BadValue`."""
        key = msgspec.msgpack.encode((spec.world, sorted(spec.options.items())))
        if key in self._built:  # nobody waits for another world to be built
            return self._built[key]
        async with self._building:
            if key not in self._built:
                loop = asyncio.get_running_loop()
                self._built[key] = await loop.run_in_executor(self._pool, self._build, spec)
            return self._built[key]

    def close(self) -> None:
        self._pool.shutdown(wait=True)

    def _build(self, spec: SessionSpec) -> Built:
        began_s = self._clock.monotonic_s()
        world = build_world(spec.world, spec.options)
        plan = plan_of(world)
        spent_s = self._clock.monotonic_s() - began_s
        log.info("world %s is ready after %s, plan %s", spec.world, format_seconds(spent_s), plan.digest[:12])
        return Built(world, plan)


class MemoryLedger:
    """Who holds how much of the host's limit. A reservation is made before the memory is touched, and given back
    after.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._held: dict[str, int] = {}

    @property
    def used_bytes(self) -> int:
        return sum(self._held.values())

    def reserve(self, holder: str, nbytes: int) -> None:
        """Raises `NoCapacity`; a holder reserves once."""
        assert holder not in self._held, f"{holder} holds memory already"
        free_bytes = self.limit_bytes - self.used_bytes
        if nbytes > free_bytes:
            raise NoCapacity(
                f"{format_bytes(nbytes)} needed, {format_bytes(free_bytes)} of {format_bytes(self.limit_bytes)} free",
                needed_bytes=nbytes,
                free_bytes=free_bytes,
                limit_bytes=self.limit_bytes,
            )
        self._held[holder] = nbytes

    def hand_on(self, holder: str, heir: str) -> None:
        """The same memory under another name."""
        assert heir not in self._held, f"{heir} holds memory already"
        self._held[heir] = self._held.pop(holder)

    def release(self, holder: str) -> None:
        """Idempotent."""
        self._held.pop(holder, None)
