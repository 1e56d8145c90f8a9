"""Commands made of functions that measure: a function's own options, then those that all of its kind share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from cyclopts import Parameter

from worldline.cli.output import progress, show
from worldline.lab.experiments.frame import Experiment, conduct

NOT_SHOWN = 1
"""Exit code where what a run was to show was not shown."""

Printing = TypeVar("Printing")


@Parameter(name="*")
@dataclass(frozen=True)
class Reporting:
    """Options of every experiment and every instrument."""

    out: Path | None = None
    """Also write the report into this folder: report.html, report.md, figures, data.json and the run's telemetry."""
    json: Annotated[bool, Parameter(negative="")] = False
    """Print one JSON object."""


def reporting_command(name: str, experiment: Experiment[Any]) -> Callable[..., int]:
    """The command that conducts `experiment`: its own options, then those of `Reporting`."""

    def run(options: dict[str, object], reporting: Reporting) -> int:
        results = conduct(name, experiment, options, reporting.out, progress)
        show(results, experiment.text(results), reporting.json)
        if experiment.good(results):
            return 0
        progress(f"not shown: what `{name}` is to show does not hold in this run")
        return NOT_SHOWN

    return command_of(experiment.measure, Reporting(), run)


def command_of(
    measure: Callable[..., object], printing: Printing, run: Callable[[dict[str, object], Printing], int]
) -> Callable[..., int]:
    """A command with the options of `measure` after its first parameter, then those of `printing`'s type.

    It calls `run` with the former by name and the latter as one value. Its help is the docstring of `measure`.
    """
    signature = inspect.signature(measure, eval_str=True)
    own = list(signature.parameters.values())[1:]
    kind = inspect.Parameter("printing", inspect.Parameter.KEYWORD_ONLY, default=printing, annotation=type(printing))

    def command(**given: object) -> int:
        shared = cast(Printing, given.pop("printing", printing))
        return run({each.name: given.get(each.name, each.default) for each in own}, shared)

    command.__doc__ = measure.__doc__
    parameters = [*own, kind]
    command.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": int}
    command.__signature__ = signature.replace(parameters=parameters, return_annotation=int)  # type: ignore[attr-defined]
    return command
