"""Two plans from one cut: a plan against itself is equal, and another one is told from it."""

from __future__ import annotations

import json

from worldline.cli import main


def test_the_same_plan_is_equal_and_another_is_told_with_its_first_byte(capsys, tmp_path):
    words = ["--path", "aten default", "--cut", "2", "--blocks", "3", "--out", str(tmp_path), "--json"]
    assert main(["lab", "boundary", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    same, other = found["crossings"]
    assert (same["verdict"], same["first_block"], same["facts_differ"]) == ("T0 holds: equal bytes", 0, [])
    assert other["facts_differ"] in ([], ["torch.cpu_capability"])  # no others on a machine without wider kernels
    assert (other["first_byte"] is not None) == bool(other["first_block"])
    assert not list(tmp_path.glob("side-*"))


def test_an_unknown_plan_is_refused_by_name():
    assert main(["lab", "boundary", "--path", "nothing", "--blocks", "2"]) == 2
