"""`worldline faults`: what can be planted in a move, a park or a resume."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import WIDTH, show
from worldline.schema.fault import FAULTS

NAME = max(map(len, FAULTS))


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
    return show({"faults": told}, "\n".join(line for one in told for line in _lines(one)), json)


def _lines(one: Told) -> list[str]:
    """Its verbs and its sentence beside its name, and its steps below."""
    texts = [f"{', '.join(one.verbs)}: {one.sentence}", f"at {', '.join(one.steps)}" if one.steps else ""]
    lines = [line for text in texts for line in textwrap.wrap(text, WIDTH - NAME - 2, break_on_hyphens=False)]
    return [f"{one.name if line is lines[0] else '':<{NAME}}  {line}" for line in lines]
