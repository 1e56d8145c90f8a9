"""Which moves a receiver may promise: the decision on its calendar, and what the best possible controller could admit.

The invariant: in order of deadlines, after what is in flight, every accepted move ends by its deadline under its
reserved cost. A move that takes no longer than reserved only makes the others earlier, and service never idles, so none
is ever late. Costs and times are in one unit, whole or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from worldline.capacity.domain import at_least_zero, finite, positive, whole
from worldline.errors import BadValue

Floats: TypeAlias = NDArray[np.float64]
ARRIVALS_MAX = 100_000
DIGITS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Calendar:
    """Accepted moves of one receiver that have not begun, in order of their deadlines."""

    costs: Floats
    """Reserved: what a move takes, with margin and overhead."""
    deadlines: Floats
    free_at: float = 0.0
    """When what is in flight ends."""

    def __post_init__(self) -> None:
        costs, deadlines = self.costs, self.deadlines
        if costs.ndim != 1 or costs.shape != deadlines.shape:
            raise BadValue("a calendar has one cost and one deadline a move")
        if not (np.isfinite(costs).all() and (costs >= 0).all() and np.isfinite(deadlines).all()):
            raise BadValue("a calendar's costs are finite and not negative, its deadlines finite")
        if (deadlines[1:] < deadlines[:-1]).any():
            raise BadValue("a calendar is in order of deadlines")
        finite(self.free_at, "free_at")


EMPTY = Calendar(np.empty(0), np.empty(0))


@dataclass(frozen=True, slots=True)
class Decision:
    """Of one request."""

    accepted: bool
    place: int
    """Among the calendar's moves; ties go behind."""
    finish: float
    """When the move would end at the latest."""
    earliest_deadline: float
    """The soonest deadline that is accepted now; any later one is, too."""


def reserved(cost: float, margin: float, overhead: float = 0.0) -> float:
    """(1 + m) C + o: what is booked. Domain: all >= 0. Raises `BadValue` outside."""
    return at_least_zero((1 + at_least_zero(margin, "margin")) * at_least_zero(cost, "cost"), "cost") + at_least_zero(
        overhead, "overhead"
    )


def decide(calendar: Calendar, now: float, cost: float, deadline: float) -> Decision:
    """Whether a move of this reserved cost and absolute deadline can be promised, every earlier promise kept.

    O(n) in the accepted moves, in numpy. Domain: cost >= 0, finite times, `calendar` in order of deadlines. Raises
    `BadValue` outside. Source: George et al. 1996 (non-preemptive EDF), of a known set of jobs.
    """
    at_least_zero(cost, "cost")
    finite(deadline, "deadline")
    begin = max(finite(now, "now"), calendar.free_at)
    deadlines = calendar.deadlines
    ends = begin + np.cumsum(calendar.costs)
    place = int(np.searchsorted(deadlines, deadline, side="right"))
    finish = float(ends[place - 1] if place else begin) + cost
    tight = np.flatnonzero(ends + cost > deadlines)  # promises that can't wait for this move
    # Behind the last of those every promise can wait, so any later deadline would do too.
    last = int(tight[-1]) if tight.size else None
    earliest = begin + cost if last is None else max(float(deadlines[last]), float(ends[last]) + cost)
    return Decision(deadline >= earliest, place, finish, earliest)


def book(calendar: Calendar, decision: Decision, cost: float, deadline: float) -> Calendar:
    """The calendar with the accepted move in it. Raises `BadValue` for one that was not accepted."""
    if not decision.accepted:
        raise BadValue("a move that was refused can't be booked")
    return Calendar(
        np.insert(calendar.costs, decision.place, cost),
        np.insert(calendar.deadlines, decision.place, deadline),
        calendar.free_at,
    )


@dataclass(frozen=True, slots=True)
class Request:
    """A move that asks at `arrival` to be over by `deadline`."""

    arrival: float
    cost: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Served:
    """An accepted request and when it ran."""

    request: int
    start: float
    finish: float


def run_edf(requests: Sequence[Request]) -> tuple[Served, ...]:
    """Admission and service of one receiver, played through; in order of requests.

    Accept if and only if every promise holds; then the earliest deadline first, never interrupted, arrivals at t before
    a start at t, ties to the earlier request. Domain: at most 100,000 requests in order of arrival. Raises `BadValue`
    outside.
    """
    if len(requests) > ARRIVALS_MAX:
        raise BadValue(f"more than {ARRIVALS_MAX} requests")
    calendar, waiting, served = EMPTY, list[int](), list[Served]()
    last = -math.inf
    for at, request in enumerate(requests):
        if finite(request.arrival, "arrival") < last:
            raise BadValue("requests must come in order of arrival")
        last = request.arrival
        calendar = _serve_until(request.arrival, calendar, waiting, served)
        decision = decide(calendar, request.arrival, request.cost, request.deadline)
        if decision.accepted:
            # With nothing waiting the lane idled until now.
            free_at = calendar.free_at if waiting else max(calendar.free_at, request.arrival)
            calendar = book(calendar, decision, request.cost, request.deadline)
            calendar = Calendar(calendar.costs, calendar.deadlines, free_at)
            waiting.insert(decision.place, at)
    _serve_until(math.inf, calendar, waiting, served)
    return tuple(sorted(served, key=lambda one: one.request))


def _serve_until(now: float, calendar: Calendar, waiting: list[int], served: list[Served]) -> Calendar:
    """Starts what starts before `now`."""
    started, free_at = 0, calendar.free_at
    while started < len(waiting) and free_at < now:
        finish = free_at + float(calendar.costs[started])
        served.append(Served(waiting[started], free_at, finish))
        free_at = finish
        started += 1
    del waiting[:started]
    return Calendar(calendar.costs[started:], calendar.deadlines[started:], free_at)


def greedy(arrivals: Sequence[float], cost: float, horizon: float) -> tuple[int, ...]:
    """The requests that first-come-first-served admission accepts, all of one cost and one relative deadline.

    No schedule that knows the future accepts more (`most_admitted`): grade a controller on the same trace against this.
    Domain: cost > 0, horizon >= 0, arrivals in order. Raises `BadValue` outside.
    """
    positive(cost, "cost")
    at_least_zero(horizon, "horizon")
    free_at, accepted = -math.inf, []
    for at, arrival in enumerate(_in_order(arrivals)):
        finish = max(free_at, arrival) + cost
        if finish <= arrival + horizon:
            accepted.append(at)
            free_at = finish
    return tuple(accepted)


def most_admitted(arrivals: Sequence[float], cost: float, horizon: float) -> int:
    """The most requests any schedule serves in time, equal costs and relative deadlines, all arrivals known.

    By dynamic programming: the earliest end of k of the first n. O(n^2), at most 5,000 arrivals. Domain as `greedy`.
    """
    positive(cost, "cost")
    at_least_zero(horizon, "horizon")
    whole(len(arrivals), "arrivals", most=5000)
    ends = [-math.inf]
    for arrival in _in_order(arrivals):
        taken = [max(end, arrival) + cost for end in ends]
        late = [finish > arrival + horizon for finish in taken]
        offered = [math.inf, *(math.inf if is_late else finish for finish, is_late in zip(taken, late, strict=True))]
        ends = [min(kept, new) for kept, new in zip([*ends, math.inf], offered, strict=True)]
        if ends[-1] == math.inf:
            ends.pop()
    return len(ends) - 1


def _in_order(arrivals: Sequence[float]) -> Sequence[float]:
    if len(arrivals) > ARRIVALS_MAX:
        raise BadValue(f"more than {ARRIVALS_MAX} arrivals")
    for arrival in arrivals:
        finite(arrival, "arrival")
    for earlier, later in pairwise(arrivals):
        if later < earlier:
            raise BadValue("arrivals must be in order")
    return arrivals


def ideal_accepted_share(wait_max: float, load: float) -> float:
    """The share of Poisson requests that the best controller accepts: equal costs D, wait at most `wait_max` D.

    P = G / (1 + x G), G = sum over k <= L of exp(x(L - k)) (-x(L - k))^k / k!, L = (H - C)/C. L = 0: 1/(1 + x).
    Between 1/(1 + x) and min(1, 1/x); at x = 1 and a horizon of four moves 0.874, not 1. Domain: L >= 0, x >= 0;
    exact digits are kept for the alternating sum up to x L of about 1000, beyond which `BadValue`.
    Source: level crossing of the M/D/1 queue with bounded wait, cf. Erlang 1917 (B at one server for L = 0).
    """
    at_least_zero(wait_max, "wait_max")
    at_least_zero(load, "load")
    if load == 0:
        return 1.0
    digits = 40 + 2 * load * wait_max / math.log(10)
    if digits > DIGITS_MAX or wait_max > DIGITS_MAX:
        raise BadValue(f"a load of {load:g} and a wait of {wait_max:g} services need more digits than are kept")
    context = Context(prec=math.ceil(digits))
    x, whole_waits = Decimal(load), math.floor(wait_max)
    reach = context.multiply(x, context.subtract(Decimal(wait_max), whole_waits))
    power, step = context.exp(reach), context.exp(x) if whole_waits else Decimal(1)
    total = Decimal(0)
    for k in range(whole_waits, -1, -1):
        signed = context.power(-reach, k) if k else Decimal(1)
        total = context.add(total, context.divide(context.multiply(power, signed), math.factorial(k)))
        reach, power = context.add(reach, x), context.multiply(power, step)
    return float(context.divide(total, context.add(1, context.multiply(x, total))))
