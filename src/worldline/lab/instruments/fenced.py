"""A world whose faults are told as typed errors: an instrument's own are then those that are left.

Invariant: what an engine raises that is no `WorldlineError` comes out as `Poisoned`, with the engine's own words as the
fact `fault`; a block that is not what the world declares is such a fault. Nothing else of the world is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from worldline.errors import Poisoned, WorldlineError
from worldline.schema.inventory import Rule
from worldline.worlds.protocol import LiveWorld, Memory, Readout, Tree, World
from worldline.worlds.told import FAULTS, told


@contextlib.contextmanager
def engine_at_work(doing: str) -> Iterator[None]:
    """Raises `Poisoned` for whatever an engine raises inside."""
    try:
        yield
    except WorldlineError:
        raise
    except FAULTS as error:
        fault = told(error)
        raise Poisoned(f"the engine failed {doing}: {fault}", fault=fault) from error


@dataclass(slots=True)
class FencedLive:
    """A `LiveWorld`. `block` counts its steps."""

    world: str
    readout: Readout
    live: LiveWorld
    rules: Sequence[Rule]
    block: int = 0

    def step(self, action: int) -> np.ndarray:
        self.block += 1
        with engine_at_work(f"in block {self.block} of world {self.world!r}"):
            shown = self.live.step(action)
            _check(shown, self.readout)
        return shown

    def state(self) -> Tree:
        with engine_at_work(f"to tell its state after block {self.block} of world {self.world!r}"):
            return self.live.state()


class FencedWorld:
    """A `World` over another."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.name: str = world.name
        with engine_at_work("to tell its actions"):
            self.actions: Sequence[str] = tuple(world.actions)
        self.readout: Readout = world.readout
        self.state_bytes_max: int = world.state_bytes_max

    def facts(self) -> Mapping[str, str]:
        with engine_at_work("to tell its facts"):
            return self._world.facts()

    def open(self, seed: int, memory: Memory) -> LiveWorld:
        with engine_at_work(f"to open world {self.name!r}"):
            return self._fenced(self._world.open(seed, memory))

    def restore(self, tree: Tree, memory: Memory) -> LiveWorld:
        with engine_at_work(f"to restore world {self.name!r}"):
            return self._fenced(self._world.restore(tree, memory))

    def _fenced(self, live: LiveWorld) -> LiveWorld:
        rules = tuple(live.rules)
        for rule in rules:
            _check_rule(rule)
        return FencedLive(self.name, self.readout, live, rules)


def _check_rule(rule: object) -> None:
    if not isinstance(rule, Rule):
        raise TypeError(f"{str(rule)[:60]!r} is no rule")


def _check(shown: object, declared: Readout) -> None:
    """Raises `ValueError` for a block that is not as the protocol has it."""
    if not isinstance(shown, np.ndarray) or shown.dtype != np.uint8:
        kind = getattr(shown, "dtype", type(shown).__name__)
        raise ValueError(f"a block is {kind}, and not an array of uint8")
    image = (declared.frames_per_block, declared.height, declared.width, 3)
    if (shown.shape != image) if declared.kind == "image" else (shown.ndim != 1):
        raise ValueError(f"a block has shape {shown.shape}, and is declared as {declared}")
