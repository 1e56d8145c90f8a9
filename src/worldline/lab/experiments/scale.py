"""A large fleet decided by the real control code: what a decision costs, and on what that depends.

Hosts, sessions and the clock are simulated. Each decision is `control.admission.admit` on what the two hosts are, and
`control.calendar.Calendar.ask` on what their ports are promised to; what is accepted is served, ends, and changes where
the session is and what memory is free.
"""

from __future__ import annotations

import gc
import heapq
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from worldline.clock import Clock, SystemClock, thread_cpu_s
from worldline.control.admission import HostSide, Load, Wish, admit
from worldline.control.calendar import Calendar
from worldline.control.grants import Accepted, Ask, Policy, Ports
from worldline.errors import BadValue, NoCapacity
from worldline.lab.experiments.bars import bars_text
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.report import Column, Line, Listing, Plot, Report, Section, Series, Standing, Table, Words
from worldline.schema.contract import Contract
from worldline.schema.ids import HostId, MoveId
from worldline.schema.plan import Plan
from worldline.schema.receipt import Mode

STATE_BYTES = 1_670_000_000
PORT_BYTES_PER_S = 12.5e9
LOAD = 0.7
"""Of every port: what is asked for, over what it carries."""
ROOM = 1.5
"""Memory of a host, over what its sessions take at the start."""
CONTRACT = Contract(pause_bound_s=0.4, completion_deadline_s=2.0)
PLAN = Plan("reference", (("cpu", "any"),), "weights", "0" * 64)
SLICE = 50_000
"""Decisions between two looks at the telemetry."""
BY_SESSIONS = (100_000, 300_000, 1_000_000)
BY_HOSTS = (100, 1_000, 10_000)


@dataclass(frozen=True, slots=True)
class Cost:
    """One size of fleet."""

    hosts: int
    sessions: int
    decisions: int
    accepted: int
    seconds: float
    """Of the wall: others may have had the processor too."""
    us_per_decision: float
    """Processor time. Everything: drawing the session, the decision, and what comes of it."""


@dataclass(frozen=True, slots=True)
class Scale:
    """`whole` is the bar's fleet; the others are slices that show on what a decision's cost depends."""

    whole: Cost
    by_sessions: list[Cost]
    """Sessions on other hosts, on as many hosts as the bar's."""
    by_hosts: list[Cost]
    """100 sessions a host."""
    flat: float
    """The dearest decision of `by_sessions` over the cheapest: 1 is flat. Ten times the sessions miss caches more."""
    within_s: float
    """What 10 million decisions take at the cost of `whole`."""


class Fleet:
    """Who is where, and the machines that decide."""

    def __init__(self, hosts: int, sessions: int, seed: int) -> None:
        self.random = Random(seed)
        self.calendar = Calendar(Policy(overhead_us=20_000, chunk_bytes=64 << 20))
        self.names = [HostId(f"h{host}") for host in range(hosts)]
        self.at = array("l", (session % hosts for session in range(sessions)))
        self.moving = bytearray(sessions)
        memory = round(ROOM * STATE_BYTES * max(1, sessions / hosts)) + 2 * STATE_BYTES
        self.free_bytes = [memory - STATE_BYTES * ((sessions - host + hosts - 1) // hosts) for host in range(hosts)]
        for name in self.names:
            self.calendar.set_host(name, Ports(PORT_BYTES_PER_S, PORT_BYTES_PER_S))
        self.now_us = 0.0
        self.accepted = 0
        self._gap_us = STATE_BYTES / PORT_BYTES_PER_S * 1e6 / (LOAD * hosts)
        self._ends: list[tuple[int, int, int]] = []
        self._number = 0

    def decide(self, count: int) -> None:
        """So many decisions, and whatever ends meanwhile."""
        random, hosts = self.random, len(self.names)
        for _ in range(count):
            self.now_us += random.expovariate(1.0) * self._gap_us
            if len(self._ends) == len(self.at):  # nobody is left to be moved: who asks comes after the next end
                self.now_us = max(self.now_us, self._ends[0][0])
            now = int(self.now_us)
            self._end(now)
            session = int(random.random() * len(self.at))
            while self.moving[session]:
                session = int(random.random() * len(self.at))
            one, other = int(random.random() * hosts), int(random.random() * hosts)
            target = one if self.free_bytes[one] >= self.free_bytes[other] else other
            source = self.at[session]
            if target == source:
                target = (source + 1) % hosts
            if self._begin(session, source, target, now):
                self.accepted += 1

    def _begin(self, session: int, source: int, target: int, now: int) -> bool:
        wish = Wish(Mode.PRECOPY, "tcp", CONTRACT, Load(STATE_BYTES, STATE_BYTES, 0.93e9, PORT_BYTES_PER_S))
        try:
            admit(wish, self._side(source), self._side(target))
        except NoCapacity:
            return False
        self._number += 1
        ask = Ask(
            MoveId(f"m{self._number}"), self.names[source], self.names[target], STATE_BYTES, now + 2_000_000
        )  # fmt: skip
        answer = self.calendar.ask(ask, now)
        if not isinstance(answer, Accepted):
            return False
        self.moving[session] = 1
        self.free_bytes[target] -= STATE_BYTES
        heapq.heappush(self._ends, (answer.finish_us, self._number, session))
        return True

    def _side(self, host: int) -> HostSide:
        return HostSide(self.names[host], True, "little", PLAN, self.free_bytes[host], ("tcp",))

    def _end(self, now: int) -> None:
        while self._ends and self._ends[0][0] <= now:
            at, number, session = heapq.heappop(self._ends)
            move = MoveId(f"m{number}")
            booking = self.calendar.booking(move)
            source, target = self.at[session], int(booking.ask.target[1:])
            self.calendar.finish(move, at)
            self.calendar.changed.clear()
            self.free_bytes[source] += STATE_BYTES
            self.at[session] = target
            self.moving[session] = 0


def measure(trial: Trial, *, hosts: int = 10_000, sessions: int = 1_000_000, decisions: int = 10_000_000) -> Scale:
    """Decides moves in a fleet of 10,000 hosts and 1,000,000 sessions, on one core.

    Parameters
    ----------
    trial: Trial
        The run.
    hosts: int
        From 2.
    sessions: int
        10 a host or more.
    decisions: int
        Of the whole fleet; each of the slices beside it gets a hundredth.
    """
    if hosts < 2 or not 10 * hosts <= sessions <= 10_000_000 or not 100 <= decisions <= 100_000_000:
        raise BadValue(
            f"a fleet has 2 hosts or more, 10 sessions a host ({10 * hosts:,} here) to 10 million in all, and 100 "
            f"decisions to 100 million; asked for are --hosts {hosts} --sessions {sessions} --decisions {decisions}"
        )
    clock, few = SystemClock(), max(100, decisions // 100)
    by_sessions = [_cost(trial, clock, hosts, max(1, sessions * each // BY_SESSIONS[-1]), few) for each in BY_SESSIONS]
    by_hosts = [_cost(trial, clock, max(2, hosts * each // BY_HOSTS[-1]), each * 100, few) for each in BY_HOSTS]
    whole = _cost(trial, clock, hosts, sessions, decisions)
    costs = [each.us_per_decision for each in by_sessions]
    return Scale(whole, by_sessions, by_hosts, max(costs) / min(costs), whole.us_per_decision * 10)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Decisions leave no cycles behind: the collector would only look at the bookings again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _cost(trial: Trial, clock: Clock, hosts: int, sessions: int, decisions: int) -> Cost:
    with _uncollected():
        return _timed(trial, clock, hosts, sessions, decisions)


def _timed(trial: Trial, clock: Clock, hosts: int, sessions: int, decisions: int) -> Cost:
    fleet = Fleet(hosts, sessions, seed=1)
    fleet.decide(min(decisions, 2 * hosts) // 2)  # ports and caches as they are later
    fleet.accepted = 0
    done, began_s, began_cpu_s = 0, clock.monotonic_s(), thread_cpu_s()
    while done < decisions:
        count = min(SLICE, decisions - done)
        fleet.decide(count)
        done += count
        trial.telemetry.check()
    seconds, cpu_s = clock.monotonic_s() - began_s, thread_cpu_s() - began_cpu_s
    found = Cost(hosts, sessions, decisions, fleet.accepted, seconds, cpu_s / decisions * 1e6)
    trial.say(f"{hosts:,} hosts, {sessions:,} sessions: {found.us_per_decision:.1f} us a decision")
    return found


def text(results: Scale) -> str:
    lines = [
        f"{cost.hosts:>7,} hosts {cost.sessions:>10,} sessions {cost.decisions:>11,} decisions "
        f"{cost.seconds:8.1f} s {cost.us_per_decision:6.1f} us each, {cost.accepted / cost.decisions:.0%} accepted"
        for cost in (results.whole, *results.by_sessions, *results.by_hosts)
    ]
    lines.append(f"dearest over cheapest as sessions on other hosts grow tenfold: {results.flat:.2f}")
    return "\n".join([*lines, bars_text(())])


def report(results: Scale) -> Report:
    columns = (
        Column("hosts", "hosts", Standing.SIMULATED),
        Column("sessions", "sessions", Standing.SIMULATED),
        Column("decisions", "decisions", Standing.SIMULATED),
        Column("accepted", "accepted", Standing.SIMULATED),
        Column("us a decision", "us_per_decision", Standing.MEASURED, ".1f"),
    )
    said = (
        "The hosts, the sessions and the clock are simulated; the decisions are those of the product, and their cost "
        "was measured: {scale/whole/decisions} took {scale/whole/seconds:.0f} s. "
        "From {scale/by_sessions/0/sessions} to {scale/by_sessions/2/sessions} sessions on {scale/whole/hosts} hosts "
        "the dearest decision costs {scale/flat:.2f} of the cheapest."
    )
    plots = tuple(
        Plot(
            name,
            title,
            label,
            "us a decision",
            (Series("cost", f"scale/{name}/*/{key}", f"scale/{name}/*/us_per_decision", Standing.MEASURED),),
            log_x=True,
            from_zero=True,
        )
        for name, title, label, key in (
            ("by_sessions", "A decision's cost over the sessions of the fleet", "sessions", "sessions"),
            ("by_hosts", "A decision's cost over hosts, 100 sessions each", "hosts", "hosts"),
        )
    )
    bar = Table("The bar", (Line("10 million decisions", "scale/within_s", None, "s", ".0f"),))
    tables = (
        Listing("As sessions on other hosts grow", "scale/by_sessions", columns),
        Listing("As hosts grow", "scale/by_hosts", columns),
    )
    return Report("scale", "Scale: what a decision costs", (Section("Found", (Words(said), bar, *tables, *plots)),))


SCALE = Experiment(measure, report, text)
