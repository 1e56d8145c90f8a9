"""The examples of docs/capacity.md are what the functions say."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from worldline.capacity.formulas import FORMULAS

PAGE = Path(__file__).parents[3] / "docs" / "capacity.md"


def test_every_example_of_the_page_is_true() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert (failed, tried > 40) == (0, True)


def test_the_page_names_every_module() -> None:
    modules = {path.stem for path in (PAGE.parents[1] / "src" / "worldline" / "capacity").glob("[a-z]*.py")}
    named = set(re.findall(r"`([a-z_]+)`", PAGE.read_text().split("## May a move begin")[0]))
    assert modules - {"domain", "distributions"} <= named
    assert len(FORMULAS) == 34
