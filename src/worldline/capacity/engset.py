"""Loss among a known number of callers: Engset's formulas, in both conventions of what a load is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from worldline.capacity.domain import Real, at_least_zero, inside_share, positive, whole, whole_for
from worldline.capacity.erlang import HALVINGS_MAX
from worldline.errors import BadValue

OFFERED_SOURCES_MAX = 100_000
"""The recursion is run once a halving."""


@dataclass(frozen=True, slots=True)
class Engset(Generic[Real]):
    """Three congestions of one system; traffic <= call <= time."""

    time_congestion: Real
    """E: the share of time all servers are busy."""
    call_congestion: Real
    """B: the share of calls lost; what a caller sees."""
    traffic_congestion: Real
    """C: the share of the offered traffic that is not carried."""
    carried: Real
    """Busy servers, on average."""


def engset(sources: int, servers: int, idle_load: Real) -> Engset[Real]:
    """Loss of `sources` that each call again after an idle time.

    `idle_load` a = calls a second of an *idle* source times the mean holding time (Iversen's convention); for the other
    one see `engset_offered`. Insensitive to the laws of both times. Domain: whole numbers >= 0, `idle_load` >= 0. No
    sources or no load: all zero. A server each: no call is lost, and time congestion is still above zero.
    Raises `BadValue` outside. Source: Engset 1918; the recursion: Iversen, Teletraffic Engineering Handbook, ch. 5.
    """
    whole(sources, "sources")
    whole_for(servers, "servers", idle_load)
    a = at_least_zero(idle_load, "idle_load")
    zero = a * 0
    if sources == 0 or a == 0:
        return Engset(zero, zero, zero, zero)
    call = _time_congestion(sources - 1, servers, a)
    passed = a * (1 - call)
    return Engset(_time_congestion(sources, servers, a), call, call / (1 + passed), sources * passed / (1 + passed))


def _time_congestion(sources: int, servers: int, a: Real) -> Real:
    if servers > sources:
        return a * 0
    busy = a * 0 + 1
    for n in range(1, servers + 1):
        offered = (sources - n + 1) * a * busy
        busy = offered / (n + offered)
    return busy


def engset_servers(sources: int, idle_load: Real, loss_max: Real, by_time: bool = False) -> int:
    """The fewest servers at which call congestion (or time congestion) is at most `loss_max`; `sources` always do.

    Domain: as `engset`, `loss_max` > 0. Raises `BadValue` outside.
    """
    whole_for(sources, "sources", idle_load)
    positive(loss_max, "loss_max")
    a = at_least_zero(idle_load, "idle_load")
    if sources == 0 or a == 0:
        return 0
    callers = sources if by_time else sources - 1
    busy, n = a * 0 + 1, 0
    while busy > loss_max and n < sources:
        n += 1
        offered = (callers - n + 1) * a * busy
        busy = offered / (n + offered)
    return n


def engset_offered(sources: int, servers: int, source_load: float) -> float:
    """Call congestion, where `source_load` is what *each source offers* over all its time, lost calls included.

    Then a = alpha / (1 - alpha (1 - P)) depends on the answer P, found by halving. The same alpha = 0.2 taken as
    a / (1 + a) gives another number: say which convention a load is in. Domain: whole numbers >= 0,
    0 <= `source_load` < 1. Raises `BadValue` outside. Source: Azimzadeh and Carpenter 2016.
    """
    whole(sources, "sources", most=OFFERED_SOURCES_MAX)
    whole(servers, "servers")
    if not 0 <= at_least_zero(source_load, "source_load") < 1:
        raise BadValue(f"a source can't offer an erlang or more by itself, and source_load is {source_load!r}")
    if sources == 0 or source_load == 0 or servers >= sources:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS_MAX):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if _time_congestion(sources - 1, servers, source_load / (1 - source_load * (1 - middle))) > middle:
            low = middle
        else:
            high = middle
    return high


def engset_offered_servers(sources: int, source_load: float, loss_max: float) -> int:
    """The fewest servers at which `engset_offered` is at most `loss_max`; by halving over 0..`sources`."""
    whole(sources, "sources", most=OFFERED_SOURCES_MAX // 10)
    inside_share(loss_max, "loss_max")
    low, high = -1, sources
    while high - low > 1:
        middle = (low + high) // 2
        if engset_offered(sources, middle, source_load) <= loss_max:
            high = middle
        else:
            low = middle
    return high


def idle_load_of(busy_share: Real) -> Real:
    """a = d / (1 - d), from the share of time a source would be busy if it never lost a call; d in [0, 1)."""
    if not 0 <= at_least_zero(busy_share, "busy_share") < 1:
        raise BadValue(f"busy_share must be from 0 to below 1, and is {busy_share!r:.60}")
    return busy_share / (1 - busy_share)
