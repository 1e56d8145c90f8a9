"""What machines have in common: a bounded story, a table of transitions, and the error that tells of both."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias, TypeVar

from worldline.errors import IllegalTransition

PhaseT = TypeVar("PhaseT", bound=StrEnum)
Table: TypeAlias = Mapping[PhaseT, Mapping[type, tuple[PhaseT, ...]]]
"""For each phase, the events it knows and the phases each may lead to. An event that leads only to its own phase and
causes nothing is one that may come late or twice."""

STORY_LINES_MAX = 64


class Story:
    """The last lines of what happened, each with the seconds since the start."""

    def __init__(self, machine: str, started_at_s: float) -> None:
        self._machine = machine
        self._started_at_s = started_at_s
        self._lines: deque[str] = deque(maxlen=STORY_LINES_MAX)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def tell(self, now_s: float, line: str) -> None:
        self._lines.append(f"{now_s - self._started_at_s:8.3f} s  {line}")

    def illegal(self, phase: StrEnum, event: object) -> IllegalTransition:
        """The error for an event that `phase` does not know."""
        name = type(event).__name__
        told = "; ".join(line.strip() for line in list(self._lines)[-8:]) or "nothing yet"
        return IllegalTransition(
            f"the {self._machine} is {phase.value} and can't take {name}. So far: {told}",
            machine=self._machine,
            phase=phase.value,
            event=name,
        )
