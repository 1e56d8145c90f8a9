"""`worldline worlds`: what can be opened here."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import show
from worldline.worlds.registry import known_worlds


def worlds(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Lists the worlds by name: those that ship, and those that other packages bring.

    Parameters
    ----------
    json: bool
        Print one JSON object.
    """
    names = known_worlds()
    return show({"worlds": names}, "\n".join(names), json)
