"""What an entry is, told by its bytes: each world's families, and entries drawn at random from all write rules."""

from __future__ import annotations

import json

import pytest

from worldline.cli import main
from worldline.lab.instruments.classes import StateClass, Told, agrees, tell
from worldline.lab.instruments.classify import CLASSES, Part, confuse, engine_class, watch
from worldline.lab.instruments.play import actions_of
from worldline.schema.inventory import Kind, Once, Roll, Rule, Static
from worldline.worlds.registry import build_world
from worldline.worlds.scratch import ScratchMemory

LM = {"weights": "random", "context_tokens": 240, "tokens_per_block": 4}
WORLDS = {
    "reference": (
        ("reference", {}),
        {"kv/0/k": "window-rewrite", "action_kv/1/v": "window-rewrite", "decoder_features/0": "re-allocated",
         "noise": "recurrent", "last_frame": "recurrent", "frame": "recurrent"},
    ),
    "load": (
        ("load", {"bytes": "1.5MB", "layers": 2, "horizon_frames": 12}),
        {"kv_cache1/0/k": "window-rewrite", "kv_cache_mouse/0/k": "window-rewrite",
         "kv_cache_mouse/1/k": "never written",
         "crossattn_cache/0/k": "once", "feat_cache/3": "re-allocated", "noise": "never written",
         "generator": "recurrent"},
    ),
    "diffusers": (
        ("diffusers", {}),
        {"kv_cache/1/full_cache": "recurrent", "latents": "window-rewrite", "chance": "recurrent"},
    ),
    "lm": (("lm", LM | {"context_tokens": 900}), {"layers/0/k": "append-only", "ids": "append-only"}),
    "lm static sliding": (
        ("lm", LM | {"cache": "static-sliding", "window_tokens": 32}), {"layers/0/k": "window-rewrite"},
    ),
    "lm full": (("lm", LM | {"context_tokens": 230}), {"layers/0/v": "window-rewrite", "ids": "window-rewrite"}),
    "lm static": (("lm", LM | {"cache": "static"}), {"layers/0/k": "window-rewrite", "layers/1/v": "window-rewrite"}),
}  # fmt: skip
"""What each world's source says of these entries; no adapter's rule was asked."""


@pytest.mark.parametrize(("world", "truth"), WORLDS.values(), ids=WORLDS)
def test_a_worlds_families_are_named_rightly(world, truth):
    built = build_world(*world)
    live = built.open(3, ScratchMemory())
    last, changes = watch(live, actions_of(built, 3, 18))
    told = {path: tell(changes[path]) for path in truth}
    assert {path: str(each.state_class) for path, each in told.items()} == truth
    assert all(agrees(last.pieces[path].rule, tell(each)) for path, each in changes.items())


def test_every_entry_drawn_from_all_write_rules_is_told_as_what_it_was_written():
    counts, wrong = confuse(8, seed=11)
    assert not wrong
    assert [[min(count, 1) for count in row] for row in counts] == [
        [int(row == column) for column in range(len(CLASSES))] for row in range(len(CLASSES))
    ]


def test_an_engine_is_named_by_what_its_blocks_go_on_writing():
    rolled, left, anew = Part("window-rewrite", 0.2), Part("never written", 0.7), Part("recurrent", 0.1)
    assert engine_class([left, rolled, anew]) == "window-rewrite and recurrent"
    assert engine_class([left, rolled, Part("recurrent", 0.01)]) == "window-rewrite"
    assert engine_class([left]) == "never written"


def test_a_rule_that_the_bytes_break_is_seen():
    window, ring = Told(StateClass.WINDOW, ""), Told(StateClass.RING, "")
    assert agrees(Rule("*", Kind.CACHE, Roll(0, 2)), window)
    assert not agrees(Rule("*", Kind.CACHE, Roll(0, 2)), ring)
    assert not agrees(Rule("*", Kind.CACHE, Static()), ring)
    assert agrees(Rule("*", Kind.DERIVED, Once()), ring)


def test_the_command_prints_the_confusion_matrix_and_ends_well(capsys, tmp_path):
    words = ["--world", "load", "--option", "bytes=1.5MB", "--option", "layers=2", "--option", "vae=false"]
    assert main(["lab", "classify", *words, "--blocks", "6", "--drawn", "1", "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["diagonal_full"]
    assert found["agree"]
    assert [sum(row) for row in found["confusion"]] == [2] * len(CLASSES)
    assert found["main"][0]["state_class"] == "window-rewrite"
    assert sum(each["part"] for each in found["main"]) == pytest.approx(1.0)
    assert {path.name for path in tmp_path.glob("figures/*.png")} == {"classes.png", "confusion.png"}
