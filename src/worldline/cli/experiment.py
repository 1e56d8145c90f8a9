"""`worldline experiment`: a question, a watched run, and a report in which every number can be traced."""

from __future__ import annotations

from collections.abc import Callable

from worldline.cli.measure_command import reporting_command
from worldline.lab.experiments.frame import find
from worldline.lab.experiments.table import EXPERIMENTS

PREFIX = "experiment_"


def __getattr__(attribute: str) -> Callable[..., int]:
    """The command of experiment NAME is `experiment_NAME`."""
    name = attribute.removeprefix(PREFIX)
    if not attribute.startswith(PREFIX) or name not in EXPERIMENTS:
        raise AttributeError(attribute)
    return reporting_command(name, find(name))
