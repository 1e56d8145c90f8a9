"""Response times of atomic moves on one lane, by fixed priority. A move that has begun is never interrupted.

Tasks are in priority order, the most urgent first; equal priorities are to be put so that the one asked about is last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worldline.capacity.domain import at_least_zero, positive
from worldline.capacity.tasks import Steps, Task, Ticks, Time, check, jobs_before, jobs_within, load
from worldline.errors import BadValue


@dataclass(frozen=True, slots=True)
class Response:
    """Worst-case response times of one task, from its nominal event."""

    instances: tuple[Ticks, ...]
    """R(q), one for each job of the busy period."""
    from_arrival: Ticks
    """The worst, counted from the actual arrival instead (pyRTA's and PROSA's convention)."""

    @property
    def worst(self) -> Ticks:
        return max(self.instances)

    @property
    def first(self) -> Ticks:
        """R(0): optimistic without preemption, sometimes by far. For comparison, never for a decision."""
        return self.instances[0]


def responses(tasks: Sequence[Task], time: Time = Time.CONTINUOUS) -> tuple[Response | None, ...]:
    """The response of each task; None where it isn't bounded: the load of it and what is more urgent exceeds one, or
    is one and the busy period never ends.

    Exact for sporadic tasks: over all jobs of the busy period, with blocking by one move of less urgency. Sustainable:
    shorter costs, smaller jitter or longer periods never make it worse (a simulated schedule is not, see `timeline`).
    Domain: as `Task`; D > T is allowed. Raises `BadValue` also where the analysis takes too many steps.
    Source: Davis, Burns, Bril and Lukkien 2007; George, Rivierre and Spuri 1996; Bril et al. 2009.
    """
    ordered = tuple(tasks)
    check(ordered, time)
    return tuple(_response(ordered[:at], task, ordered[at + 1 :], time) for at, task in enumerate(ordered))


def _blocking(less_urgent: tuple[Task, ...], time: Time) -> Ticks:
    most = max((task.cost for task in less_urgent), default=0)
    return max(most - 1, 0) if time is Time.WHOLE else most


def _response(urgent: tuple[Task, ...], task: Task, less_urgent: tuple[Task, ...], time: Time) -> Response | None:
    blocking = _blocking(less_urgent, time)
    level = (*urgent, task)
    share = load(level)
    if share > 1 or (share == 1 and (blocking > 0 or any(other.jitter for other in level))):
        return None
    steps = Steps()
    busy = _busy_period(level, blocking, steps)
    instances: list[Ticks] = []
    from_arrival: Ticks = 0
    for q in range(max(1, jobs_before(task, busy + task.jitter))):
        start = blocking + q * task.cost
        while True:
            steps.take()
            later = blocking + q * task.cost + _interference(urgent, start)
            if later == start:
                break
            start = later
        nominal = 0 if task.period is None else q * task.period
        instances.append(task.jitter + start - nominal + task.cost)
        from_arrival = max(from_arrival, start + task.cost - max(0, nominal - task.jitter))
    return Response(tuple(instances), from_arrival)


def _busy_period(level: tuple[Task, ...], blocking: Ticks, steps: Steps) -> Ticks:
    busy = level[-1].cost
    while True:
        steps.take()
        longer = blocking + sum(jobs_before(task, busy + task.jitter) * task.cost for task in level)
        if longer == busy:
            return busy
        busy = longer


def _interference(urgent: tuple[Task, ...], start: Ticks) -> Ticks:
    """What is served before a job that could begin at `start`: also what arrives at that very instant."""
    return sum(jobs_within(task, start + task.jitter) * task.cost for task in urgent)


def meets_deadlines(tasks: Sequence[Task], time: Time = Time.CONTINUOUS) -> tuple[bool, ...]:
    """For each task whether its worst response is within its deadline; False where it isn't bounded."""
    found = responses(tasks, time)
    return tuple(
        response is not None and response.worst <= task.deadline for task, response in zip(tasks, found, strict=True)
    )


def surely_meets_deadlines(tasks: Sequence[Task], time: Time = Time.CONTINUOUS) -> tuple[bool, ...]:
    """The sufficient test: one job, blocked also by the job of its own task before it.

    True is a proof if it is true of all tasks; False says nothing. Linear where `responses` is pseudo-polynomial, and
    pessimistic. False for D > T, of which it can't speak. Source: Davis et al. 2007, the sufficient test.
    """
    ordered = tuple(tasks)
    check(ordered, time)
    return tuple(_surely(ordered[:at], task, ordered[at + 1 :], time) for at, task in enumerate(ordered))


def _surely(urgent: tuple[Task, ...], task: Task, less_urgent: tuple[Task, ...], time: Time) -> bool:
    if task.period is not None and task.deadline > task.period:
        return False
    blocking = max(_blocking(less_urgent, time), task.cost)
    steps = Steps()
    start = blocking
    while task.jitter + start + task.cost <= task.deadline:
        steps.take()
        later = blocking + _interference(urgent, start)
        if later == start:
            return True
        start = later
    return False


def by_deadline(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Places in `tasks`, the shortest deadline first.

    The best order where no deadline exceeds its period and a shorter deadline never has a larger cost, as with moves of
    equal size (George et al. 1996). Otherwise see `audsley`: with D > T even equal moves can need another order.
    """
    return tuple(sorted(range(len(tasks)), key=lambda at: tasks[at].deadline))


def audsley(tasks: Sequence[Task], time: Time = Time.CONTINUOUS) -> tuple[int, ...] | None:
    """An order under which all deadlines are met, as places in `tasks`, the most urgent first; None if there is none.

    Optimal: whatever any fixed order can do, it finds. The least urgent place goes to the first task, from the end of
    `tasks`, that can bear it; then the place above. O(n^2) responses. Source: Audsley 2001; that it holds without
    preemption: George et al. 1996.
    """
    ordered = tuple(tasks)
    check(ordered, time)
    left, below = list(range(len(ordered))), list[int]()
    while left:
        for at in reversed(left):
            urgent = tuple(ordered[other] for other in left if other != at)
            found = _response(urgent, ordered[at], tuple(ordered[other] for other in below), time)
            if found is not None and found.worst <= ordered[at].deadline:
                break
        else:
            return None
        left.remove(at)
        below.insert(0, at)
    return tuple(below)


@dataclass(frozen=True, slots=True)
class Lift:
    """How many equal atomic moves leave one channel within a horizon."""

    count: int
    """floor((H - o) / C)."""
    fluid: int
    """floor(H / C): leaves out the overhead and that moves are atomic."""
    together_s: float
    """T(count) = o + count C."""
    urgent_blocked_s: float
    """One urgent move that finds another just begun: o + block + C."""


def lift(horizon_s: float, move_s: float, overhead_s: float = 0.0, chunk_s: float | None = None) -> Lift:
    """The fleet-lift test. `chunk_s`: what an urgent move waits for at most, where grants are chunks; None: a move.

    Domain: `move_s` > 0, the others >= 0. 0 moves where the overhead eats the horizon. Guarded by 1e-9 around whole
    numbers. Raises `BadValue` outside. Source: T(N) = o + N C of non-preemptive service.
    """
    positive(move_s, "move_s")
    for value, name in ((horizon_s, "horizon_s"), (overhead_s, "overhead_s"), (chunk_s or 0.0, "chunk_s")):
        at_least_zero(value, name)
    if at_least_zero(horizon_s / move_s, "the moves in a horizon") > 1e15:
        raise BadValue("more than 1e15 moves would fit a horizon")
    count = int(max(0.0, (horizon_s - overhead_s) / move_s) + 1e-9)
    block_s = move_s if chunk_s is None else chunk_s
    return Lift(count, int(horizon_s / move_s + 1e-9), overhead_s + count * move_s, overhead_s + block_s + move_s)
