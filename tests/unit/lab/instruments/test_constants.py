"""The table of constants is what the committed data makes of it."""

from __future__ import annotations

from pathlib import Path

from worldline.lab.instruments.constants import table

DOCS = Path(__file__).parents[4] / "docs"


def test_the_table_in_the_docs_is_what_the_data_makes():
    made = table(DOCS / "instruments")
    assert made in (DOCS / "instruments.md").read_text()
    assert "not measured" not in made
