"""The words of the calendar: what is asked, what is answered, and what is booked for a move."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import NamedTuple, TypeAlias

from worldline.capacity.domain import positive, share
from worldline.capacity.track import Span, Track
from worldline.errors import BadValue
from worldline.schema.ids import HostId, MoveId

SECOND_US = 1_000_000
MEMORY_MAX_BYTES = 1 << 62
FORGET_AT = 32
"""Spans behind the present that a port keeps before it drops them."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How reserved sizes are made of what was measured."""

    margin: float = 0.1
    """Added to every booked time: what measured rates may be too hopeful by."""
    overhead_us: int = 20_000
    """Of a move beside its bytes: prepare, seal, commit, activate. Not of a port: others may send meanwhile."""
    chunk_bytes: int = 16 * 1024 * 1024
    """The most that one grant lets through, and so what an urgent move waits for."""
    control_share: float = 0.02
    """Of every port's rate: kept for messages, which wait for no grant."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin >= 0 and self.overhead_us >= 0):
            raise BadValue("a policy's margin and overhead are not negative")
        positive(self.chunk_bytes, "chunk_bytes")
        if share(self.control_share, "control_share") == 1:
            raise BadValue("control traffic can't have the whole of a port")


@dataclass(frozen=True, slots=True)
class Ports:
    """What a host can do. Rates are the least of the last measured ones, memory is as the host told last."""

    egress_bytes_per_s: float
    ingress_bytes_per_s: float
    lane_bytes_per_s: float | None = None
    """Verified where it landed; None: never the bottleneck."""
    memory_free_bytes: int = MEMORY_MAX_BYTES

    def __post_init__(self) -> None:
        positive(self.egress_bytes_per_s, "egress_bytes_per_s")
        positive(self.ingress_bytes_per_s, "ingress_bytes_per_s")
        if self.lane_bytes_per_s is not None:
            positive(self.lane_bytes_per_s, "lane_bytes_per_s")


class Ask(NamedTuple):
    """A move that wants to be over by `deadline_us`."""

    move: MoveId
    source: HostId
    target: HostId
    wire_bytes: int
    """All that is expected to be sent, what is rewritten meanwhile included."""
    deadline_us: int
    memory_bytes: int = 0
    path_bytes_per_s: float | None = None
    """Of this pair of hosts, where that was measured; the ports may be faster."""


class Bottleneck(StrEnum):
    """What a move was refused for."""

    DEADLINE = "deadline"
    """Alone in the fleet it would be late."""
    MEMORY = "memory"
    EGRESS = "egress"
    INGRESS = "ingress"
    PAIR = "pair"
    """Each side has room, but not at the same time."""
    LANE = "lane"


class Accepted(NamedTuple):
    """A promise: the move is over by `finish_us`."""

    begin_us: int
    finish_us: int


class Refused(NamedTuple):
    """No promise. `earliest_at_us` is when the same move, with as much time as now, would be accepted, if nothing else
    is until then; None: waiting for what is booked does not help.
    """

    why: Bottleneck
    earliest_at_us: int | None


class Grant(NamedTuple):
    """The source of `move` may send, at this rate and until then. It ends by itself."""

    move: MoveId
    bytes_per_s: float
    until_us: int


class Wait(NamedTuple):
    """Nothing may be sent before `begin_us`."""

    begin_us: int


class Spent(NamedTuple):
    """All that was booked has passed, and the move is not over: it has to ask for more (`Calendar.extend`)."""


Answer: TypeAlias = Accepted | Refused
Permission: TypeAlias = Grant | Wait | Spent


class Cost(NamedTuple):
    """The reserved sizes of one move, in microseconds."""

    wire_us: int
    piece_us: int
    """A chunk on the wire."""
    lane_us: int
    lane_lag_us: int
    """A chunk in the lane: what is still to be verified when the last byte has landed."""
    overhead_us: int
    bytes_per_s: float

    @property
    def alone_us(self) -> int:
        """In a fleet that does nothing else."""
        return max(self.wire_us, self.lane_us) + self.lane_lag_us + self.overhead_us


def cost_of(ask: Ask, source: Ports, target: Ports, policy: Policy) -> Cost:
    """(1 + margin) of the bytes at the slowest measured rate, rounded up."""
    rate = min(source.egress_bytes_per_s, target.ingress_bytes_per_s)
    if ask.path_bytes_per_s is not None:
        rate = min(rate, ask.path_bytes_per_s)
    rate *= 1 - policy.control_share
    stretch = (1 + policy.margin) * SECOND_US
    chunk = min(policy.chunk_bytes, ask.wire_bytes)
    lane = target.lane_bytes_per_s
    return Cost(
        max(1, math.ceil(ask.wire_bytes * stretch / rate)),
        max(1, math.ceil(chunk * stretch / rate)),
        0 if lane is None else max(1, math.ceil(ask.wire_bytes * stretch / lane)),
        0 if lane is None else max(1, math.ceil(chunk * stretch / lane)),
        policy.overhead_us,
        rate,
    )


class Slots(NamedTuple):
    """What is booked for a move: pieces of the wire on both ports, one stretch of the lane, and when it is over."""

    spans: list[Span]
    lane: Span | None
    finish_us: int


class Booking:
    """An accepted move and its slots."""

    __slots__ = ("ask", "cost", "granted_us", "memory_bytes", "overran", "slots", "source", "target")

    def __init__(self, ask: Ask, cost: Cost, source: HostBook, target: HostBook) -> None:
        self.ask = ask
        self.cost = cost
        self.source = source
        self.target = target
        self.slots = Slots([], None, 0)
        self.memory_bytes = ask.memory_bytes
        """Still to be reserved at the target."""
        self.granted_us = 0
        """Until here the source may send whatever is decided now."""
        self.overran = False
        """It needed more than was reserved: it is promised nothing any more."""

    @property
    def late(self) -> bool:
        return self.slots.finish_us > self.ask.deadline_us


class Port:
    """One direction of one host: when it is busy, and for whom."""

    __slots__ = ("begins", "busy", "owners")

    def __init__(self) -> None:
        self.busy = Track()
        self.begins: list[int] = []
        """Of every span, in order; `owners` has its move at the same place."""
        self.owners: list[Booking] = []

    def take(self, span: Span, owner: Booking) -> None:
        self.busy.take(*span)
        at = bisect_left(self.begins, span[0])
        self.begins.insert(at, span[0])
        self.owners.insert(at, owner)

    def give_back(self, span: Span) -> None:
        """A whole span."""
        self.busy.give_back(*span)
        at = bisect_left(self.begins, span[0])
        del self.begins[at], self.owners[at]

    def cut(self, begin: int, end: int) -> None:
        """The rest of a span that began before `begin`."""
        self.busy.give_back(begin, end)

    def forget(self, now: int) -> None:
        """Drops what is over, now and then."""
        over = bisect_right(self.begins, now) - 1  # the last that began may go on
        if over >= FORGET_AT:
            del self.begins[:over], self.owners[:over]
            self.busy.forget(now)

    def coming(self, now: int, count: int) -> list[Booking]:
        """Whose spans begin after `now`: the first few."""
        at = bisect_right(self.begins, now)
        return self.owners[at : at + count]

    def in_the_way(self, now: int, deadline_us: int, count: int) -> list[Booking]:
        """Whose spans lie before `deadline_us` though they may be over later: the first few."""
        first = max(bisect_right(self.begins, now) - 1, 0)
        last = bisect_left(self.begins, deadline_us)
        later = (owner for owner in self.owners[first:last] if owner.ask.deadline_us > deadline_us)
        return list(islice(later, count))


class HostBook:
    """One host's ports, lane and memory."""

    __slots__ = ("egress", "ingress", "lane", "memory_booked_bytes", "ports")

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self.egress = Port()
        self.ingress = Port()
        self.lane = Track()
        self.memory_booked_bytes = 0
