"""Files of cases: what a formula was asked and what it should answer. `worldline capacity check` runs them.

A file is JSON: {"cases": [{"id", "model", "inputs", "expected", "rel_tol", "note"}]}. A string in `inputs` may be
a fraction. In `expected`, {"exact": "a/b"} is met only by that very fraction, {"float": x} and plain numbers within the
tolerance: `rel_tol`, or the "abs tol X" of `note` where that is null. What is computed never sees `expected`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import msgspec

from worldline.errors import BadValue, Malformed, WorldlineError

Answer: TypeAlias = "bool | int | float | str | Fraction | Sequence[Answer] | Mapping[str, Answer] | None"
"""What a formula says, or should say."""

CASES_MAX = 100_000
FILE_BYTES_MAX = 64 * 1024 * 1024
EXACT_BITS_MAX = 10_000
"""Of a fraction that is printed; a longer one is left out."""
_EXACT = re.compile(r"-?(?=[0-9.])[0-9]{0,1000}(?:\.[0-9]{0,50})?(?:/[0-9]{1,1000})?\Z")
_ABSOLUTE = re.compile(r"abs tol ([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]{1,3})?)")
_LEAF = {"exact", "float", "int"}
PREFIX = "p"
"""A distribution of which a file may give the first terms only, as printed tables do."""


class Case(msgspec.Struct, frozen=True):
    """One question. Unknown fields (`kind`, `source`) are for people."""

    id: str
    model: str
    inputs: dict[str, object]
    expected: object = None
    rel_tol: float | None = None
    note: str | None = None


class _File(msgspec.Struct, frozen=True):
    cases: list[Case]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    id: str
    model: str
    got: object
    """As JSON: a fraction is {"exact", "float"}; None where nothing could be computed."""
    expected: object
    ok: bool
    error: str | None = None


def read_cases(octets: bytes) -> tuple[Case, ...]:
    """The cases of a file. Raises `Malformed` for anything that isn't one."""
    if len(octets) > FILE_BYTES_MAX:
        raise Malformed(f"a file of cases has at most {FILE_BYTES_MAX} bytes")
    try:
        cases = msgspec.json.decode(octets, type=_File).cases
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(f"this is no file of cases: {error}") from None
    if not 0 < len(cases) <= CASES_MAX:
        raise Malformed(f"a file has 1 to {CASES_MAX} cases, and this one {len(cases)}")
    if len({case.id for case in cases}) != len(cases):
        raise Malformed("two cases have the same id")
    for case in cases:
        if case.rel_tol is not None and not 0 <= case.rel_tol < 1:
            raise Malformed(f"case {case.id}: rel_tol must be from 0 to below 1, and is {case.rel_tol!r}")
    return tuple(cases)


class Inputs:
    """A case's inputs, each read as what it must be. Raises `BadValue`."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        return name in self._values

    def _value(self, name: str) -> object:
        if name not in self._values:
            raise BadValue(f"the inputs have no {name!r}")
        return self._values[name]

    def exact(self, name: str) -> Fraction:
        """The number as it is written: `0.1` and `"1/10"` are the same."""
        return _exact(self._value(name), name)

    def number(self, name: str) -> float:
        return _number(self._value(name), name)

    def whole(self, name: str) -> int:
        return _whole(self._value(name), name)

    def row(self, name: str) -> list[int]:
        """Whole numbers."""
        return [_whole(value, name) for value in _list(self._value(name), name)]

    def table(self, name: str) -> list[list[int]]:
        """Rows of whole numbers."""
        return [[_whole(value, name) for value in _list(row, name)] for row in _list(self._value(name), name)]

    def numbers(self, name: str) -> list[float]:
        return [_number(value, name) for value in _list(self._value(name), name)]

    def exact_table(self, name: str) -> list[list[Fraction]]:
        """Rows of numbers as they are written."""
        return [[_exact(value, name) for value in _list(row, name)] for row in _list(self._value(name), name)]


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise BadValue(f"{name} must be a list, not {value!r:.60}")
    return value


def _number(value: object, name: str) -> float:
    if isinstance(value, str):
        return float(parse_exact(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(f"{name} must be a number, not {value!r:.60}")
    return value


def _exact(value: object, name: str) -> Fraction:
    if isinstance(value, str):
        return parse_exact(value)
    number = _number(value, name)
    if not -1e300 < number < 1e300:
        raise BadValue(f"{name} is too large")
    return Fraction(str(number))  # decimal, as it was written


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(f"{name} must be whole, not {value!r:.60}")
    return value


def parse_exact(text: str) -> Fraction:
    """`'1.67'`, `'13/10'`, `'5'`. Raises `BadValue` for anything else, so for an exponent, which could be endless."""
    if _EXACT.match(text) is None or ("/" in text and "." in text):
        raise BadValue(f"{text!r:.60} is no exact number")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise BadValue(f"{text!r:.60} is no exact number") from None


Formula: TypeAlias = Callable[[Inputs], Answer]


def run_case(case: Case, formulas: Mapping[str, Formula]) -> Outcome:
    """Computes a case from its inputs alone, and compares. Never raises for what a case says."""
    formula = formulas.get(case.model)
    if formula is None:
        return Outcome(case.id, case.model, None, case.expected, False, f"no model {case.model!r} is known")
    try:
        got = formula(Inputs(case.inputs))
    except WorldlineError as error:
        return Outcome(case.id, case.model, None, case.expected, False, error.sentence)
    except ArithmeticError as error:  # a number within its limits, too large together with another
        return Outcome(case.id, case.model, None, case.expected, False, f"can't be computed: {error}")
    return Outcome(case.id, case.model, as_json(got), case.expected, *_compared(got, case))


def _compared(got: Answer, case: Case) -> tuple[bool, str | None]:
    if case.expected is None:
        return False, "nothing is expected of this case"
    found = _ABSOLUTE.search(case.note or "") if case.rel_tol is None else None
    where = difference(got, case.expected, case.rel_tol or 0.0, float(found[1]) if found else 0.0)
    return where is None, where


def difference(got: Answer, expected: object, relative: float, absolute: float, path: str = "") -> str | None:
    """Where `got` isn't what was expected; None where it is."""

    def here(what: str) -> str:
        return f"{path.lstrip('.') or 'the answer'}: {what}"

    if isinstance(expected, dict):
        if expected and expected.keys() <= _LEAF and not isinstance(got, Mapping):
            named = ((value, name) for name, value in expected.items() if value is not None)
            found = (_leaf_differs(got, value, name, relative, absolute) for value, name in named)
            wrong = next((what for what in found if what is not None), None)
            return None if wrong is None else here(wrong)
        if not isinstance(got, Mapping):
            return here(f"{_shown(got)}, not an object with {_names(expected)}")
        for key, value in expected.items():
            wrong = (
                difference(got[key], value, relative, absolute, f"{path}.{key}")
                if key in got
                else here(f"has {_names(got)}, and no {key:.60}")
            )
            if wrong is not None:
                return wrong
        return None
    if isinstance(expected, list):
        if not isinstance(got, list | tuple):
            return here(f"{_shown(got)}, not a list of {len(expected)} terms")
        if len(got) != len(expected) and not (path == f".{PREFIX}" and 0 < len(expected) < len(got)):
            return here(f"has {len(got)} terms, not {len(expected)}")
        for at, (one, other) in enumerate(zip(got, expected, strict=False)):
            wrong = difference(one, other, relative, absolute, f"{path}[{at}]")
            if wrong is not None:
                return wrong
        return None
    leaf = _leaf_differs(got, expected, "exact" if isinstance(expected, str) else "float", relative, absolute)
    return None if leaf is None else here(leaf)


def _leaf_differs(got: Answer, expected: object, name: str, relative: float, absolute: float) -> str | None:
    said = f"{_shown(got)}, not {_shown(expected)}"
    if isinstance(expected, bool) or expected is None or isinstance(got, bool) or got is None:
        return None if got is expected else said
    if not isinstance(got, int | float | Fraction):
        return said
    if isinstance(expected, str):
        # Exact means exact: a float near it won't do.
        return None if not isinstance(got, float) and got == parse_or_nothing(expected) else said
    if not isinstance(expected, int | float):
        return said
    if name == "int":
        return None if isinstance(got, int) and got == expected else said
    try:
        near = math.isclose(got, expected, rel_tol=0.0, abs_tol=max(relative * abs(expected), absolute))
    except OverflowError:
        near = False
    return None if near else said


def _names(parts: Mapping[str, object]) -> str:
    return f"{', '.join(parts) or 'nothing':.60}"


def _shown(value: object) -> str:
    long = isinstance(value, int | Fraction) and not isinstance(value, bool) and not _is_short(Fraction(value))
    return "a long number" if long else f"{value!s:.60}"


def _is_short(value: Fraction) -> bool:
    return value.denominator.bit_length() + value.numerator.bit_length() <= EXACT_BITS_MAX


def parse_or_nothing(text: str) -> Fraction | None:
    """The exact number, None where the text is none."""
    try:
        return parse_exact(text)
    except BadValue:
        return None


def _as_float(value: Fraction) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def as_json(answer: Answer) -> object:
    """An answer as JSON values: fractions as {"exact", "float"}, infinities as null."""
    if isinstance(answer, Fraction):
        exact = f"{answer.numerator}/{answer.denominator}" if _is_short(answer) else None
        return {"exact": exact, "float": _as_float(answer)}
    if isinstance(answer, Mapping):
        return {key: as_json(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [as_json(value) for value in answer]
    if isinstance(answer, float):
        return float(answer) if math.isfinite(answer) else None  # numpy's doubles are not JSON
    return answer
