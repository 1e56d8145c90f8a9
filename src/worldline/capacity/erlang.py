"""Loss and delay of servers that calls arrive at by chance: Erlang's formulas and their inverses.

The offered load A is the arrival rate times the mean holding time, in erlangs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from worldline.capacity.domain import (
    SERVERS_MAX,
    Real,
    at_least_zero,
    finite,
    inside_share,
    positive,
    whole,
    whole_for,
)
from worldline.errors import BadValue

HALVINGS_MAX = 200
"""Of an interval; a double has no more to give."""
INVERSE_SERVERS_MAX = 100_000


def erlang_b(servers: int, load: Real) -> Real:
    """The share of calls lost: B(c, A), no queue, any law of holding times.

    Domain: whole `servers` >= 0, `load` >= 0 erlangs, also above `servers`. B(0, A) = 1, also at A = 0. O(servers).
    Raises `BadValue` outside the domain. Source: Erlang 1917; the recursion, which damps its errors: Jagerman 1974.
    """
    whole_for(servers, "servers", load)
    loss = at_least_zero(load, "load") * 0 + 1
    for n in range(1, servers + 1):
        loss = load * loss / (n + load * loss)
    return loss


def erlang_b_real(servers: float, load: float) -> float:
    """B(c, A) for a real number of servers, by 1/B = A * integral of exp(-A t) (1 + t)^c.

    The integral for the fraction of c in [0, 1), then the recursion over its whole part. Domain as `erlang_b`.
    Source: Jagerman 1974; the incomplete gamma function by Abramowitz and Stegun 6.5.29 and 6.5.31.
    """
    at_least_zero(servers, "servers")
    at_least_zero(load, "load")
    if servers > SERVERS_MAX:
        raise BadValue(f"servers must be from 0 to {SERVERS_MAX}, and is {servers!r}")
    if load == 0:
        return 1.0 if servers == 0 else 0.0
    steps = math.floor(servers)
    part = servers - steps
    loss = 1.0 if part == 0 else 1 / _inverse_loss(part, load)
    for n in range(1, steps + 1):
        loss = load * loss / (part + n + load * loss)
    return loss


def _inverse_loss(part: float, load: float) -> float:
    """A^-c exp(A) Gamma(c + 1, A) for c in (0, 1)."""
    a = part + 1
    if load < a + 1:
        term = total = 1 / a
        for n in range(1, HALVINGS_MAX):
            term *= load / (a + n)
            total += term
        return math.exp(load) * math.gamma(a) / math.pow(load, part) - load * total
    # Lentz's continued fraction for exp(x) x^-a Gamma(a, x); it needs fewer steps the larger x is.
    b = load + 1 - a
    c, d = 1e300, 1 / b
    fraction = d
    for n in range(1, 10 * HALVINGS_MAX):
        step = n * (a - n)
        b += 2
        d = 1 / (step * d + b)
        c = b + step / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return load * fraction


def erlang_b_servers(load: Real, loss_max: Real) -> int:
    """The fewest servers that lose at most `loss_max`.

    Domain: `load` >= 0, `loss_max` > 0. 0 where `load` is 0 or `loss_max` >= 1. Raises `BadValue` also where more than
    `SERVERS_MAX` would be needed (`EXACT_MAX` for fractions). Source: `erlang_b`'s recursion.
    """
    at_least_zero(load, "load")
    positive(loss_max, "loss_max")
    if load == 0 or loss_max >= 1:
        return 0
    # A server carries at most one erlang, so this many are needed at the least.
    whole_for(math.ceil(load * (1 - loss_max)), "the servers needed", load)
    servers, loss = 0, load * 0 + 1
    while loss > loss_max:
        servers = whole_for(servers + 1, "the servers needed", load)
        loss = load * loss / (servers + load * loss)
    return servers


def erlang_b_load(servers: int, loss_max: float) -> float:
    """The largest load that `servers` carry with at most `loss_max` lost.

    Domain: 0 < `loss_max` < 1; 0 for no servers. Raises `BadValue` outside. By halving: B grows with A, and c/(1-p) is
    too much, since no more than c is carried. Source: Erlang 1917.
    """
    whole(servers, "servers", most=INVERSE_SERVERS_MAX)
    inside_share(loss_max, "loss_max")
    low, high = 0.0, servers / (1 - loss_max)
    for _ in range(HALVINGS_MAX):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if erlang_b(servers, middle) <= loss_max:
            low = middle
        else:
            high = middle
    return low


def erlang_c(servers: int, load: Real) -> Real:
    """The chance that a call waits: C(c, A), one queue, exponential holding times.

    1 where `load` >= `servers`: the queue grows without end. 0 at `load` 0 with a server. Domain and errors as
    `erlang_b`. Source: Erlang 1917, from B: C = cB / (c - A(1 - B)).
    """
    loss = erlang_b(servers, load)
    if load >= servers:
        return load * 0 + 1
    return servers * loss / (servers - load * (1 - loss))


def erlang_c_real(servers: float, load: float) -> float:
    """C(c, A) for a real number of servers; as `erlang_c`."""
    loss = erlang_b_real(servers, load)
    return 1.0 if load >= servers else servers * loss / (servers - load * (1 - loss))


def erlang_c_servers(load: float, waiting_max: float) -> int:
    """The fewest servers at which a call waits with a chance of at most `waiting_max`.

    Domain: `load` >= 0, `waiting_max` > 0; 0 where nothing is offered. Always more than `load`, unless
    `waiting_max` >= 1: then 0, as any queue will do. Raises `BadValue` outside, or beyond `SERVERS_MAX`.
    """
    at_least_zero(load, "load")
    positive(waiting_max, "waiting_max")
    if load == 0 or waiting_max >= 1:
        return 0
    whole(math.floor(load) + 1, "the servers needed")
    servers, loss = 0, 1.0
    while servers <= load or servers * loss / (servers - load * (1 - loss)) > waiting_max:
        servers = whole(servers + 1, "the servers needed")
        loss = load * loss / (servers + load * loss)
    return servers


def erlang_c_load(servers: int, waiting_max: float) -> float:
    """The largest load at which a call waits with a chance of at most `waiting_max`; always below `servers`.

    Domain: 0 < `waiting_max` < 1; 0 for no servers. Raises `BadValue` outside.
    """
    whole(servers, "servers", most=INVERSE_SERVERS_MAX)
    inside_share(waiting_max, "waiting_max")
    low, high = 0.0, float(servers)
    for _ in range(HALVINGS_MAX):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if erlang_c(servers, middle) <= waiting_max:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class Queue:
    """A stable M/M/c queue, first come first served."""

    servers: int
    arrivals_per_s: float
    services_per_s: float
    """Of one server."""
    waiting_chance: float

    @property
    def drain_per_s(self) -> float:
        """How fast the queue empties while all serve."""
        return self.servers * self.services_per_s - self.arrivals_per_s

    @property
    def wait_s(self) -> float:
        return self.waiting_chance / self.drain_per_s

    @property
    def response_s(self) -> float:
        """Wait and service."""
        return self.wait_s + 1 / self.services_per_s

    @property
    def waiting(self) -> float:
        """Calls in the queue, by Little's law."""
        return self.arrivals_per_s * self.wait_s

    @property
    def present(self) -> float:
        """Calls in the queue and in service."""
        return self.arrivals_per_s * self.response_s

    @property
    def occupancy(self) -> float:
        """The share of time a server is busy."""
        return self.arrivals_per_s / (self.servers * self.services_per_s)

    def wait_tail(self, wait_s: float) -> float:
        """P(wait > `wait_s`), `wait_s` >= 0."""
        return self.waiting_chance * math.exp(-self.drain_per_s * at_least_zero(wait_s, "wait_s"))


def queue(servers: int, arrivals_per_s: float, services_per_s: float) -> Queue:
    """The M/M/c queue of these rates.

    Domain: at least one server, both rates >= 0, services above zero. Raises `BadValue` outside, and where the load
    is not below the servers: such a queue has no stationary answer. Source: Erlang 1917.
    """
    whole(servers, "servers", least=1)
    at_least_zero(arrivals_per_s, "arrivals_per_s")
    load = finite(arrivals_per_s / positive(services_per_s, "services_per_s"), "load")
    if load >= servers:
        raise BadValue(
            f"{servers} servers can't carry {load:.6g} erlangs: the queue grows without end", servers=servers, load=load
        )
    return Queue(servers, arrivals_per_s, services_per_s, erlang_c(servers, load))


@dataclass(frozen=True, slots=True)
class Service:
    """What callers were promised: at least `share_min` of them wait at most `wait_s`."""

    wait_s: float
    share_min: float
    occupancy_max: float = 1.0


def staff(arrivals_per_s: float, services_per_s: float, service: Service) -> Queue:
    """The queue with the fewest servers that keeps the promise.

    Domain: rates as `queue`, `wait_s` >= 0, `share_min` in (0, 1), `occupancy_max` in (0, 1]. Raises `BadValue`
    outside, or beyond `SERVERS_MAX`. Source: Erlang 1917 (C and its waiting tail).
    """
    at_least_zero(service.wait_s, "wait_s")
    inside_share(service.share_min, "share_min")
    if not 0 < finite(service.occupancy_max, "occupancy_max") <= 1:
        raise BadValue(f"occupancy_max must be above 0 and at most 1, and is {service.occupancy_max!r}")
    at_least_zero(arrivals_per_s, "arrivals_per_s")
    load = finite(arrivals_per_s / positive(services_per_s, "services_per_s"), "load")
    busiest = finite(load / service.occupancy_max, "the servers needed")
    servers = whole(max(math.ceil(busiest), math.floor(load) + 1), "the servers needed")
    loss = erlang_b(servers, load)
    while True:
        waits = servers * loss / (servers - load * (1 - loss))
        found = Queue(servers, arrivals_per_s, services_per_s, waits)
        if 1 - found.wait_tail(service.wait_s) >= service.share_min:
            return found
        servers = whole(servers + 1, "the servers needed")
        loss = load * loss / (servers + load * loss)
