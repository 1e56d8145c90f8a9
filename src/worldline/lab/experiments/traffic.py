"""Moves that are asked for, and their service by a simulated fabric under the real calendar.

Every move has the size and the time allowed of the paper's: 96.4 ms of a port, 400 ms. What is simulated is the clock
and the bytes; what is accepted, and when it is served, is decided by `control.calendar`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worldline.capacity.admission import greedy
from worldline.control.calendar import Calendar
from worldline.control.grants import Accepted, Ask, Booking, Policy, Ports
from worldline.schema.ids import HostId, MoveId

COST_US = 96_400
WITHIN_US = 400_000
BYTES_PER_S = 1_000_000_000.0
MOVE_BYTES = round(COST_US * BYTES_PER_S / 1e6)
CHUNK_BYTES = MOVE_BYTES // 16
BATCH_MEAN = 7.0
"""Arrivals at once in a bursty trace, geometric: the variance of their count is 2 x 7 - 1 = 13 times its mean, as in
the public trace of a code model's requests (Azure 2023: 13.2).
"""


@dataclass(frozen=True, slots=True)
class Trace:
    """Moves in order of arrival."""

    arrivals_us: list[int]
    sources: list[int]
    targets: list[int]
    stretch: list[float]
    """Of each move's service: what it takes over what was measured."""

    @property
    def offered(self) -> int:
        return len(self.arrivals_us)


def trace(chance: np.random.Generator, load: float, count: int, nodes: int, *, bursty: bool = False) -> Trace:
    """Poisson or batch arrivals at `load` of every port; one receiver where `nodes` is 1, else every host to every
    other.
    """
    if load == 0:
        return Trace([], [], [], [])
    rate_per_us = load * nodes / COST_US
    if bursty:
        sizes = chance.geometric(1 / BATCH_MEAN, size=count)
        times = np.cumsum(chance.exponential(BATCH_MEAN / rate_per_us, size=count))
        arrivals = np.repeat(times, sizes)[:count]
    else:
        arrivals = np.cumsum(chance.exponential(1 / rate_per_us, size=count))
    if nodes == 1:  # each sender has one move only, so the receiver is all there is to book
        sources, targets = np.arange(1, count + 1) % 16 + 1, np.zeros(count, np.int64)
    else:
        sources = chance.integers(0, nodes, size=count)
        targets = (sources + chance.integers(1, nodes, size=count)) % nodes
    return Trace(arrivals.astype(np.int64).tolist(), sources.tolist(), targets.tolist(), [1.0] * count)


def with_error(traced: Trace, chance: np.random.Generator, error: float) -> Trace:
    """The same moves, each taking up to `error` more or less than was measured."""
    stretch = (1 + chance.uniform(-error, error, size=traced.offered)).tolist()
    return Trace(traced.arrivals_us, traced.sources, traced.targets, stretch)


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a trace."""

    accepted: int
    late: int
    """Of the accepted."""


class Service:
    """Serves the bookings of a calendar: a move's bytes flow in its spans and nowhere else."""

    def __init__(self, calendar: Calendar) -> None:
        self.late = 0
        self._calendar = calendar
        self._needs_us: dict[MoveId, int] = {}
        self._ends: list[tuple[int, MoveId]] = []
        self._end_of: dict[MoveId, int] = {}

    def begin(self, move: MoveId, needs_us: int) -> None:
        self._needs_us[move] = needs_us
        self._plan(move)

    def run(self, until_us: int) -> None:
        """Up to a time: what has got all its bytes is over, and others come forward."""
        ends, calendar = self._ends, self._calendar
        while ends and ends[0][0] <= until_us:
            now, move = heapq.heappop(ends)
            if self._end_of.get(move) != now:
                continue  # it was put elsewhere since
            booking = calendar.booking(move)
            if served_us(booking, now) < self._needs_us[move]:  # what was reserved is not enough
                calendar.extend(move, CHUNK_BYTES, now)
            else:
                self.late += now > booking.ask.deadline_us
                del self._end_of[move], self._needs_us[move]
                calendar.finish(move, now)
            if calendar.changed:
                for other in calendar.changed:
                    self._plan(other)
                calendar.changed.clear()

    def _plan(self, move: MoveId) -> None:
        end = self._end_of[move] = end_us(self._calendar.booking(move), self._needs_us[move])
        heapq.heappush(self._ends, (end, move))


def end_us(booking: Booking, needs_us: int) -> int:
    """When so much service is reached, or all that is booked is over."""
    end = 0
    for begin, end in booking.slots.spans:
        if end - begin >= needs_us:
            return begin + needs_us
        needs_us -= end - begin
    return end


def served_us(booking: Booking, now_us: int) -> int:
    return sum(min(end, now_us) - begin for begin, end in booking.slots.spans if begin < now_us)


def calendar_of(nodes: int, margin: float) -> Calendar:
    """Ports of one rate; no overhead, and nothing kept for messages, so that the ports are what is graded."""
    calendar = Calendar(Policy(margin=margin, overhead_us=0, chunk_bytes=CHUNK_BYTES, control_share=0.0))
    for node in range(17 if nodes == 1 else nodes):
        calendar.set_host(HostId(str(node)), Ports(BYTES_PER_S, BYTES_PER_S))
    return calendar


def play(traced: Trace, nodes: int, margin: float) -> Played:
    """Offers every move to the real calendar, and serves what it accepts."""
    calendar = calendar_of(nodes, margin)
    service = Service(calendar)
    names = [HostId(str(node)) for node in range(17)]
    accepted = 0
    moves = zip(traced.arrivals_us, traced.sources, traced.targets, traced.stretch, strict=True)
    for number, (now, source, target, stretch) in enumerate(moves):
        service.run(now)
        move = MoveId(str(number))
        ask = Ask(move, names[source], names[target], MOVE_BYTES, now + WITHIN_US)
        if isinstance(calendar.ask(ask, now), Accepted):
            accepted += 1
            service.begin(move, round(COST_US * stretch))
    service.run(1 << 62)
    return Played(accepted, service.late)


def best(traced: Trace, nodes: int) -> int:
    """The most that any schedule admits in time, all arrivals known, were each port alone: exact for one receiver, and
    an upper bound where every move needs two ports (the smaller of all senders' and all receivers' best).
    """
    if nodes == 1:
        return _best_of(traced.arrivals_us)
    sides = []
    for ports in (traced.sources, traced.targets):
        of_port: list[list[int]] = [[] for _ in range(nodes)]
        for arrival, port in zip(traced.arrivals_us, ports, strict=True):
            of_port[port].append(arrival)
        sides.append(sum(_best_of(arrivals) for arrivals in of_port))
    return min(sides)


def _best_of(arrivals_us: Sequence[int]) -> int:
    return len(greedy(arrivals_us, COST_US, WITHIN_US))


def late_without_admission(traced: Trace, nodes: int) -> int:
    """Every move is begun in order of arrival as soon as its ports are free: who is late then."""
    if not traced.offered:
        return 0
    costs = np.asarray(traced.stretch) * COST_US
    arrivals = np.asarray(traced.arrivals_us, float)
    if nodes == 1:
        return int(np.count_nonzero(_ends(arrivals, costs) > arrivals + WITHIN_US))
    free = [[0.0] * nodes, [0.0] * nodes]
    late = 0
    for now, source, target, cost in zip(arrivals, traced.sources, traced.targets, costs, strict=True):
        end = max(now, free[0][source], free[1][target]) + cost
        free[0][source] = free[1][target] = end
        late += end > now + WITHIN_US
    return int(late)


def _ends(arrivals: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of service in order of arrival: each begins when it is here and the one before is over."""
    through = np.cumsum(costs)
    return np.maximum.accumulate(arrivals - (through - costs)) + through
