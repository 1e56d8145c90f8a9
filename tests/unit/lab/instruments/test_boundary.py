"""Two plans from one cut: a plan against itself is equal, and another one is told from it."""

from __future__ import annotations

import json

import numpy as np

from worldline.cli import main
from worldline.lab.instruments.boundary import compare
from worldline.lab.instruments.elsewhere import Side


def side(shown: list[np.ndarray], blocks: list[dict[str, str]], **early: np.ndarray) -> Side:
    return Side(shown, {}, blocks, {name.replace("_", ":"): octets for name, octets in early.items()})


def test_the_same_plan_is_equal_and_another_is_told_with_its_first_byte(capsys, tmp_path):
    words = ["--path", "aten default", "--cut", "2", "--blocks", "3", "--out", str(tmp_path), "--json"]
    assert main(["lab", "boundary", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    same, other = found["crossings"]
    assert (same["verdict"], same["first_block"], same["facts_differ"]) == ("T0 holds: equal bytes", 0, [])
    assert other["facts_differ"] in ([], ["torch.cpu_capability"])  # no others on a machine without wider kernels
    assert (other["first_byte"] is not None) == bool(other["first_block"])
    assert len(found["drift"]["contrast"]) == 3
    assert {path.name for path in tmp_path.glob("figures/*.png")} == {"over-time.png", "drift.png"}
    assert not [*tmp_path.glob("side-*"), *tmp_path.glob("*.npz")]


def test_an_unknown_plan_is_refused_by_name():
    assert main(["lab", "boundary", "--path", "nothing", "--blocks", "2"]) == 2


def test_words_that_part_are_told_by_their_block_and_have_no_decibels():
    first, second, other = (np.frombuffer(text, np.uint8) for text in (b"once ", b"upon", b"and then"))
    source = side([first, second], [{"ids": "a"}, {"ids": "b"}])
    target = side([first, other], [{"ids": "a"}, {"ids": "c"}])
    found = compare("another", source, target, 35.0)
    assert (found.first_block, found.first_frame, found.first_entry) == (2, 2, "ids")
    assert (found.psnr_db, found.psnr_db_worst) == ([], None)
    assert found.verdict == "T0 fails: words differ from block 2"


def test_the_first_byte_the_first_frame_and_the_loss_without_the_first_block_are_told():
    grey, other = np.full((2, 4, 4, 3), 100, np.uint8), np.full((2, 4, 4, 3), 100, np.uint8)
    other[1] += 10
    octets, moved = np.zeros(8, np.uint8), np.array([0, 0, 0, 7, 0, 0, 0, 0], np.uint8)
    source = side([grey, grey], [{"kv": "a"}, {"kv": "b"}], **{"1_kv": octets, "2_kv": octets})
    target = side([grey, other], [{"kv": "c"}, {"kv": "d"}], **{"1_kv": moved, "2_kv": moved})
    found = compare("another", source, target, 35.0)
    assert (found.first_block, found.first_byte, found.first_frame) == (1, 3, 4)
    assert found.psnr_db_worst == found.psnr_db[1] < 35.0
    assert found.verdict == "T1 fails at block 2"
