"""docs/protocol.md says what the machines do."""

from __future__ import annotations

from pathlib import Path

import pytest

from worldline.control import diagram

DOCUMENT = Path(__file__).parents[3] / "docs" / "protocol.md"


def test_the_document_shows_the_tables_that_the_machines_run_on() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert diagram.rewrite(text) == text, "run: python -m worldline.control.diagram docs/protocol.md"


def test_the_document_has_every_part() -> None:
    assert sorted(diagram.parts_in(DOCUMENT.read_text(encoding="utf-8"))) == sorted(diagram.PARTS)


def test_a_document_that_is_behind_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("a\n<!-- generated: verbs -->\nold\n<!-- end -->\nb\n", encoding="utf-8")
    assert diagram.main([str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert "| running | running | moving | moving | NOT_PARKED |" in text
    assert text.startswith("a\n")
    assert text.endswith("<!-- end -->\nb\n")


def test_an_unknown_part_is_an_error() -> None:
    with pytest.raises(KeyError):
        diagram.rewrite("<!-- generated: nothing -->\n<!-- end -->")
