"""Sessions of every world that ships, and of the tiny one, can be moved; the suite sees each planted fault."""

import numpy as np
import pytest
import torch

from worldline.schema.inventory import Kind, Rule, Static
from worldline.testing.tiny import TinyLive, TinyWorld
from worldline.testing.worlds import WORLD_CHECKS, check_world
from worldline.worlds.registry import build_world

WORLDS = {
    "tiny": ("worldline.testing.tiny:TinyWorld", {}),
    "load": ("load", {"bytes": "1.5MB", "layers": 2, "horizon_frames": 12}),
    "lm": ("lm", {"weights": "random", "context_tokens": 240}),
    "diffusers": ("diffusers", {}),
    "reference": ("reference", {}),
}


@pytest.fixture(scope="module", params=WORLDS)
def world(request):
    name, options = WORLDS[request.param]
    return build_world(name, options)


@pytest.mark.parametrize("check", WORLD_CHECKS)
def test_world_conforms(world, check):
    findings = check_world(world, checks=[check])
    assert not findings, "\n".join(map(str, findings))


# ---- negative controls: each fault is planted in the tiny world and found by the check made for it


class Planted(TinyWorld):
    """The tiny world with another engine side."""

    live = TinyLive

    def open(self, seed, memory):
        sound = super().open(seed, memory)
        return self.live(sound._model, sound._options, sound._s)

    def restore(self, tree, memory):
        sound = super().restore(tree, memory)
        return self.live(sound._model, sound._options, sound._s)


class UnwrittenMemoryShown(TinyLive):
    def state(self):
        return super().state() | {"log": self._s.log}


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


class IdleEntry(TinyLive):
    def state(self):
        return super().state() | {"idle": torch.ones(3)}

    def step(self, action):
        with_idle, self.state = self.state, lambda: TinyLive.state(self)
        try:
            return super().step(action)
        finally:
            self.state = with_idle


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


class FloatInState(TinyLive):
    def state(self):
        return super().state() | {"speed": 0.5}


class AnyActionTaken(TinyLive):
    def step(self, action):
        return super().step(action % 5)


def planted(live):
    return type(live.__name__, (Planted,), {"live": live})


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        ("equal-seeds", planted(UnwrittenMemoryShown)),
        ("seeds-differ", SeedIgnored),
        ("restore", planted(EntryLeftOut)),
        ("restore", RestoreDraws),
        ("restore", AliasLost),
        ("restore", planted(FloatInState)),
        ("nothing-left-out", planted(IdleEntry)),
        ("private-chance", planted(GlobalChanceRead)),
        ("private-chance", planted(GlobalChanceWritten)),
        ("looking", planted(LookingCounts)),
        ("write-rules", planted(RollNotDeclared)),
        ("sessions-apart", planted(OrderOnModule)),
        ("within-bound", BoundTooLow),
        ("readout", planted(FramesOfFloats)),
        ("wrong-actions", planted(AnyActionTaken)),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else value,
)
def test_planted_fault_is_found(check, fault):
    (finding, *_) = check_world(fault({}), checks=[check])
    assert finding.check == check
    assert finding.sentence
    assert finding.remedy
    assert "the engine must not fail here" not in finding.remedy
