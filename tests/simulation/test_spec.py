"""The specification is checked by spin, and says the same as the code's tables."""

import importlib.util
import os
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from worldline.control import handoff_table
from worldline.migration import source_words, target_words

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "spec" / "handover.pml"
DOCUMENT = ROOT / "docs" / "specification.md"
MACHINES = {"S": ("source", source_words), "T": ("target", target_words), "H": ("hand-over", handoff_table)}


def _load():
    found = importlib.util.spec_from_file_location("check_spec", ROOT / "scripts" / "check_spec.py")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


check_spec = _load()


def model_rows(machine):
    """Transitions in the model: (before, event, after)."""
    text = MODEL.read_text(encoding="utf-8")
    return set(re.findall(rf"^ *{machine}\((\w+), (\w+), (\w+),", text, re.MULTILINE))


def code_rows(machine):
    table = MACHINES[machine][1].TRANSITIONS
    return {
        (before.name, event.__name__, after.name)
        for before, events in table.items()
        for event, leads_to in events.items()
        for after in leads_to
    }


def left_out(machine):
    """The document's lines for a machine, each as the transitions that it speaks of."""
    lines = re.findall(
        rf"^\| {MACHINES[machine][0]} \| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", DOCUMENT.read_text(), re.MULTILINE
    )
    for before, events, after in lines:
        phases, names, ends = (cell.split(", ") for cell in (before, events, after))
        yield {
            row
            for row in code_rows(machine)
            if ("any" in phases or row[0] in phases)
            and ("any" in names or row[1] in names)
            and (row[2] in ends or ("stays" in ends and row[2] == row[0]))
        }


@pytest.mark.parametrize("machine", MACHINES)
def test_the_phases_of_the_model_are_those_of_the_code(machine):
    declared = re.findall(rf"\b{machine}_(\w+)(?=[,\s])", "".join(_declarations()))
    assert set(declared) == {phase.name for phase in MACHINES[machine][1].Phase}


def _declarations():
    return re.findall(r"^mtype = \{.*?^\}", MODEL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_transition_of_the_model_is_one_of_the_code(machine):
    assert model_rows(machine) - code_rows(machine) == set()


@pytest.mark.parametrize("machine", MACHINES)
def test_every_transition_of_the_code_is_in_the_model_or_is_left_out_for_a_written_reason(machine):
    missing = code_rows(machine) - model_rows(machine)
    for covered in left_out(machine):
        assert covered & missing, "a line of the document speaks of nothing that the model lacks"
        missing = missing - covered
    assert missing == set()


def test_a_phase_changes_by_rows_alone():
    """So that the rows that are compared are all there is."""
    text = re.sub(r"^#define [STH]\(.*", "", MODEL.read_text(encoding="utf-8"), flags=re.MULTILINE)
    by_hand = re.findall(r"\b(src|tgt|ctl) = (\w+)", text)
    assert set(by_hand) == {
        ("src", "M_IDLE"),
        ("src", "S_CONNECTING"),
        ("src", "M_SOURCE_ANEW"),
        ("src", "M_SOURCE_ENDED"),
        ("tgt", "M_ABSENT"),
        ("tgt", "T_WAITING"),
        ("tgt", "M_TARGET_ENDED"),
        ("tgt", "M_TARGET_ANEW"),
        ("ctl", "H_NEW"),
        ("ctl", "M_DOWN"),
    }


@cache
def verdict(case):
    missing = check_spec.missing_tools()
    if missing and os.environ.get("CI"):
        pytest.fail(f"{' and '.join(missing)} not found, and CI checks the specification: {check_spec.INSTALL}")
    if missing:
        pytest.skip(f"the specification is not checked: {' and '.join(missing)} not found; {check_spec.INSTALL}")
    return check_spec.check(case)


HOLDS = [case for case in check_spec.CASES if case.violates is None]
BROKEN = [case for case in check_spec.CASES if case.violates is not None]


@pytest.mark.parametrize("case", HOLDS, ids=lambda case: case.name)
def test_the_protocol_holds_in_every_state(case):
    said = verdict(case)
    assert said.violated is None, "\n".join(said.trail)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_broken_shape_is_seen_to_fail(case):
    said = verdict(case)
    assert said.violated == case.violates
    assert said.trail, "a counterexample was kept"


def test_every_row_of_the_model_happens():
    never = frozenset.intersection(*(verdict(case).unreached for case in check_spec.ROWS))
    lines = MODEL.read_text(encoding="utf-8").splitlines()
    dead = [lines[line - 1].strip() for line in sorted(never)]
    assert [row for row in dead if re.match(r"[STH]\(", row)] == []
