"""`worldline capacity`: the maths, checked against cases."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingFile

from worldline.capacity.cases import FILE_BYTES_MAX, Outcome, read_cases, run_case
from worldline.capacity.formulas import FORMULAS
from worldline.cli.output import show, table
from worldline.errors import BadValue, Malformed


def check(file: ExistingFile, *, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Computes every case of a file from its inputs, and compares it with what is expected.

    After success every case is met, within its own tolerance and exactly where the file says so. Exit code 1 if one is
    not: a model that isn't known, a number that differs, nothing expected.

    Parameters
    ----------
    file: ExistingFile
        Cases as JSON; docs/capacity.md has the format.
    json: bool
        Print one JSON object.
    """
    try:
        with file.open("rb") as opened:
            octets = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadValue(f"{file} can't be read: {error.strerror}") from error
    if len(octets) > FILE_BYTES_MAX:
        raise Malformed(f"a file of cases has at most {FILE_BYTES_MAX} bytes")
    outcomes = [run_case(case, FORMULAS) for case in read_cases(octets)]
    failed = sum(not outcome.ok for outcome in outcomes)
    report = {"ok": failed == 0, "total": len(outcomes), "failed": failed, "cases": outcomes}
    show(report, _report_text(outcomes), json)
    return 1 if failed else 0


def _report_text(outcomes: list[Outcome]) -> str:
    models = sorted({outcome.model for outcome in outcomes})
    rows = []
    for model in models:
        told = [outcome.ok for outcome in outcomes if outcome.model == model]
        rows.append((model, str(len(told)), str(sum(told)), str(len(told) - sum(told))))
    good = sum(outcome.ok for outcome in outcomes)
    lines = [table(("MODEL", "CASES", "OK", "FAILED"), rows), "", f"{good} of {len(outcomes)} cases are met"]
    lines += [f"not met: {outcome.id}: {outcome.error}" for outcome in outcomes if not outcome.ok]
    return "\n".join(lines)
