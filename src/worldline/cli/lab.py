"""`worldline lab`: instruments that look into one engine's state, each a watched run with a report."""

from __future__ import annotations

from collections.abc import Callable

from worldline.cli.measure_command import reporting_command
from worldline.lab.experiments.frame import find
from worldline.lab.instruments.table import INSTRUMENTS

PREFIX = "lab_"


def __getattr__(attribute: str) -> Callable[..., int]:
    """The command of instrument NAME is `lab_NAME`."""
    name = attribute.removeprefix(PREFIX)
    if not attribute.startswith(PREFIX) or name not in INSTRUMENTS:
        raise AttributeError(attribute)
    return reporting_command(name, find(name, INSTRUMENTS, "instrument"))
