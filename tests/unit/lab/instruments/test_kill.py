"""Lossless handles pass and lossy ones lose, against a twin; a handle of one's own is run like those built in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from worldline.cli import main
from worldline.lab.instruments import handles
from worldline.lab.psnr import EQUAL_DB

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"


def zero_nothing(state: handles.State) -> handles.State:
    """A handle of one's own that loses nothing."""
    return dict(state)


def test_lossless_handles_pass_with_equal_bytes_and_lossy_ones_are_told_in_db(capsys, tmp_path):
    names = [
        *handles.LOSSLESS,
        "int4",
        "evict half",
        "partial state",
        "recompute elsewhere",
        f"{__name__}:zero_nothing",
    ]
    words = [word for name in names for word in ("--handle", name)]
    assert main(["lab", "kill", *words, "--cut", "9", "--blocks", "3", "--out", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = {each["name"]: each for each in told["handles"]}
    assert found["recompute elsewhere"]["kind"] == found["partial state"]["kind"] == "escape"
    assert len(told["drift"]["sharpness"]) == 3
    for name in (*handles.LOSSLESS, f"{__name__}:zero_nothing"):
        assert found[name]["equal_bytes"]
        assert found[name]["psnr_db"] == [EQUAL_DB] * 3
        assert found[name]["verdict"].startswith("passes")
    for name in ("int4", "evict half", "partial state"):
        assert not found[name]["equal_bytes"]
        assert found[name]["state_error"] > 0 or name == "partial state"
        assert found[name]["psnr_db_min"] < EQUAL_DB
    names = {path.name for path in tmp_path.glob("figures/*.png")}
    assert names == {"over-time.png", "worst.png", "drift.png"}


def test_the_documented_example_of_a_handle_and_a_predictor_runs(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    words = ["--handle", "own_handles:every_other_row", "--predictor", "own_handles:rolled_by_half"]
    assert main(["lab", "kill", *words, "--cut", "9", "--blocks", "2", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["handles"]}
    lossy, behind = found["own_handles:every_other_row"], found["residual behind own_handles:rolled_by_half"]
    assert len(found) == 2
    assert lossy["state_error"] > behind["state_error"] > 0


def test_a_world_without_pictures_and_a_handle_that_is_not_there_are_refused():
    assert main(["lab", "kill", "--world", "lm", "--option", "weights=random"]) == 2
    assert main(["lab", "kill", "--handle", "nowhere:nothing", "--blocks", "1", "--cut", "9"]) == 2


@pytest.mark.parametrize(("name", "most"), [("bf16", 0.004), ("fp8", 0.04), ("int8", 0.02), ("int4", 0.2)])
def test_a_coarser_handle_errs_within_its_step(name, most):
    state = {"kv/0/k": torch.randn(2, 40, 32, generator=torch.Generator().manual_seed(1))}
    made = handles.LOSSY[name]({"kv/0/k": state["kv/0/k"].clone()})
    off = handles.norm({"kv/0/k": made["kv/0/k"] - state["kv/0/k"]}) / handles.norm(state)
    assert 0 < off < most


def test_rows_that_another_session_has_too_are_shared_without_loss():
    state = {"kv/0/k": torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(1))}
    other = {"kv/0/k": state["kv/0/k"].flip(1)}
    made = handles.deduplicated(other, 0.0)(dict(state))
    assert torch.equal(made["kv/0/k"], state["kv/0/k"])
