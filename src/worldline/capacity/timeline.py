"""One concrete schedule, played through. It proves nothing about others: a shorter move can make another one late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from worldline.capacity.domain import whole
from worldline.capacity.tasks import Task, Time, check
from worldline.errors import BadValue

JOBS_MAX = 100_000
TRIES_MAX = 1000


def play(tasks: Sequence[Task], offsets: Sequence[int]) -> tuple[int, ...]:
    """The worst response of each task over two hyperperiods, arrivals strictly periodic from `offsets` on.

    In priority order, without preemption; an arrival at t is seen by a start at t. Domain: whole ticks, periods, no
    jitter. Raises `BadValue` outside, or for more than `JOBS_MAX` jobs.
    """
    ordered = tuple(tasks)
    check(ordered, Time.WHOLE)
    if len(offsets) != len(ordered):
        raise BadValue("each task needs one offset")
    for offset in offsets:
        whole(offset, "an offset", most=10**15)
    if any(task.period is None or task.jitter for task in ordered):
        raise BadValue("a concrete schedule is of periodic tasks without jitter")
    end = max(offsets, default=0) + 2 * math.lcm(*(int(task.period or 1) for task in ordered))
    if sum(end // int(task.period or 1) + 1 for task in ordered) > JOBS_MAX:
        raise BadValue(f"two hyperperiods have more than {JOBS_MAX} jobs")
    waiting = [
        list(range(offset, end, int(task.period or 1)))[::-1] for task, offset in zip(ordered, offsets, strict=True)
    ]
    worst = [0] * len(ordered)
    now = 0
    while any(waiting):
        ready = [at for at, arrivals in enumerate(waiting) if arrivals and arrivals[-1] <= now]
        if not ready:
            now = min(arrivals[-1] for arrivals in waiting if arrivals)
            continue
        at = ready[0]
        now += int(ordered[at].cost)
        worst[at] = max(worst[at], now - waiting[at].pop())
    return tuple(worst)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A move that got shorter, and another that is late because of it."""

    task: int
    cost: int
    """The new, smaller one."""
    responses: tuple[int, ...]
    late: int
    """The first task that misses its deadline."""


def anomaly(tasks: Sequence[Task], offsets: Sequence[int]) -> Anomaly | None:
    """The first reduction of one cost that makes some task late which was not; None if there is none.

    Tries each task in order, its cost a tick less at a time down to one. Domain and errors as `play`; at most
    `TRIES_MAX` schedules. Source: Graham 1969.
    """
    ordered = list(tasks)
    if late(ordered, play(ordered, offsets)) is not None:
        return None
    tries = 0
    for at, task in enumerate(ordered):
        for cost in range(int(task.cost) - 1, 0, -1):
            tries += 1
            if tries > TRIES_MAX:
                raise BadValue(f"more than {TRIES_MAX} schedules would have to be played")
            found = play([*ordered[:at], replace(task, cost=cost), *ordered[at + 1 :]], offsets)
            missed = late(ordered, found)
            if missed is not None:
                return Anomaly(at, cost, found, missed)
    return None


def late(tasks: Sequence[Task], found: Sequence[int]) -> int | None:
    """The first task whose response exceeds its deadline."""
    return next((at for at, task in enumerate(tasks) if found[at] > task.deadline), None)
