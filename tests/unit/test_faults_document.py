"""docs/faults.md has every row of the faults that other systems met, and names only tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = 29
NAMED = re.compile(r"`([a-z_/.]+)::(test_[a-z0-9_]+)(?:\[([^`]*)\])?`")


def rows() -> dict[int, str]:
    text = (ROOT / "docs" / "faults.md").read_text()
    return {int(found[1]): found[0] for found in re.finditer(r"^\| (\d+) \|.*$", text, re.MULTILINE)}


def home(module: str) -> Path:
    """A file of tests, or a suite that ships."""
    if module.endswith(".py"):
        return ROOT / "tests" / module
    return ROOT / "src" / Path(*module.split(".")).with_suffix(".py")


def test_every_row_is_there_once_and_in_order() -> None:
    assert list(rows()) == list(range(1, ROWS + 1))


@pytest.mark.parametrize("row", range(1, ROWS + 1))
def test_each_row_names_tests_that_exist(row: int) -> None:
    named = NAMED.findall(rows()[row])
    assert named
    assert len(named) == rows()[row].count("::")
    for module, test, case in named:
        text = home(module).read_text()
        assert f"def {test}(" in text, (module, test)
        for word in case.split("-") if case else ():
            assert word in text, f"{module} has no case {case}"
