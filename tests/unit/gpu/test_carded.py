"""A world whose state is elsewhere than in the arena is a world like any other."""

import numpy as np
import pytest
import torch

from worldline.errors import BadValue, LayoutRefused
from worldline.gpu.carded import Carded, CardMemory
from worldline.schema.inventory import Kind, Realloc, Roll, Rule
from worldline.snapshot.arena import Arena
from worldline.snapshot.memory import ArenaMemory, arena_capacity
from worldline.testing.worlds import WORLD_CHECKS, check_world
from worldline.worlds.protocol import Readout

CPU = torch.device("cpu")
"""Stands in for a card: its tensors are mirrored as a card's are."""


class BeltLive:
    """A window that rolls, a turned view of it, a feature made anew by each block, a counter and a generator."""

    rules = (Rule("window", Kind.CACHE, Roll(dim=0, shift=2)), Rule("feature", Kind.CACHE, Realloc()))

    def __init__(self, window, turned, feature, chance, count):
        self.window, self.turned, self.feature, self.chance, self.count = window, turned, feature, chance, count

    def step(self, action):
        if not 0 <= action < 2:
            raise BadValue(f"there is no action {action}")
        self.window[:-2] = self.window[2:].clone()
        self.window[-2:] = torch.randn(2, 8, generator=self.chance) + action + self.feature.sum() / 64
        self.feature = torch.tanh(self.window.sum(0) + self.turned.sum() + self.count)
        self.count += 1
        shown = (
            (self.window.sum(1) * 16 + self.feature.sum() * 999).to(torch.int64).remainder(256).to(torch.uint8).numpy()
        )
        return np.resize(shown, (1, 4, 4, 3))

    def state(self):
        return {
            "window": self.window,
            "turned": self.turned,
            "feature": self.feature,
            "chance": self.chance,
            "count": self.count,
        }


class BeltWorld:
    name, actions, readout, state_bytes_max = "belt", ("stay", "go"), Readout("image", 1, 4, 4), 64 * 1024

    def facts(self):
        return {"weights": "none"}

    def open(self, seed, memory):
        window = memory.zeros("window", (6, 8), torch.float32)
        return BeltLive(window, window.t()[:3], torch.zeros(8), torch.Generator().manual_seed(seed), 0)

    def restore(self, tree, memory):
        return BeltLive(tree["window"], tree["turned"], tree["feature"], tree["chance"], tree["count"])


CHECKS = [check for check in WORLD_CHECKS if check != "nothing-left-out"]
"""On a stand-in that is the host's own memory it makes no difference what is listed as being on the card."""


@pytest.mark.parametrize("check", CHECKS)
def test_a_carded_world_conforms(check):
    findings = check_world(Carded(BeltWorld(), CPU), checks=[check])
    assert not findings, "\n".join(map(str, findings))


def test_it_goes_on_as_the_inner_world_does():
    world, carded = BeltWorld(), Carded(BeltWorld(), CPU)
    with Arena.create(arena_capacity(carded.state_bytes_max), "x") as arena:
        plain, live = world.open(3, CardMemory(CPU)), carded.open(3, ArenaMemory(arena))
        for action in (1, 0, 1):
            assert plain.step(action).tobytes() == live.step(action).tobytes()
            shown = live.state()
            assert torch.equal(shown["world"]["window"], plain.window)
            assert shown["world"]["turned"].data_ptr() == shown["world"]["window"].data_ptr()
            assert shown["on_card"] == "feature\nturned\nwindow"


def test_a_state_without_a_card_is_refused():
    with Arena.create(1 << 20, "x") as arena, pytest.raises(LayoutRefused, match="card"):
        Carded(BeltWorld(), CPU).restore({"position": 1}, ArenaMemory(arena))
