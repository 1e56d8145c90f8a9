"""`worldline faults`: what can be planted in a move, a park or a resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import show, table
from worldline.schema.fault import FAULTS


@dataclass(frozen=True, slots=True)
class Told:
    """A fault, for people and programs."""

    name: str
    verbs: list[str]
    steps: list[str]
    sentence: str


def faults(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Lists the faults that `move --fault`, `park --fault` and `resume --fault` plant, each as NAME[@step][,seed].

    Without a step a fault happens where its sentence says, or at the first of its own that the verb has. Equal seeds
    choose equal bytes and places. A fleet plants none that was started with `--no-faults`.

    Parameters
    ----------
    json: bool
        Print one JSON object.
    """
    told = [
        Told(name.value, sorted(about.verbs), list(dict.fromkeys(step.value for step in about.steps)), about.sentence)
        for name, about in FAULTS.items()
    ]
    rows = [(one.name, ", ".join(one.verbs), ", ".join(one.steps), one.sentence) for one in told]
    return show({"faults": told}, table(("fault", "of", "steps", "what it does"), rows), json)
