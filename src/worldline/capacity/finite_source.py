"""Sessions that think and come back to a few lanes with exponential service: M/M/c//N, the machine repairman.

N sources, c lanes, first come first served. A source is idle for a mean time 1/nu, then asks for a service of mean
1/mu. Unlike Engset's loss, the tails depend on the law of the service; for a fixed one see `fixed_service`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, cast

import numpy as np

from worldline.capacity.distributions import Floats, poisson_below, poisson_log_at_least
from worldline.capacity.domain import EXACT_MAX, Real, at_least_zero, is_exact, positive, whole

SOURCES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Sources(Generic[Real]):
    """N sources at c lanes."""

    count: int
    lanes: int
    idle_per_s: Real
    """nu: calls a second of an idle source."""
    services_per_s: Real
    """mu: of one lane."""

    def __post_init__(self) -> None:
        most = EXACT_MAX if is_exact(self.idle_per_s) else SOURCES_MAX
        whole(self.count, "sources", most=most)
        whole(self.lanes, "lanes", least=1, most=SOURCES_MAX)
        at_least_zero(self.idle_per_s, "idle_per_s")
        positive(self.services_per_s, "services_per_s")
        at_least_zero(self.idle_per_s / self.services_per_s, "the load of an idle source")


@dataclass(frozen=True, slots=True)
class Stationary(Generic[Real]):
    """What holds on average."""

    nobody: Real
    """p0: the share of time all sources are idle."""
    present: Real
    """L: sources waiting or served."""
    waiting: Real
    """Lq."""
    throughput_per_s: Real
    """X; count = X (response + idle time)."""
    utilization: Real
    """Of a lane."""
    response_s: Real
    wait_s: Real
    waiting_chance: Real
    """P(a call waits), as the call sees it: the system of one source less (the arrival theorem)."""


def present_pmf(sources: Sources[Real]) -> list[Real]:
    """P(n sources are waiting or served), n = 0..count.

    Exact for fractions; otherwise by logarithms of ratios, never by factorials. O(count).
    Source: Feller I, XVII.7; Gross and Harris, ch. 2.
    """
    load = sources.idle_per_s / sources.services_per_s
    if not is_exact(load):
        return cast("list[Real]", _pmf(sources.count, sources.lanes, float(load)).tolist())
    weights = [load * 0 + 1]
    for n in range(1, sources.count + 1):
        weights.append(weights[-1] * (sources.count - n + 1) * load / min(n, sources.lanes))
    total = sum(weights, load * 0)
    return [weight / total for weight in weights]


def _pmf(count: int, lanes: int, load: float) -> Floats:
    if load == 0 or count == 0:
        still: Floats = np.eye(1, count + 1)[0]
        return still
    n = np.arange(1, count + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log((count - n + 1) / np.minimum(n, lanes)) + math.log(load))))
    weights = np.exp(logs - logs.max())
    answer: Floats = weights / weights.sum()
    return answer


def stationary(sources: Sources[Real]) -> Stationary[Real]:
    """The averages of `sources`.

    Without sources or calls all is zero, and a response is one service. As nu grows, X goes to c mu and the response
    to N/(c mu). Source: Gross and Harris, ch. 2; the arrival theorem: Sevcik and Mitrani 1981, Lavenberg and Reiser
    1980.
    """
    p = present_pmf(sources)
    zero, service_s, lanes = p[0] * 0, 1 / sources.services_per_s, sources.lanes
    present = sum((n * chance for n, chance in enumerate(p)), zero)
    waiting = sum(((n - lanes) * chance for n, chance in enumerate(p) if n > lanes), zero)
    busy = sum((min(n, lanes) * chance for n, chance in enumerate(p)), zero)
    rate = sources.services_per_s * busy
    if rate == 0:
        return Stationary(zero + 1, zero, zero, zero, zero, service_s, zero, zero)
    seen = present_pmf(Sources(sources.count - 1, lanes, sources.idle_per_s, sources.services_per_s))
    return Stationary(
        nobody=p[0],
        present=present,
        waiting=waiting,
        throughput_per_s=rate,
        utilization=busy / lanes,
        response_s=present / rate,
        wait_s=waiting / rate,
        waiting_chance=sum(seen[lanes:], zero),
    )


def wait_tail(sources: Sources[float], wait_s: float) -> float:
    """P(a call waits longer than `wait_s`), service excluded.

    A call that finds n >= c waits for n - c + 1 departures at rate c mu. Domain: `wait_s` >= 0. 0 where each source
    has a lane. Source: the arrival theorem, as in `stationary`.
    """
    at_least_zero(wait_s, "wait_s")
    lanes = sources.lanes
    if sources.count <= lanes:
        return 0.0
    seen = _pmf(sources.count - 1, lanes, sources.idle_per_s / sources.services_per_s)[lanes:]
    ahead = poisson_below(lanes * sources.services_per_s * wait_s, len(seen))
    return float(np.dot(seen, ahead))


def response_tail(sources: Sources[float], response_s: float) -> float:
    """P(a call's wait and service take longer than `response_s`).

    The wait as in `wait_tail`, then one service of rate mu. Domain: `response_s` >= 0; without sources it is one
    service's tail. Source: as `wait_tail`; the sum of an Erlang and an exponential time.
    """
    t = at_least_zero(response_s, "response_s")
    lanes, mu = sources.lanes, float(sources.services_per_s)
    service = math.exp(-mu * t)
    if sources.count <= lanes:
        return service
    seen = _pmf(sources.count - 1, lanes, sources.idle_per_s / mu)
    free, seen = float(seen[:lanes].sum()), seen[lanes:]
    if lanes == 1:
        # The wait of k departures and the service are one Erlang time of k + 1 stages.
        return min(1.0, free * service + float(np.dot(seen, poisson_below(mu * t, len(seen) + 1)[1:])))
    drain = lanes * mu
    k = np.arange(1, len(seen) + 1)
    served_later = np.zeros(len(seen))
    if t > 0:
        logs = k * math.log(lanes / (lanes - 1)) - mu * t + poisson_log_at_least((drain - mu) * t, len(seen))
        served_later = np.exp(np.minimum(logs, 0.0))
    return min(1.0, free * service + float(np.dot(seen, poisson_below(drain * t, len(seen)) + served_later)))
