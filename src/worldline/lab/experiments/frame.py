"""What every experiment shares: a question, a watched run, its results, and a report of them.

An experiment is an `Experiment`; `table.EXPERIMENTS` names it. Its `measure` is a function
`(trial, *, options...) -> Result`, whose docstring and options the command line shows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

from worldline.errors import BadValue, Internal, RunVoid
from worldline.lab.entry import Entry
from worldline.lab.experiments.table import EXPERIMENTS
from worldline.lab.report import Report, Run
from worldline.lab.report_folder import report_folder, write_report
from worldline.lab.telemetry import Telemetry

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Trial:
    """A run while it goes on."""

    telemetry: Telemetry
    """`check()` it now and then: nothing is measured for nothing."""
    folder: Path
    """For what the run leaves behind; removed at its end."""
    say: Callable[[str], None]
    """Progress, for people."""


@dataclass(frozen=True, slots=True)
class Experiment(Generic[Result]):
    """`report` is of the results; its name is the run's, and the first step of every key."""

    measure: Callable[..., Result]
    report: Callable[[Result], Report]
    text: Callable[[Result], str]
    """The results for a terminal."""
    good: Callable[[Result], bool] = lambda _: True
    """Whether what the experiment is to show was shown: the command's exit code."""


def find(name: str, table: Mapping[str, Entry] = EXPERIMENTS, kind: str = "experiment") -> Experiment[Any]:
    """The experiment of that name in `table`. Raises `BadValue`, which lists the known ones."""
    if name not in table:
        raise BadValue(f"there is no {kind} {name!r}; there are {', '.join(sorted(table)) or 'none'}")
    module, _, attribute = table[name].where.partition(":")
    found = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(found, Experiment):
        raise Internal(f"the table of {kind}s names {table[name].where}, which is none")
    return found


def conduct(
    name: str,
    experiment: Experiment[Result],
    options: Mapping[str, object],
    out: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Runs the experiment under telemetry, and writes its report into `out`, if one is wanted.

    Raises `RunVoid` for a run that nobody watched over: it has neither results nor a report; and, before anything is
    run, `MissingExtra` where a report's figures can't be drawn, and `BadValue` where a report can't be written. What
    lies in `out` from an earlier run stays whole until this one's report is.
    """
    with ExitStack() as stack:
        if out is not None:
            from worldline.lab.report_figures import ensure_figures

            ensure_figures()
            stack.enter_context(report_folder(out))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="worldline-")))
        path = folder / f"{name}.jsonl"
        with Telemetry(path) as telemetry:
            results = experiment.measure(Trial(telemetry, folder, say), **options)
        record = telemetry.finish()
        if record.void is not None:
            raise RunVoid(f"run {name} is void: {record.void}", run=name)
        if out is not None:
            report = replace(experiment.report(results), shown=experiment.good(results))
            write_report(out, report, {name: Run(path, results)})
    return results
