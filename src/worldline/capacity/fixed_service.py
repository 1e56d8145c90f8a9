"""Sessions that think and come back to one lane whose service always takes the same time: M/D/1//N.

The physically right law for moves of one size. There is no closed form of the waiting tail; here it comes from the
chain of what is present when a service starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from worldline.capacity.distributions import Floats, binomial_pmf, log_factorials, tails
from worldline.capacity.domain import at_least_zero, positive, whole

SOURCES_MAX = 2048
"""The chain and the tail take O(N^2)."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


@dataclass(frozen=True, slots=True)
class Thinkers:
    """N sources that are idle for an exponential time of mean `idle_s`, and one lane of `service_s` a call."""

    count: int
    idle_s: float
    service_s: float

    def __post_init__(self) -> None:
        whole(self.count, "sources", most=SOURCES_MAX)
        positive(self.idle_s, "idle_s")
        positive(self.service_s, "service_s")
        positive(self.load, "the load of an idle source")

    @property
    def load(self) -> float:
        """Service over idle time; beyond 1e6 nobody is ever seen idle, and no more is told apart."""
        return min(self.service_s / self.idle_s, 1e6)


def throughput_per_s(thinkers: Thinkers) -> float:
    """Services a second: one over the mean time from one service's start to the next.

    0 without sources. Equal to the closed form of Takacs 1962, which sums alternating products instead.
    """
    if thinkers.count == 0:
        return 0.0
    alone = _starts(thinkers)[0] * _stay_chance(thinkers, thinkers.count - 1)
    return float(1 / (thinkers.service_s + alone * thinkers.idle_s / thinkers.count))


def response_s(thinkers: Thinkers) -> float:
    """Mean wait and service: N/X - Z; one service without sources."""
    if thinkers.count <= 1:
        return thinkers.service_s
    return max(thinkers.service_s, thinkers.count / throughput_per_s(thinkers) - thinkers.idle_s)


def fixed_wait_tail(thinkers: Thinkers, wait_s: float) -> float:
    """P(a call waits longer than `wait_s`), service excluded.

    Over the calls that come during one service (one per service, on average): with j present, u into the service, the
    wait is j D - u. Domain: `wait_s` >= 0. 0 from (N - 1) D on. O(N^2). Source: the embedded chain, cf. Takacs 1962;
    Gauss-Legendre between the instants at which one call more means too long.
    """
    at_least_zero(wait_s, "wait_s")
    if thinkers.count <= 1 or wait_s >= (thinkers.count - 1) * thinkers.service_s:
        return 0.0
    starts = _starts(thinkers)
    logs = log_factorials(thinkers.count)
    most = math.floor(wait_s / thinkers.service_s)
    crossing = min(max((most + 1) * thinkers.service_s - wait_s, 0.0), thinkers.service_s)
    late = 0.0
    for enough, begin, end in ((most, 0.0, crossing), (most + 1, crossing, thinkers.service_s)):
        late += _late_calls(thinkers, starts, logs, (enough, begin, end))
    return float(min(max(late, 0.0), 1.0))


def fixed_response_tail(thinkers: Thinkers, response_s: float) -> float:
    """P(wait and service take longer than `response_s`); 1 below one service."""
    at_least_zero(response_s, "response_s")
    if response_s < thinkers.service_s:
        return 1.0
    return fixed_wait_tail(thinkers, response_s - thinkers.service_s)


def _late_calls(thinkers: Thinkers, starts: Floats, logs: Floats, piece: tuple[int, float, float]) -> float:
    """Calls in [begin, end) of a service that find more than `enough` present, weighed by how services start."""
    enough, begin, end = piece
    if end <= begin:
        return 0.0
    count, rate = thinkers.count, 1 / thinkers.idle_s
    n = np.arange(1, count + 1)
    calls = (count - n) * (math.exp(-rate * begin) - math.exp(-rate * end))
    late = float(np.dot(starts[enough:], calls[enough:]))
    u = begin + (end - begin) * (NODES + 1) / 2
    weights = WEIGHTS * (end - begin) / 2
    for present in range(1, min(enough, count - 1) + 1):
        others = count - present - 1
        short = enough - present + 1
        if short > others:
            continue
        more = tails(binomial_pmf(others, -np.expm1(-rate * u), logs))[:, short]
        late += starts[present - 1] * (count - present) * rate * float(np.dot(weights, np.exp(-rate * u) * more))
    return late


def _stay_chance(thinkers: Thinkers, idle: int) -> float:
    """P(none of `idle` sources calls during one service)."""
    return math.exp(-idle * thinkers.load)


def _starts(thinkers: Thinkers) -> Floats:
    """P(n are present when a service starts), n = 1..N, by the balance of flow over each cut n | n + 1.

    From n the next start sees max(1, n - 1 + calls), so a cut is crossed downwards only from n + 1, by staying alone.
    All terms are positive: nothing cancels.
    """
    count = thinkers.count
    call = np.array([-math.expm1(-thinkers.load)])
    logs = log_factorials(count)
    up = np.zeros(count + 2)  # up[k]: flow from n <= k to beyond k, in units of exp(scale)
    scale = 0.0
    log_starts = np.zeros(count)
    for n in range(1, count + 1):
        if n > 1:
            stays = -(count - n) * thinkers.load
            if up[n - 1] <= 0:
                log_starts[n - 1 :] = -np.inf
                break
            log_starts[n - 1] = math.log(up[n - 1]) + scale - stays
        if log_starts[n - 1] - scale > 500:
            up *= math.exp(scale - log_starts[n - 1])
            scale = log_starts[n - 1]
        more = tails(binomial_pmf(count - n, call, logs))[0]
        # The next start is beyond k >= n if at least k - n + 2 call.
        up[n : count - 1] += math.exp(log_starts[n - 1] - scale) * more[2:]
    weights = np.exp(log_starts - log_starts.max())
    answer: Floats = weights / weights.sum()
    return answer
