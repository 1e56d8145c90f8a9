"""`worldline worlds`: what can be opened here."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import show, table
from worldline.worlds.registry import describe_worlds


def worlds(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Lists the worlds: those that ship, and those that other packages bring. What each is, and what it lacks here.

    A world of your own is opened as module:factory; see docs/worlds.md.

    Parameters
    ----------
    json: bool
        Print one JSON object.
    """
    found = describe_worlds()
    rows = [
        (world.name, "ready" if world.missing is None else f"needs: {world.missing}", world.about) for world in found
    ]
    value = {"worlds": [world.name for world in found], "descriptions": found}
    return show(value, table(("world", "here", "what it is"), rows), json)
