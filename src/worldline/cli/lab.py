"""`worldline lab`: instruments that look into one engine's state, each a watched run with a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from worldline.cli.measured import command_of
from worldline.cli.output import progress, show
from worldline.lab.experiments.frame import conduct, find
from worldline.lab.instruments.table import INSTRUMENTS

PREFIX = "lab_"
NOT_SHOWN = 1


@Parameter(name="*")
@dataclass(frozen=True)
class Printing:
    """Options of every instrument."""

    out: Path | None = None
    """Also write the report into this folder: report.html, report.md, figures, data.json and the run's telemetry."""
    json: Annotated[bool, Parameter(negative="")] = False
    """Print one JSON object."""


def __getattr__(attribute: str) -> Callable[..., int]:
    """The command of instrument NAME is `lab_NAME`."""
    name = attribute.removeprefix(PREFIX)
    if not attribute.startswith(PREFIX) or name not in INSTRUMENTS:
        raise AttributeError(attribute)
    instrument = find(name, INSTRUMENTS, "instrument")

    def run(options: dict[str, object], printing: Printing) -> int:
        results = conduct(name, instrument, options, printing.out, progress)
        show(results, instrument.text(results), printing.json)
        return 0 if instrument.good(results) else NOT_SHOWN

    return command_of(instrument.measure, Printing(), run)
