"""Devices that can be given back: idle sessions are parked and come back when their players do.

N sessions, one device each. A share f is always interactive, and pinned; the others are active for a mean time A, then
idle, with duty d = active / (active + idle). A parked session needs a free device when its player returns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from worldline.capacity.distributions import binomial_pmf, tails
from worldline.capacity.domain import at_least_zero, inside_share, positive, share, whole
from worldline.capacity.engset import engset_servers, idle_load_of
from worldline.capacity.finite_source import Sources, wait_tail

SESSIONS_MAX = 100_000


class Shortage(Enum):
    """What counts as a returning session that finds no device."""

    CALL = "call"
    """Engset's call congestion: the share of returns that find all busy. Insensitive to both laws."""
    TIME = "time"
    """Engset's time congestion."""
    WAIT = "wait"
    """The share of returns that wait longer than a bound: M/M/c//N."""
    BINOMIAL = "binomial"
    """P(more are active than there are devices), as if nobody ever waited."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A fleet's sessions."""

    sessions: int
    interactive_share: float
    """f: pinned, one device each."""
    duty: float
    """d, of the others."""
    active_s: float = 60.0
    """Mean time that an active phase lasts; only `WAIT` depends on it."""

    def __post_init__(self) -> None:
        whole(self.sessions, "sessions", most=SESSIONS_MAX)
        share(self.interactive_share, "interactive_share")
        share(self.duty, "duty")
        positive(self.active_s, "active_s")

    @property
    def pinned(self) -> int:
        return min(self.sessions, math.ceil(self.interactive_share * self.sessions * (1 - 1e-12)))

    @property
    def coming(self) -> int:
        """Sessions that come and go."""
        return self.sessions - self.pinned


def devices_needed(mix: Mix, shortage: Shortage, late_max: float = 0.01, wait_s: float = 0.0) -> int:
    """The fewest devices at which shortages are at most `late_max`.

    `wait_s` is for `WAIT` alone: the horizon less the time of a move. Domain: as `Mix`, 0 < late_max < 1, wait_s >= 0.
    With f = 1 or d = 1 all devices are needed; with d = 0 only the pinned. Raises `BadValue` outside. Source: Engset
    1918 (insensitive: Cohen 1957), the machine repairman's waiting tail, the binomial quantile.
    """
    inside_share(late_max, "late_max")
    at_least_zero(wait_s, "wait_s")
    if mix.coming == 0 or mix.duty == 0:
        return mix.pinned
    if mix.duty == 1:
        return mix.sessions
    match shortage:
        case Shortage.CALL | Shortage.TIME:
            by_time = shortage is Shortage.TIME
            return mix.pinned + engset_servers(mix.coming, idle_load_of(mix.duty), late_max, by_time)
        case Shortage.WAIT:
            return mix.pinned + _for_waiting(mix, late_max, wait_s)
        case Shortage.BINOMIAL:
            beyond = tails(binomial_pmf(mix.coming, np.array([mix.duty])))[0]
            return mix.pinned + int(np.count_nonzero(beyond[1:] > late_max))


def _for_waiting(mix: Mix, late_max: float, wait_s: float) -> int:
    low, high = 0, mix.coming
    idle_per_s = idle_load_of(mix.duty) / mix.active_s
    while high - low > 1:
        middle = (low + high) // 2
        if wait_tail(Sources(mix.coming, middle, idle_per_s, 1 / mix.active_s), wait_s) <= late_max:
            high = middle
        else:
            low = middle
    return high


def reclaimed_share(mix: Mix, shortage: Shortage, late_max: float = 0.01, wait_s: float = 0.0) -> float:
    """1 - devices / sessions; 0 without sessions. With many sessions it goes to (1 - f)(1 - d).

    The paper's 51, 24 and 0 % are one calibration of this: call congestion, 120 sessions, (f, d) = (0, 0.4), (0.6,
    0.25), (1, any). Two equations in at least five unknowns have others; see docs/capacity.md.
    """
    if mix.sessions == 0:
        return 0.0
    return 1 - devices_needed(mix, shortage, late_max, wait_s) / mix.sessions
