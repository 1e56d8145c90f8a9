"""The error tree: one class a code, exit codes by kind, and a faithful crossing of process boundaries."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from worldline import errors

REFUSALS = [
    "CORRUPT", "STALE_EPOCH", "PLAN_MISMATCH", "LAYOUT", "NO_CAPACITY", "DEADLINE", "BANDWIDTH", "LANE", "INCAST",
    "STATE_LOST", "POISONED", "UNAUTHENTICATED",
]  # fmt: skip


@pytest.mark.parametrize("code", REFUSALS)
def test_every_refusal_of_the_design_has_its_own_class(code: str) -> None:
    assert issubclass(errors.BY_CODE[code], errors.Refused)


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_an_error_crosses_a_process_boundary_unchanged(code: str) -> None:
    sent = errors.BY_CODE[code]("It did not fit.", host="b", bytes_free=12)
    record = sent.to_record()
    assert record == {"code": code, "sentence": "It did not fit.", "facts": {"host": "b", "bytes_free": 12}}
    got = errors.from_record(code, sent.sentence, sent.facts)
    assert type(got) is type(sent)
    assert (got.sentence, got.facts) == (sent.sentence, sent.facts)


def test_an_unknown_code_is_not_taken_for_a_known_one() -> None:
    got = errors.from_record("FROM_THE_FUTURE", "What is this?", {})
    assert type(got) is errors.Internal
    assert "FROM_THE_FUTURE" in got.sentence


def test_kinds_of_trouble_have_different_exit_codes() -> None:
    kinds = [errors.BadValue, errors.NotFound, errors.Conflict, errors.Refused, errors.Unavailable]
    others = [errors.MissingExtra, errors.Unsupported, errors.Internal]
    assert len({kind.exit_code for kind in [*kinds, *others]}) == len(kinds) + len(others)


def test_the_tree_in_the_module_docstring_names_every_code() -> None:
    text = errors.__doc__ or ""
    assert [cls for code, cls in errors.BY_CODE.items() if code not in text and cls.__name__ not in text] == []


def test_the_table_of_exit_codes_names_every_code_in_its_row() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
    table = text.partition("## Exit codes")[2].partition("\n## ")[0]
    rows = {
        int(row[1]): set(row[2].split()) for row in re.finditer(r"^\| (\d+) \|.*\| ([A-Z_ ]+) \|$", table, re.MULTILINE)
    }
    told: dict[int, set[str]] = {}
    for code, cls in errors.BY_CODE.items():
        if cls is not errors.WorldlineError:
            told.setdefault(cls.exit_code, set()).add(code)
    assert rows == told


@pytest.mark.parametrize(
    ("fact", "told"), [(2**80, hex(2**80)), (-(2**63) - 1, hex(-(2**63) - 1)), ("a\udcff", "a\\udcff")]
)
def test_whatever_an_error_was_made_from_every_message_can_carry_it(fact, told):
    error = errors.BadValue(f"not {fact}", given=fact)
    assert error.facts["given"] == told
    msgspec.msgpack.encode(error.to_record())
    assert json.loads(msgspec.json.encode(error.to_record()))["facts"]["given"] == told
