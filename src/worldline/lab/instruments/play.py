"""One session played in this process, by actions that a seed decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from worldline.clock import Clock, SystemClock
from worldline.errors import BadValue
from worldline.worlds.options import options_of
from worldline.worlds.protocol import LiveWorld, Options, World
from worldline.worlds.registry import build_world
from worldline.worlds.scratch import ScratchMemory


def world_of(name: str, option: Sequence[str], defaults: Options | None = None) -> World:
    """The world with options as a command line has them; `defaults` where it does not name them."""
    return build_world(name, {**(defaults or {}), **options_of(tuple(option))})


def actions_of(world: World, seed: int, blocks: int) -> list[int]:
    """An action a block, each as likely as another: what one key alone would write is told from what all write."""
    draw, count = Random(seed), max(1, len(world.actions))
    return [draw.randrange(count) for _ in range(blocks)]


def at_least(what: str, value: int, least: int) -> int:
    """`value`. Raises `BadValue` below `least`."""
    if value < least:
        raise BadValue(f"{what} must be {least} or more, not {value}")
    return value


@dataclass(slots=True)
class Play:
    """A session and how long its blocks took."""

    live: LiveWorld
    seconds: list[float]
    clock: Clock

    @classmethod
    def open(cls, world: World, seed: int) -> Play:
        return cls(world.open(seed, ScratchMemory()), [], SystemClock())

    def step(self, action: int) -> np.ndarray:
        began_s = self.clock.monotonic_s()
        shown = self.live.step(action)
        self.seconds.append(self.clock.monotonic_s() - began_s)
        return shown
