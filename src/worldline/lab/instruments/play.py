"""One session played in this process, by actions that a seed decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from worldline.clock import Clock, SystemClock
from worldline.errors import BadValue
from worldline.lab.instruments.fenced import FencedWorld
from worldline.lab.psnr import EQUAL_DB
from worldline.worlds.options import options_of
from worldline.worlds.protocol import LiveWorld, Options, World
from worldline.worlds.registry import build_world
from worldline.worlds.scratch import ScratchMemory

BLOCKS_MAX = 100_000
SEED_MAX = 2**63 - 1


def world_of(name: str, option: Sequence[str], defaults: Options | None = None) -> World:
    """The world with options as a command line has them; `defaults` where it does not name them. What its engine raises
    later is `Poisoned`. Raises as `build_world`.
    """
    return FencedWorld(build_world(name, {**(defaults or {}), **options_of(tuple(option))}))


def actions_of(world: World, seed: int, blocks: int) -> list[int]:
    """An action a block, each as likely as another: what one key alone would write is told from what all write.

    Raises `BadValue` for a seed that no session has.
    """
    if not 0 <= seed <= SEED_MAX:
        raise BadValue(f"a seed is from 0 to {SEED_MAX}, not {seed}")
    draw, count = Random(seed), max(1, len(world.actions))
    return [draw.randrange(count) for _ in range(blocks)]


def checked_count(what: str, value: int, least: int) -> int:
    """`value`. Raises `BadValue` below `least`, and over `BLOCKS_MAX`."""
    if not least <= value <= BLOCKS_MAX:
        raise BadValue(f"{what} must be {least} to {BLOCKS_MAX}, not {value}")
    return value


def checked_decibels(what: str, value: float) -> float:
    """`value`. Raises `BadValue` for what no picture could be held against."""
    if not 0 <= value <= EQUAL_DB:
        raise BadValue(f"{what} is from 0 to {EQUAL_DB:g} dB, not {value}")
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
