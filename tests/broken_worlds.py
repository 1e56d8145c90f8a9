"""Worlds with one fault each, planted in the tiny one. What the conformance suite must say of each is beside it."""

import numpy as np
import torch

from worldline.schema.inventory import Kind, Rule, Static
from worldline.testing.causes import Cause
from worldline.testing.tiny import TinyLive, TinyWorld
from worldline.worlds.protocol import Partial


class Planted(TinyWorld):
    """The tiny world with another engine side."""

    live = TinyLive

    def open(self, seed, memory):
        sound = super().open(seed, memory)
        return self.live(sound._model, sound._options, sound._s)

    def restore(self, tree, memory):
        sound = super().restore(tree, memory)
        return self.live(sound._model, sound._options, sound._s)


class UnwrittenMemoryLive(TinyLive):
    def state(self):
        return super().state() | {"log": self._s.log}


class UnwrittenMemoryShown(Planted):
    live = UnwrittenMemoryLive

    def restore(self, tree, memory):
        return super().restore(tree | {"log": Partial(tree["log"], 0, tree["log_rows"])}, memory)


class SeedIgnored(Planted):
    def open(self, seed, memory):
        return super().open(0, memory)


class EntryLeftOut(TinyLive):
    """Keeps a number that `state` does not tell."""

    beat = 0

    def step(self, action):
        self.beat += 1
        self._s.energy += self.beat
        return super().step(action)


class RestoreDraws(Planted):
    def restore(self, tree, memory):
        torch.rand(1, generator=tree["chance"])
        return super().restore(tree, memory)


class AliasLost(Planted):
    def restore(self, tree, memory):
        return super().restore(tree | {"ring_turned": tree["ring_turned"].clone()}, memory)


class Added(TinyLive):
    """Shows one more entry than the engine itself reads."""

    name, value = "idle", 0

    def state(self):
        return super().state() | {self.name: self.value}

    def step(self, action):
        with_entry, self.state = self.state, lambda: TinyLive.state(self)
        try:
            return super().step(action)
        finally:
            self.state = with_entry


class IdleEntry(Added):
    value = torch.ones(3)


class FloatInState(Added):
    name, value = "speed", 0.5


class GlobalChanceRead(TinyLive):
    def step(self, action):
        self._s.energy += torch.initial_seed() % 1000
        return super().step(action)


class GlobalChanceWritten(TinyLive):
    def step(self, action):
        torch.rand(1)
        return super().step(action)


class LookingCounts(TinyLive):
    def state(self):
        self._s.energy += 1
        return super().state()


class RollNotDeclared(TinyLive):
    rules = (Rule("cache/0/k", Kind.CACHE, Static()), *TinyLive.rules)


class OrderOnModule(TinyLive):
    """The module keeps what the session should."""

    def step(self, action):
        self._model.shared = getattr(self._model, "shared", 0) + action
        self._s.energy += self._model.shared
        return super().step(action)


class BoundTooLow(Planted):
    def __init__(self, options):
        super().__init__(options)
        self.state_bytes_max = 1000


class FramesOfFloats(TinyLive):
    def step(self, action):
        return super().step(action).astype(np.float32)


class AnyActionTaken(TinyLive):
    def step(self, action):
        return super().step(action % 5)


class PointerMoved(TinyLive):
    """Binds a new tensor where the session's memory was written to."""

    def step(self, action):
        frames = super().step(action)
        self._s.cache[0]["k"] = self._s.cache[0]["k"].clone()
        return frames


class EngineFails(TinyLive):
    def step(self, action):
        raise RuntimeError("the engine is broken")


class FactsWithoutWeights(Planted):
    def facts(self):
        return {"flavour": "plain"}


def planted(live):
    return type(live.__name__, (Planted,), {"live": live})


BROKEN = {
    UnwrittenMemoryShown: ("equal-seeds", Cause.UNWRITTEN_MEMORY),
    SeedIgnored: ("seeds-differ", Cause.SEED_IGNORED),
    planted(EntryLeftOut): ("restore", Cause.LEFT_OUT),
    RestoreDraws: ("restore", Cause.RESTORE_CHANGED),
    AliasLost: ("restore", Cause.ALIAS_LOST),
    planted(FloatInState): ("restore", Cause.NOT_LAID_OUT),
    planted(EngineFails): ("restore", Cause.ENGINE_FAILED),
    planted(IdleEntry): ("nothing-left-out", Cause.IDLE_ENTRY),
    planted(GlobalChanceRead): ("private-chance", Cause.GLOBAL_CHANCE),
    planted(GlobalChanceWritten): ("private-chance", Cause.GLOBAL_CHANCE),
    planted(PointerMoved): ("pointers", Cause.POINTER_MOVED),
    planted(LookingCounts): ("looking", Cause.LOOKING_WRITES),
    planted(RollNotDeclared): ("write-rules", Cause.UNDECLARED_WRITE),
    planted(OrderOnModule): ("sessions-apart", Cause.SHARED_STATE),
    BoundTooLow: ("within-bound", Cause.BOUND_EXCEEDED),
    planted(FramesOfFloats): ("readout", Cause.READOUT_WRONG),
    planted(AnyActionTaken): ("wrong-actions", Cause.ACTION_TAKEN),
    FactsWithoutWeights: ("facts", Cause.FACTS_WRONG),
}
"""World -> the check that finds its fault, and the cause that is told first when all checks run."""
WORLDS = {world.__name__: world for world in BROKEN}


def __getattr__(name):
    """`broken_worlds:NAME_World` names the world of a fault as the command line names worlds."""
    world = WORLDS.get(name.removesuffix("_World"))
    if world is None or not name.endswith("_World"):
        raise AttributeError(name)
    return world
