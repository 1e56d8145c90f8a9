"""What the instruments say of Matrix-Game-2's own code."""

import json

import pytest

from worldline.cli import main
from worldline.lab.instruments.looks import look
from worldline.lab.instruments.play import Play
from worldline.worlds.load_shape import Family, Shape, rewritten_fraction
from worldline.worlds.registry import build_world

WORLD = "matrix-game-2"


@pytest.mark.timeout(600)
def test_without_a_family_matrix_game_2_breaks_as_loudly_as_was_found(capsys, needs_checkout):
    needs_checkout(WORLD)
    assert main(["lab", "inventory", "--world", WORLD, "--option", "horizon_frames=81", "--json"]) == 0
    outcomes = {loss["name"]: loss["outcome"] for loss in json.loads(capsys.readouterr().out)["families"]}
    assert outcomes["generator"] == outcomes["cond"] == outcomes["noise"] == "diverges"
    assert outcomes["kv_cache_mouse"] == outcomes["kv_cache_keyboard"] == "fails loudly"
    assert outcomes["feat_cache"] == "silent picture error"
    assert outcomes["crossattn_cache"] == "derived"


@pytest.mark.timeout(600)
def test_matrix_game_2s_rules_at_the_real_widths_rewrite_what_loads_shapes_do(needs_checkout):
    needs_checkout(WORLD)
    live = Play.open(build_world(WORLD, {"size": "widths"}), 1).live
    pieces = [piece for piece in look(live).pieces.values() if piece.in_place]
    context = 2 * 2 * 257 * 1536 * 4  # cross-attention, which the first block makes
    rewritten = sum(piece.declared[0] for piece in pieces) / (sum(piece.nbytes for piece in pieces) + context)
    load = [entry for entry in Shape(layers=2).entries() if entry.family is Family.CACHE]
    assert rewritten == pytest.approx(rewritten_fraction(load), abs=1e-4)
