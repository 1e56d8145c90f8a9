"""Atomic moves on one lane, the earliest deadline first. In whole ticks; a move that has begun is never interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import merge

from worldline.capacity.tasks import Steps, Task, Time, check, jobs_before, jobs_within, load
from worldline.errors import BadValue


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether all deadlines are met, and where not."""

    schedulable: bool
    length: int | None = None
    """The interval that asks for more than it has; None where the load exceeds one."""
    task: int | None = None
    """The place of the blocking task, where the test names one."""


def _whole(tasks: Sequence[Task]) -> tuple[Task, ...]:
    ordered = tuple(tasks)
    check(ordered, Time.WHOLE)
    if any(task.jitter for task in ordered):
        raise BadValue("a task with jitter has no test by deadlines here; take the jitter off its deadline")
    return ordered


def jeffay(tasks: Sequence[Task]) -> Verdict:
    """The test for deadlines equal to periods: necessary and sufficient for sporadic tasks.

    Load at most one, and for each task i but the most frequent, for each L with T_1 < L < T_i:
    L >= C_i + sum over j < i of floor((L - 1) / T_j) C_j. Domain: whole ticks, no jitter, D = T, more than once.
    `Verdict.task` is a place in the order of periods. Raises `BadValue` outside, or for too many steps.
    Source: Jeffay, Stanat and Martel 1991.
    """
    ordered = _whole(tasks)
    if any(task.period is None or task.deadline != task.period for task in ordered):
        raise BadValue("this test is for deadlines equal to periods; see the demand test")
    rows = sorted((int(task.period or 0), int(task.cost)) for task in ordered)
    if load(ordered) > 1:
        return Verdict(False)
    steps = Steps()
    for i, (period, cost) in enumerate(rows):
        # The right side rises only just after a multiple of a shorter period.
        for length in merge(*(range(shorter + 1, period, shorter) for shorter, _ in rows[:i])):
            steps.take()
            asked = cost + sum((length - 1) // shorter * other for shorter, other in rows[:i])
            if length > rows[0][0] and length < asked:
                return Verdict(False, length, i)
    return Verdict(True)


def demand(tasks: Sequence[Task]) -> Verdict:
    """The test for any deadlines: in no interval L is more due than L, with one later move already begun.

    Load at most one, and for each L up to the longest busy period: sum of (floor((L - D_i) / T_i) + 1) C_i over
    D_i <= L, plus max (C_j - 1) over D_j > L, is at most L. Necessary and sufficient for sporadic tasks. Domain: whole
    ticks, no jitter. Raises `BadValue` outside, or for too many steps. Source: George, Rivierre and Spuri 1996; Zheng
    and Shin 1994.
    """
    ordered = _whole(tasks)
    if load(ordered) > 1:
        return Verdict(False)
    steps = Steps()
    busy = _busy_period(ordered, steps)
    end = max([busy, *(int(task.deadline) for task in ordered)])
    last = None
    for length in merge(*(_deadlines(task, end) for task in ordered)):
        if length == last:
            continue
        last = length
        steps.take()
        due = sum(jobs_within(task, length - task.deadline) * int(task.cost) for task in ordered)
        begun = max((int(task.cost) - 1 for task in ordered if task.deadline > length), default=0)
        if due + max(begun, 0) > length:
            return Verdict(False, length)
    return Verdict(True)


def _deadlines(task: Task, end: int) -> Iterator[int]:
    if task.period is None:
        return iter([int(task.deadline)])
    return iter(range(int(task.deadline), end + 1, int(task.period)))


def _busy_period(tasks: tuple[Task, ...], steps: Steps) -> int:
    """The longest time without idling; at a load of one, of the tasks alone, as blocking would never be made up."""
    most = max((int(task.cost) for task in tasks), default=0)
    blocking = max(most - 1, 0) if load(tasks) < 1 else 0
    busy = blocking + 1
    while True:
        steps.take()
        longer = blocking + sum(jobs_before(task, busy) * int(task.cost) for task in tasks)
        if longer <= busy:
            return busy
        busy = longer


class Ties(Enum):
    """Who goes first among equal deadlines."""

    BY_PLACE = "by place"
    """The one named first."""
    LOSE = "lose"
    """The others: a bound for any rule (pyRTA's)."""


def edf_responses(tasks: Sequence[Task], ties: Ties = Ties.LOSE) -> tuple[int | None, ...]:
    """The worst response of each task, from its arrival; None where the load is one or more.

    Over all arrivals in the busy period at which the order can change. Exact for sporadic tasks where equal deadlines
    go by place. Domain: whole ticks, no jitter. Raises `BadValue` outside, or for too many steps. Source: George,
    Rivierre and Spuri 1996.
    """
    ordered = _whole(tasks)
    if load(ordered) >= 1:
        return (None,) * len(ordered)
    return tuple(_worst(ordered, at, ties) for at in range(len(ordered)))


def _worst(tasks: tuple[Task, ...], at: int, ties: Ties) -> int:
    steps = Steps()
    busy = _busy_period(tasks, steps)
    task = tasks[at]
    worst, last = int(task.cost), None
    for arrival in merge(*(_changes(other, task, busy) for other in tasks)):
        if arrival == last:
            continue
        last = arrival
        worst = max(worst, _finish(tasks, at, arrival, ties, steps) - arrival)
    return worst


def _changes(other: Task, task: Task, busy: int) -> Iterator[int]:
    """Arrivals of `task` from which one job more of `other` is due before it; 0 always."""
    yield 0
    ahead = int(other.deadline) - int(task.deadline)
    if other.period is None:
        arrivals = range(ahead, min(ahead + 1, busy))
    else:
        arrivals = range(ahead % int(other.period) if ahead < 0 else ahead, busy, int(other.period))
    for arrival in arrivals:
        # One tick later a tie is no tie any more.
        yield from (moment for moment in (arrival, arrival + 1) if moment >= 0)


def _finish(tasks: tuple[Task, ...], at: int, arrival: int, ties: Ties, steps: Steps) -> int:
    """When the job of task `at` that arrives then ends, at the worst."""
    task = tasks[at]
    due = arrival + int(task.deadline)
    own = jobs_within(task, arrival) - 1
    begun = max((int(other.cost) - 1 for i, other in enumerate(tasks) if i != at and other.deadline > due), default=0)
    fixed = max(begun, 0) + own * int(task.cost)
    others = []
    for i, other in enumerate(tasks):
        if i != at:
            wins_tie = ties is Ties.LOSE or i < at
            others.append((other, jobs_within(other, due - other.deadline - (0 if wins_tie else 1))))
    start = fixed
    while True:
        steps.take()
        later = fixed + sum(min(jobs_within(other, start), most) * int(other.cost) for other, most in others)
        if later == start:
            return max(start, arrival) + int(task.cost)
        start = later
