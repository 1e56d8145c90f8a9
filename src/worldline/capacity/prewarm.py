"""What to keep warm: slots that are ready, and when readiness pays."""

from __future__ import annotations

import math
from dataclasses import dataclass

from worldline.capacity.domain import at_least_zero, inside_share, positive, whole
from worldline.capacity.erlang import erlang_b_servers


@dataclass(frozen=True, slots=True)
class Buffer:
    """Slots kept for sessions that come back."""

    load: float
    """Reactivations a second times the time each holds a slot, in erlangs."""
    slots: int


def warm_buffer(sessions: int, cycle_s: float, holding_s: float, miss_max: float) -> Buffer:
    """The fewest slots at which at most `miss_max` of the reactivations find none free.

    `cycle_s`: the mean time from one reactivation of a session to its next; `holding_s`: how long one holds a slot (the
    time of a move; any law). Domain: sessions >= 0, times > 0 (holding >= 0), 0 < miss_max < 1. Raises `BadValue`
    outside. Source: Erlang 1917, B's inverse; the sessions are taken as many, so that arrivals are Poisson.
    """
    whole(sessions, "sessions")
    inside_share(miss_max, "miss_max")
    load = sessions / positive(cycle_s, "cycle_s") * at_least_zero(holding_s, "holding_s")
    return Buffer(load, erlang_b_servers(at_least_zero(load, "load"), miss_max))


def prewarm_break_even(keeping_cost: float, first_touch_cost: float, hot_cost: float) -> float:
    """Uses, lambda*, from which a slot that is kept ready pays: p / (c_first - c_hot).

    `keeping_cost` is paid always, for each slot or each second: so are the uses counted. A use costs `hot_cost` with it
    and `first_touch_cost` without, in the same unit. Infinite where a hot use is no cheaper; 0 where keeping costs
    nothing. Domain: all >= 0. Raises `BadValue` outside. The paper's 0.64 is underdetermined by what is public; this is
    the formula, and no calibration of it.
    """
    at_least_zero(keeping_cost, "keeping_cost")
    gain = at_least_zero(first_touch_cost, "first_touch_cost") - at_least_zero(hot_cost, "hot_cost")
    if gain <= 0:
        return math.inf
    return keeping_cost / gain
