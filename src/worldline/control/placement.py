"""Which sessions go where when a host is to be emptied, a fleet evened out, or packed onto fewer hosts. Pure.

Invariants
  A placement never promises more memory than a host has free, and never a host whose plan the session may not run on.
  What can't be placed is named with the reason; nothing is left out silently.
  A session's budget of moves and of frozen time is kept: an operation may not be what makes a world unplayable.

Cost: sessions that may move times hosts that may take them; sessions elsewhere are never looked at, but for their
host's sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from worldline.units import format_bytes, format_seconds

SPREAD_MAX = 0.1
"""A fleet is even when the fullest and the emptiest host differ by at most this part of a host's memory."""


class Kind(StrEnum):
    """What an operation is for."""

    DRAIN = "drain"
    """Empty one host, each session under its contract; it stays cordoned."""
    EVACUATE = "evacuate"
    """Empty one host soon: what can't be moved is parked, and budgets don't count."""
    REBALANCE = "rebalance"
    """Even the hosts out."""
    CONSOLIDATE = "consolidate"
    """Park who is idle, pack the others, and give the emptied hosts back."""


class Deed(StrEnum):
    MOVE = "move"
    PARK = "park"


@dataclass(frozen=True, slots=True)
class Seat:
    """A host as a place for sessions."""

    host: str
    memory_bytes: int
    free_bytes: int
    open: bool
    """Reachable, and not cordoned."""
    takes: frozenset[str]
    """Which `Sitting.needs` it may run."""


@dataclass(frozen=True, slots=True)
class SessionBudget:
    """How much an hour of operations may do to one session."""

    moves_max: int = 12
    frozen_s_max: float = 2.0


@dataclass(frozen=True, slots=True)
class Sitting:
    """A session where it is."""

    session: str
    host: str
    needs: str
    """Equal for sessions that may run on the same hosts: world, options, plan and tier."""
    arena_bytes: int
    """What a host reserves for it."""
    idle_s: float
    """Since its player last acted."""
    moves_spent: int = 0
    frozen_spent_s: float = 0.0
    frozen_next_s: float = 0.0
    """What one more move is expected to freeze it for."""
    stays: str | None = None
    """Why it can't be moved or parked at all."""


@dataclass(frozen=True, slots=True)
class Step:
    session: str
    deed: Deed
    source: str
    target: str | None
    """None for a park."""
    arena_bytes: int


@dataclass(frozen=True, slots=True)
class Left:
    """What stays, and why; `session` None where the host as a whole is meant."""

    session: str | None
    host: str
    why: str


@dataclass(frozen=True, slots=True)
class Placement:
    steps: tuple[Step, ...]
    left: tuple[Left, ...] = ()
    emptied: tuple[str, ...] = ()
    """Hosts on which nothing is left once every step is done."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What an operation may do. `warm_bytes` is kept free on the hosts that stay, for who comes back."""

    budget: SessionBudget | None = SessionBudget()
    park: bool = False
    """What can't be moved is parked."""
    idle_s: float | None = None
    """Who has been idle for so long is parked rather than moved."""
    hosts_min: int = 1
    warm_bytes: int = 0


@dataclass(slots=True)
class _Room:
    """Free bytes by host while a placement is made."""

    seats: Mapping[str, Seat]
    free: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, seats: Iterable[Seat]) -> _Room:
        by_host = {seat.host: seat for seat in seats}
        return cls(by_host, {host: seat.free_bytes for host, seat in by_host.items()})

    def copy(self) -> _Room:
        return _Room(self.seats, dict(self.free))

    def fitting(self, sitting: Sitting, hosts: Iterable[str]) -> list[str]:
        return [
            host
            for host in hosts
            if host != sitting.host
            and self.seats[host].open
            and sitting.needs in self.seats[host].takes
            and self.free[host] >= sitting.arena_bytes
        ]

    def apply(self, step: Step) -> None:
        self.free[step.source] += step.arena_bytes
        if step.target is not None:
            self.free[step.target] -= step.arena_bytes


def empty(host: str, seats: Sequence[Seat], sittings: Sequence[Sitting], rules: Rules) -> Placement:
    """Everything off `host`, onto the hosts with most room, largest sessions first."""
    room = _Room.of(seats)
    others = [seat.host for seat in seats if seat.host != host]
    here = sorted((one for one in sittings if one.host == host), key=lambda one: (-one.arena_bytes, one.session))
    steps: list[Step] = []
    left: list[Left] = []
    for sitting in here:
        found = _roomiest(sitting, room, others, rules)
        if isinstance(found, Step):
            steps.append(found)
            room.apply(found)
        else:
            left.append(Left(sitting.session, host, found))
    return Placement(tuple(steps), tuple(left), () if left else (host,))


def even(seats: Sequence[Seat], sittings: Sequence[Sitting], rules: Rules) -> Placement:
    """Moves from the fullest host to the emptiest until they differ by `SPREAD_MAX`, or no move narrows the spread."""
    room = _Room.of(seats)
    there = {one.session: one for one in sittings if one.stays is None and _over_budget(one, rules.budget) is None}
    steps: list[Step] = []
    open_hosts = [seat.host for seat in seats if seat.open]
    while len(open_hosts) > 1 and len(steps) < len(sittings):
        used = {host: 1 - room.free[host] / max(room.seats[host].memory_bytes, 1) for host in open_hosts}
        step = _narrowing(used, there, room)
        if step is None:
            break
        steps.append(step)
        room.apply(step)
        del there[step.session]  # one move each: a session is not carried in circles
    return Placement(tuple(steps))


def pack(seats: Sequence[Seat], sittings: Sequence[Sitting], rules: Rules) -> Placement:
    """Empties as many hosts as it can, the cheapest first, and leaves `warm_bytes` free on the others.

    A host is emptied whole or not at all: half of it gives nothing back. Who is idle is parked only where that
    empties a host.
    """
    room = _Room.of(seats)
    by_host: dict[str, list[Sitting]] = {seat.host: [] for seat in seats if seat.open}
    for sitting in sittings:
        if sitting.host in by_host:
            by_host[sitting.host].append(sitting)
    staying = list(by_host)
    receiving: set[str] = set()
    steps: list[Step] = []
    left: list[Left] = []
    emptied: list[str] = []
    for host in sorted(by_host, key=lambda host: (_cost_bytes(by_host[host], rules), host)):
        if len(staying) <= rules.hosts_min:
            break
        if host in receiving:  # nobody is moved twice
            continue
        others = [other for other in staying if other != host]
        found = _clear(host, by_host[host], others, room, rules)
        if isinstance(found, Left):
            left.append(found)
            continue
        placed, room = found
        steps += placed
        receiving |= {step.target for step in placed if step.target is not None}
        emptied.append(host)
        staying = others
    return Placement(tuple(steps), tuple(left), tuple(emptied))


def _clear(
    host: str, here: Sequence[Sitting], others: Sequence[str], room: _Room, rules: Rules
) -> tuple[list[Step], _Room] | Left:
    """How one host is emptied onto `others`, the fullest that fits first; or the session that prevents it."""
    trial = room.copy()
    steps: list[Step] = []
    for sitting in sorted(here, key=lambda one: (-one.arena_bytes, one.session)):
        found = _tightest(sitting, trial, others, rules)
        if not isinstance(found, Step):
            return Left(sitting.session, sitting.host, found)
        steps.append(found)
        trial.apply(found)
    free_bytes = sum(trial.free[other] for other in others)
    if free_bytes < rules.warm_bytes:
        keep = f"{format_bytes(rules.warm_bytes)} are to stay free for who comes back, {format_bytes(free_bytes)} would"
        return Left(None, host, keep)
    return steps, trial


def _tightest(sitting: Sitting, room: _Room, others: Sequence[str], rules: Rules) -> Step | str:
    if sitting.stays is not None:
        return sitting.stays
    if rules.idle_s is not None and sitting.idle_s >= rules.idle_s:
        return Step(sitting.session, Deed.PARK, sitting.host, None, sitting.arena_bytes)
    return _move(sitting, room, others, rules, tight=True)


def _roomiest(sitting: Sitting, room: _Room, others: Sequence[str], rules: Rules) -> Step | str:
    if sitting.stays is not None:
        return sitting.stays
    found = _move(sitting, room, others, rules, tight=False)
    if isinstance(found, str) and rules.park:
        return Step(sitting.session, Deed.PARK, sitting.host, None, sitting.arena_bytes)
    return found


def _move(sitting: Sitting, room: _Room, others: Sequence[str], rules: Rules, *, tight: bool) -> Step | str:
    spent = _over_budget(sitting, rules.budget)
    if spent is not None:
        return spent
    fitting = room.fitting(sitting, others)
    if not fitting:
        return _why_nowhere(sitting, room, others)
    sign = 1 if tight else -1
    target = min(fitting, key=lambda host: (sign * room.free[host], host))
    return Step(sitting.session, Deed.MOVE, sitting.host, target, sitting.arena_bytes)


def _over_budget(sitting: Sitting, budget: SessionBudget | None) -> str | None:
    if budget is None:
        return None
    if sitting.moves_spent >= budget.moves_max:
        return f"it was moved {sitting.moves_spent} times in the last hour, and {budget.moves_max} are allowed"
    frozen_s = sitting.frozen_spent_s + sitting.frozen_next_s
    if frozen_s > budget.frozen_s_max:
        return (
            f"one more move would bring it to {format_seconds(frozen_s)} frozen in an hour, and "
            f"{format_seconds(budget.frozen_s_max)} are allowed"
        )
    return None


def _why_nowhere(sitting: Sitting, room: _Room, others: Sequence[str]) -> str:
    able = [host for host in others if room.seats[host].open and sitting.needs in room.seats[host].takes]
    if not any(room.seats[host].open for host in others):
        return "no other host is open"
    if not able:
        return "no open host may run it: their plans are others, or not qualified for its contract"
    most = max(room.free[host] for host in able)
    return f"it needs {format_bytes(sitting.arena_bytes)}, and at most {format_bytes(most)} are free on a host for it"


def _narrowing(used: Mapping[str, float], there: Mapping[str, Sitting], room: _Room) -> Step | None:
    fullest = max(used, key=lambda host: (used[host], host))
    emptiest = min(used, key=lambda host: (used[host], host))
    if used[fullest] - used[emptiest] <= SPREAD_MAX:
        return None
    for sitting in sorted(there.values(), key=lambda one: (-one.arena_bytes, one.session)):
        if sitting.host != fullest or not room.fitting(sitting, [emptiest]):
            continue
        after_full = used[fullest] - sitting.arena_bytes / max(room.seats[fullest].memory_bytes, 1)
        after_empty = used[emptiest] + sitting.arena_bytes / max(room.seats[emptiest].memory_bytes, 1)
        if max(after_full, after_empty) < used[fullest]:
            return Step(sitting.session, Deed.MOVE, fullest, emptiest, sitting.arena_bytes)
    return None


def _cost_bytes(here: Sequence[Sitting], rules: Rules) -> int:
    """What would have to be moved: who is idle is parked, and costs no one anything now."""
    return sum(one.arena_bytes for one in here if rules.idle_s is None or one.idle_s < rules.idle_s)
