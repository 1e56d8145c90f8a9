"""A world or a handle that misbehaves gives an instrument one sentence, never a traceback and never a verdict."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch

from worldline.cli import main
from worldline.errors import BadValue
from worldline.lab.instruments.handles import State, made_by
from worldline.testing.tiny import TinyLive, TinyWorld

HERE = __name__


class Other(TinyWorld):
    live = TinyLive

    def open(self, seed, memory):
        sound = super().open(seed, memory)
        return self.live(sound._model, sound._options, sound._s)


class RaisesLive(TinyLive):
    def step(self, action):
        raise ValueError("no such layer")


class Raises(Other):
    live = RaisesLive


class ExitsLive(TinyLive):
    def step(self, action):
        sys.exit(0)


class Exits(Other):
    live = ExitsLive


class OddLive(TinyLive):
    def step(self, action):
        return super().step(action).astype(np.float32)


class Odd(Other):
    live = OddLive


class UnruledLive(TinyLive):
    rules = ("nonsense",)


class Unruled(Other):
    live = UnruledLive


class Mute(Other):
    def __init__(self, options):
        super().__init__(options)
        self.actions = None


@pytest.mark.parametrize(
    ("world", "said"),
    [
        ("Raises", "the engine failed in block 1 of world 'tiny': ValueError: no such layer"),
        ("Exits", "SystemExit: 0"),
        ("Odd", "a block is float32"),
        ("Unruled", "'nonsense' is no rule"),
        ("Mute", "to tell its actions"),
    ],
)
def test_what_an_engine_raises_is_told_in_one_sentence(world, said, capsys):
    assert main(["lab", "rewrite", "--world", f"{HERE}:{world}", "--blocks", "1", "--warm-up", "1", "--json"]) == 5
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "POISONED"
    assert said in error["sentence"]


STATE: State = {"kv/k": torch.ones(2, 3, 4), "chance": torch.zeros(8, dtype=torch.uint8)}


def exits(state):
    sys.exit(0)


def returns_nothing(state):
    return None


def stretched(state):
    return state | {"kv/k": state["kv/k"][:, :, :1]}


def cast(state):
    return state | {"kv/k": state["kv/k"].double()}


def invented(state):
    return state | {"more": torch.zeros(1)}


@pytest.mark.parametrize("handle", [exits, returns_nothing, stretched, cast, invented], ids=lambda each: each.__name__)
def test_a_handle_that_makes_no_state_of_a_state_is_refused(handle):
    with pytest.raises(BadValue, match=f"the handle '{handle.__name__}'"):
        made_by(handle.__name__, handle, STATE)


def test_a_handle_gets_copies_and_leaves_no_gradients():
    def wipes(state):
        return {path: tensor.zero_() for path, tensor in state.items()}

    assert not made_by("wipes", wipes, STATE)["kv/k"].any()
    assert STATE["kv/k"].all()
    made = made_by("learns", lambda state: {"kv/k": state["kv/k"].requires_grad_()}, STATE)
    assert not made["kv/k"].requires_grad


@pytest.mark.parametrize(
    "words",
    [
        "kill --bound-db nan",
        "boundary --bound-db -1",
        "rewrite --blocks-per-s nan",
        "rewrite --blocks-per-s -1",
        "rewrite --seed -1",
        "classify --seed -1",
        "kill --blocks 99999999999",
        "regime --horizon-s nan",
        "regime --bandwidth-gb-per-s 0",
    ],
)
def test_numbers_that_mean_nothing_are_refused_before_anything_is_played(words):
    assert main(["lab", *words.split()]) == 2
