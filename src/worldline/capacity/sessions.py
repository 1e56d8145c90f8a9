"""How many sessions a device can promise to bring back in time: K*, from the waiting tails and from memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from worldline.capacity.domain import at_least_zero, inside_share, positive, whole
from worldline.capacity.finite_source import SOURCES_MAX, Sources, response_tail, wait_tail
from worldline.capacity.fixed_service import SOURCES_MAX as FIXED_SOURCES_MAX
from worldline.capacity.fixed_service import Thinkers, fixed_response_tail, fixed_wait_tail
from worldline.errors import BadValue


class Law(Enum):
    """Of the time a reactivation takes."""

    EXPONENTIAL = "exponential"
    FIXED = "fixed"


class Metric(Enum):
    """What the bound is on."""

    WAIT = "wait"
    """Before the service begins."""
    RESPONSE = "response"
    """Wait and service."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Where reactivations are served."""

    service_s: float
    law: Law = Law.FIXED
    count: int = 1


@dataclass(frozen=True, slots=True)
class Promise:
    """At most `late_max` of the reactivations take longer than `bound_s`."""

    bound_s: float
    late_max: float = 0.01
    metric: Metric = Metric.RESPONSE


def late_share(sessions: int, idle_s: float, lanes: Lanes, promise: Promise) -> float:
    """The share of reactivations beyond the bound, with `sessions` on the device.

    Domain: `idle_s` (mean think time) > 0, `service_s` > 0, `bound_s` >= 0. A fixed service on more than one lane is
    `BadValue`: no model of it is here.
    """
    positive(idle_s, "idle_s")
    positive(lanes.service_s, "service_s")
    if lanes.law is Law.EXPONENTIAL:
        sources = Sources(sessions, lanes.count, 1 / idle_s, 1 / lanes.service_s)
        tail = wait_tail if promise.metric is Metric.WAIT else response_tail
        return tail(sources, promise.bound_s)
    if lanes.count != 1:
        raise BadValue(f"a fixed service is modelled on one lane, not on {lanes.count!r}")
    thinkers = Thinkers(sessions, idle_s, lanes.service_s)
    fixed_tail = fixed_wait_tail if promise.metric is Metric.WAIT else fixed_response_tail
    return fixed_tail(thinkers, promise.bound_s)


def sessions_max(idle_s: float, lanes: Lanes, promise: Promise) -> int:
    """K*: the most sessions at which the promise holds; 0 where not even one session's own service keeps it.

    An exponential service on the response metric gives 0 whenever exp(-bound / service) > `late_max`, whatever the
    think time: a measured K* above 0 can't mean that pair. Domain: as `late_share`, 0 < `late_max` < 1. Raises
    `BadValue` outside, or where more sessions than the models count would fit. By doubling and halving: the tail grows
    with the number of sessions.
    """
    inside_share(promise.late_max, "late_max")
    most = FIXED_SOURCES_MAX if lanes.law is Law.FIXED else SOURCES_MAX
    low, high = 0, 1
    while late_share(high, idle_s, lanes, promise) <= promise.late_max:
        if high == most:
            raise BadValue(f"more than {most} sessions would fit, which is beyond what is computed")
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        if late_share(middle, idle_s, lanes, promise) <= promise.late_max:
            low = middle
        else:
            high = middle
    return low


def memory_sessions_max(memory_bytes: float, weights_bytes: float, session_bytes: float) -> int:
    """Sessions that fit beside the weights; 0 where the weights alone don't fit.

    Domain: all >= 0, `session_bytes` > 0.
    """
    at_least_zero(memory_bytes, "memory_bytes")
    at_least_zero(weights_bytes, "weights_bytes")
    room = max(memory_bytes - weights_bytes, 0.0) / positive(session_bytes, "session_bytes")
    return whole(math.floor(at_least_zero(room, "the sessions that fit") * (1 + 1e-12)), "the sessions that fit")


@dataclass(frozen=True, slots=True)
class Row:
    """K* at one think time."""

    idle_s: float
    exponential_wait: int
    exponential_wait_before_service: int
    """Wait within the bound less one service."""
    fixed_wait: int
    fixed_response: int
    limit: int
    """`fixed_response` under the memory cap: what a device may promise."""


def sessions_table(
    idles_s: Sequence[float], service_s: float, bound_s: float, late_max: float = 0.01, memory_cap: int | None = None
) -> tuple[Row, ...]:
    """One row a think time; beyond some think time memory binds, not queueing.

    Domain: as `sessions_max`, `bound_s` >= `service_s`; `memory_cap` from `memory_sessions_max`, or None.
    """
    exponential, fixed = Lanes(service_s, Law.EXPONENTIAL), Lanes(service_s, Law.FIXED)
    wait = Promise(bound_s, late_max, Metric.WAIT)
    spare_s = at_least_zero(bound_s, "bound_s") - positive(service_s, "service_s")
    before = Promise(at_least_zero(spare_s, "bound_s less service_s"), late_max, Metric.WAIT)
    rows = []
    for idle_s in idles_s:
        response = sessions_max(idle_s, fixed, Promise(bound_s, late_max))
        rows.append(
            Row(
                idle_s,
                sessions_max(idle_s, exponential, wait),
                sessions_max(idle_s, exponential, before),
                sessions_max(idle_s, fixed, wait),
                response,
                response if memory_cap is None else min(response, whole(memory_cap, "memory_cap")),
            )
        )
    return tuple(rows)
