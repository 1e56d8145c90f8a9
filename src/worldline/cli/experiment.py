"""`worldline experiment`: a question, a watched run, and a report in which every number can be traced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from worldline.cli.measured import command_of
from worldline.cli.output import progress, show
from worldline.lab.experiments.frame import conduct, find
from worldline.lab.experiments.table import EXPERIMENTS

PREFIX = "experiment_"
NOT_SHOWN = 1


@Parameter(name="*")
@dataclass(frozen=True)
class Printing:
    """Options of every experiment."""

    out: Path | None = None
    """Also write the report into this folder: report.html, report.md, figures, data.json and the run's telemetry."""
    json: Annotated[bool, Parameter(negative="")] = False
    """Print one JSON object."""


def __getattr__(attribute: str) -> Callable[..., int]:
    """The command of experiment NAME is `experiment_NAME`."""
    name = attribute.removeprefix(PREFIX)
    if not attribute.startswith(PREFIX) or name not in EXPERIMENTS:
        raise AttributeError(attribute)
    experiment = find(name)

    def run(options: dict[str, object], printing: Printing) -> int:
        results = conduct(name, experiment, options, printing.out, progress)
        show(results, experiment.text(results), printing.json)
        return 0 if experiment.good(results) else NOT_SHOWN

    return command_of(experiment.measure, Printing(), run)
