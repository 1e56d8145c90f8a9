"""Every reference case is met from its inputs alone, and a wrong one is seen."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from worldline.capacity.cases import Case, Inputs, difference, parse_exact, read_cases, run_case
from worldline.capacity.formulas import FORMULAS
from worldline.cli import main
from worldline.errors import BadValue, Malformed

FILE = Path(__file__).parents[2] / "data" / "scheduling.json"
CASES = read_cases(FILE.read_bytes())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_reference_case_is_met(case: Case) -> None:
    outcome = run_case(case, FORMULAS)
    assert outcome.ok, outcome.error


def wrong(value: object, step: float) -> Iterator[object]:
    """`value` with one leaf changed, for each leaf; numbers by `step` of themselves, or by `step` where they are 0."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: other} for other in wrong(part, step))
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in wrong(part, step))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        exact = Fraction(value) + Fraction(1, 10**9)
        yield f"{exact.numerator}/{exact.denominator}"
    elif isinstance(value, int | float):
        yield value + step * (abs(value) or 1)
        yield value - step * (abs(value) or 1)


def test_any_leaf_of_any_case_that_is_changed_beyond_its_tolerance_is_seen() -> None:
    changed = 0
    for case in CASES:
        answer = FORMULAS[case.model](Inputs(case.inputs))
        printed = float(case.note.split("abs tol ")[1].split(";")[0]) if case.rel_tol is None else 0.0
        step = 2.5 * (case.rel_tol or 1e-9) if case.rel_tol is not None else 1.0
        for expected in wrong(case.expected, step):
            changed += 1
            assert difference(answer, expected, case.rel_tol or 0.0, printed), (case.id, expected)
    assert changed > 1000


def document() -> dict[str, list[dict[str, object]]]:
    return json.loads(FILE.read_text())


def check(tmp_path: Path, content: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(content))
    code = main(["capacity", "check", str(path), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_command_meets_all_163_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", "check", str(FILE), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["total"], report["failed"]) == (True, 163, 0)
    assert all({"id", "got", "expected", "ok"} <= case.keys() and case["ok"] for case in report["cases"])


def test_the_command_tells_people_each_model_and_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = document()
    content["cases"][0]["expected"] = {"float": 0.25}
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(content))
    assert main(["capacity", "check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "162 of 163 cases are met" in out
    assert "pub-erlB-0-5: the answer: 1, not 0.25" in out
    assert all(model in out for model in FORMULAS)


def test_what_is_computed_never_sees_what_is_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = check(tmp_path, document(), capsys)[1]["cases"]
    bare = document()
    for case in bare["cases"]:
        del case["expected"]
    code, report = check(tmp_path, bare, capsys)
    assert code == 1
    assert [case["got"] for case in report["cases"]] == [case["got"] for case in full]
    assert not any(case["ok"] for case in report["cases"])


def test_an_answer_in_the_inputs_is_not_copied() -> None:
    """The file gives the staffing case its answer as `c`, and the two order cases theirs as `opa_order`."""
    for case in CASES:
        if case.model in {"erlang_c_staffing", "dm_vs_opa"}:
            inputs = {name: value for name, value in case.inputs.items() if name not in {"c", "A", "opa_order"}}
            assert run_case(Case(case.id, case.model, inputs, case.expected, case.rel_tol), FORMULAS).ok


def test_an_unknown_model_fails_its_case_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = document()
    content["cases"][0]["model"] = "astrology"
    code, report = check(tmp_path, content, capsys)
    assert code == 1
    assert [case["id"] for case in report["cases"] if not case["ok"]] == ["pub-erlB-0-5"]
    assert "astrology" in report["cases"][0]["error"]


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"c": -1, "A": "5"},
        {"c": 2, "A": "-1"},
        {"c": 2, "A": "nan"},
        {"c": 2, "A": "1e999999999"},
        {"c": 2, "A": "1/0"},
        {"c": 10**30, "A": "1"},
        {"c": True, "A": "1"},
        {"c": "2", "A": "1"},
        {"c": None, "A": []},
    ],
)
def test_inputs_that_make_no_sense_fail_their_case_and_say_why(inputs: dict[str, object]) -> None:
    outcome = run_case(Case("x", "erlang_b", inputs, {"float": 1.0}), FORMULAS)
    assert not outcome.ok
    assert outcome.got is None
    assert outcome.error


@pytest.mark.parametrize("model", FORMULAS)
def test_a_case_without_inputs_fails_and_nothing_else(model: str) -> None:
    assert not run_case(Case("x", model, {}, 1), FORMULAS).ok


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"cases": []}',
        '{"cases": [{}]}',
        '{"cases": [{"id": "a", "model": "erlang_b", "inputs": []}]}',
        '{"cases": [{"id": "a", "model": "m", "inputs": {}}, {"id": "a", "model": "m", "inputs": {}}]}',
        '{"cases": [{"id": "a", "model": "m", "inputs": {"x": NaN}}]}',
        '{"cases": [{"id": "a", "model": "m", "inputs": {}, "rel_tol": -1}]}',
        '{"cases": [{"id": "a", "model": "m", "inputs": {}, "rel_tol": 2}]}',
        '{"cases": ' + "[" * 100_000,
        "\x00",
    ],
)
def test_a_malformed_file_is_a_typed_error(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Malformed):
        read_cases(text.encode())
    path = tmp_path / "cases.json"
    path.write_text(text)
    assert main(["capacity", "check", str(path), "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "MALFORMED"


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        (Fraction(1, 3), {"exact": "1/3", "float": 1 / 3}, True),
        (Fraction(1, 3), {"exact": "2/6"}, True),
        (1 / 3, {"exact": "1/3"}, False),
        (1 / 3, {"exact": None, "float": 1 / 3}, True),
        (4, {"int": 4}, True),
        (4.0, {"int": 4}, False),
        (True, 1, False),
        (1, True, False),
        (0, None, False),
        (None, 0, False),
        (math.nan, 0.0, False),
        (math.nan, math.nan, False),
        (math.inf, 1e308, False),
        (1.0, 10**400, False),
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2, 3], [1, 2], False),
        ({"p": [1, 2, 3]}, {"p": [1, 2]}, True),
        ({"p": [1, 2, 3]}, {"p": []}, False),
        ({"q": [1, 2, 3]}, {"q": [1, 2]}, False),
        ([1, 2], {"float": 1.0}, False),
        ("1/3", "1/3", False),
    ],
)
def test_what_counts_as_equal(got: object, expected: object, same: bool) -> None:
    assert (difference(got, expected, 0.0, 0.0) is None) is same


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        (0.2, {"flaot": 0.2, "x": 1}, "the answer: 0.2, not an object with flaot, x"),
        ({"L": 1.0}, {"Lq": 1.0}, "the answer: has L, and no Lq"),
        ({"L": 1.0}, {"L": [1.0, 2.0]}, "L: 1.0, not a list of 2 terms"),
        ([1.0], [1.0, 2.0], "the answer: has 1 terms, not 2"),
    ],
)
def test_what_has_not_the_expected_shape_is_told_with_both_shapes(got, expected, said) -> None:
    assert difference(got, expected, 0.0, 0.0) == said


def test_an_exact_number_is_a_short_string_without_an_exponent() -> None:
    assert parse_exact("1.67") == Fraction(167, 100)
    assert parse_exact("-13/10") == Fraction(-13, 10)
    assert parse_exact(".050") == Fraction(1, 20)
    for text in ("", ".", "1e5", "1/2/3", "1.5/2", "0x10", " 1", "inf", "1" * 2000):
        with pytest.raises(BadValue):
            parse_exact(text)


def test_a_copy_of_a_case_is_not_changed_by_running_it() -> None:
    for case in CASES[:20]:
        before = copy.deepcopy(case)
        run_case(case, FORMULAS)
        assert case == before


@pytest.mark.parametrize(
    ("model", "inputs", "expected", "tolerance"),
    [
        ("erlang_b", {"c": 2, "A": 1.0}, {"exact": "1/5"}, 0.0),
        ("erlang_b", {"c": 300, "A": "300"}, {"float": 0.04468148185994271}, 1e-12),
        ("engset", {"N": 5000, "c": 300, "a_idle": 0.1}, {"call_congestion": 0.3655641045964909}, 1e-12),
        ("engset", {"N": 3, "c": 2, "a_idle": "5/7"}, {"carried": {"exact": "255/229"}}, 0.0),
        ("mmc_finite_source", {"N": 5000, "c": 3, "nu": 0.001, "mu": 1}, {"L": 2000.0}, 1e-9),
        ("block_union", {"W": 10, "m": 5.5, "blocks": 2}, {"exact": "319/40"}, 0.0),
        ("block_union", {"W": 10, "m": 1, "blocks": 5000}, {"float": 10.0}, 1e-12),
        ("coupon", {"n": 1000}, {"float": 7485.470860550345}, 1e-12),
        ("pipeline_variable", {"stage_times": [[0.5, "1/2"], [1, 1]]}, {"makespan": "5/2"}, 0.0),
        ("greedy_fifo_admission", {"arrivals": [0, 0.5], "C": 1, "H": 1.25}, {"accepted": [0]}, 0.0),
        ("verify_lane_fanin", {"S": 0.1, "H": 0.3, "D": 0, "B_crc": 1, "o": 0}, {"N_frozen": 3}, 0.0),
        ("erlang_b_min_servers", {"A": 1000, "p": 0.01}, {"int": 1029}, 0.0),
    ],
)
def test_a_case_may_be_written_in_any_kind_of_number_and_any_size(
    model: str, inputs: dict[str, object], expected: object, tolerance: float
) -> None:
    outcome = run_case(Case("x", model, inputs, expected, tolerance), FORMULAS)
    assert outcome.ok, (outcome.got, outcome.error)
