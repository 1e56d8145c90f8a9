"""The error tree: one class a code, exit codes by kind, and a faithful crossing of process boundaries."""

from __future__ import annotations

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
