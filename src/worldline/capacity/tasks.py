"""Moves as real-time tasks: a cost, a least distance between two of them, a deadline, a jitter. In whole ticks or
fractions, never in floating point: a response time is a matter of who comes one tick earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TypeAlias

from worldline.errors import BadValue

Ticks: TypeAlias = int | Fraction
STEPS_MAX = 200_000
"""Of the analysis of one task: it is pseudo-polynomial, and grows without end as the load nears one."""
TASKS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Task:
    """A move that comes again and again, or once."""

    cost: Ticks
    period: Ticks | None
    """The least time between two; None: it comes once."""
    deadline: Ticks
    """From the nominal event, and so with the jitter inside."""
    jitter: Ticks = 0
    """How much later than its nominal event it may arrive."""

    def __post_init__(self) -> None:
        for name in ("cost", "deadline", "jitter", "period"):
            value = getattr(self, name)
            if name == "period" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | Fraction):
                raise BadValue(f"a task's {name} must be whole ticks or a fraction, not {value!r}")
            if value < 0 or (name == "period" and value == 0):
                raise BadValue(f"a task's {name} can't be {value}")


class Time(Enum):
    """What the ticks are."""

    WHOLE = "whole"
    """Everything happens on ticks: a blocker began a tick earlier, and blocks for its cost less one."""
    CONTINUOUS = "continuous"
    """The supremum: a blocker began just before."""


def check(tasks: tuple[Task, ...], time: Time = Time.CONTINUOUS) -> None:
    """Raises `BadValue` for too many tasks, and for fractions where time is whole ticks."""
    if len(tasks) > TASKS_MAX:
        raise BadValue(f"{len(tasks)} tasks are more than {TASKS_MAX}")
    if time is Time.WHOLE:
        for task in tasks:
            if any(isinstance(value, Fraction) for value in (task.cost, task.period, task.deadline, task.jitter)):
                raise BadValue("whole ticks were asked for, and a task has fractions")


def load(tasks: tuple[Task, ...]) -> Fraction:
    """The share of the lane they take in the long run; a task that comes once takes none."""
    return sum((Fraction(task.cost) / task.period for task in tasks if task.period is not None), Fraction(0))


def jobs_within(task: Task, span: Ticks) -> int:
    """The most jobs that can arrive in a closed interval of `span`; 0 below zero."""
    if span < 0:
        return 0
    return 1 if task.period is None else int(span // task.period) + 1


def jobs_before(task: Task, span: Ticks) -> int:
    """The most jobs that can arrive in a half-open interval of `span`: ceil(span / period)."""
    if span <= 0:
        return 0
    return 1 if task.period is None else int(-(-span // task.period))


class Steps:
    """Counts an analysis's steps, and ends it as `BadValue` when there are too many."""

    def __init__(self) -> None:
        self._left = STEPS_MAX

    def take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise BadValue(f"the analysis takes more than {STEPS_MAX} steps: the load is too near one for it")
