"""The frame of every experiment: a watched run, its results, its report."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from worldline.errors import RunVoid
from worldline.lab.report import Report, Run, write_report
from worldline.lab.telemetry import Telemetry

Result = TypeVar("Result")


def conduct(report: Report, measure: Callable[[Telemetry], Result], out: Path | None) -> Result:
    """Runs `measure` under telemetry and writes the report of its results into `out`, if one is wanted.

    `measure` asks `telemetry.check()` now and then. The run's name, the first step of every key of the report, is the
    report's own. Raises `RunVoid` for a run that nobody watched over: it has neither results nor a report.
    """
    with _folder(out) as folder:
        path = folder / f"{report.name}.jsonl"
        path.unlink(missing_ok=True)  # of an earlier run into the same folder
        with Telemetry(path) as telemetry:
            results = measure(telemetry)
        record = telemetry.finish()
        if record.void is not None:
            raise RunVoid(f"run {report.name} is void: {record.void}", run=report.name)
        if out is not None:
            write_report(folder, report, {report.name: Run(path, results)})
    return results


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is None:
        with tempfile.TemporaryDirectory(prefix="worldline-") as folder:
            yield Path(folder)
    else:
        out.mkdir(parents=True, exist_ok=True)
        yield out
