"""The calendar of grants: which moves may send when, so that every move that was accepted is over by its deadline.

Four things are booked for a move: its source's egress, its target's ingress, the target's verification lane, and the
target's memory. Each of the first three serves one move at a time.

Invariants:
- no tick of an egress, an ingress or a lane is booked twice, and no byte of memory;
- the booking of every accepted move ends by its deadline, whatever is accepted, finished or withdrawn later; so a move
  whose bytes flow no slower than reserved is never late;
- a sender sends under a grant only; a grant is at most a chunk long and ends by itself;
- what a decision costs depends on the bookings of its two hosts, and on nothing else in the fleet.

Times are whole microseconds of the caller's clock. Control messages are in a class of their own: they are not booked,
and `Policy.control_share` of every port is left to them.

Source: reservation of both sides in a fixed order, with expiry, and refusal at arrival, as in receiver-driven
transports (pHost, Homa, D3); the test is the one for a known set of jobs on machines that serve one at a time.
"""

from __future__ import annotations

from itertools import pairwise

from worldline.capacity.track import Span, Track, first_fit, first_span
from worldline.control.grants import (
    Accepted,
    Answer,
    Ask,
    Booking,
    Bottleneck,
    Cost,
    Grant,
    HostBook,
    Permission,
    Policy,
    Port,
    Ports,
    Refused,
    Slots,
    Spent,
    Wait,
    cost_of,
)
from worldline.errors import BadValue, UnknownHost
from worldline.schema.ids import HostId, MoveId

MOVES_MAX = 1_000_000
"""Accepted and not over, in one calendar."""
ELSEWHERE_MAX = 4
"""Moves that one decision may put later, or one end bring forward: what bounds the cost of both."""
ASKED_AGAIN_MAX = 16
FREE = Track()


class Calendar:
    """All bookings of a fleet. Pure: it is told the time."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.changed: set[MoveId] = set()
        """Moves put elsewhere since the caller last emptied this: they are to ask for their grant anew."""
        self._hosts: dict[HostId, HostBook] = {}
        self._bookings: dict[MoveId, Booking] = {}

    def __len__(self) -> int:
        return len(self._bookings)

    def __contains__(self, move: MoveId) -> bool:
        return move in self._bookings

    def moves(self) -> list[MoveId]:
        return list(self._bookings)

    def booking(self, move: MoveId) -> Booking:
        """Raises `BadValue` for a move without one."""
        found = self._bookings.get(move)
        if found is None:
            raise BadValue(f"move {move} has no booking", move=move)
        return found

    # ---- hosts

    def set_host(self, host: HostId, ports: Ports) -> None:
        """Adds a host, or says what it can do now. What is booked stays as it is."""
        known = self._hosts.get(host)
        if known is None:
            self._hosts[host] = HostBook(ports)
        else:
            known.ports = ports

    def ports(self, host: HostId) -> Ports:
        return self._host(host).ports

    def holds_memory(self, move: MoveId) -> None:
        """The target has reserved the move's arena: from its next report on, its own free memory counts it."""
        booking = self.booking(move)
        booking.target.memory_booked_bytes -= booking.memory_bytes
        booking.memory_bytes = 0

    # ---- decisions

    def ask(self, ask: Ask, now_us: int) -> Answer:
        """Books the move if this and every earlier promise can be kept; else says why not, and when it could.

        First it is fitted into what is free on both ports. If that is too late, moves with later deadlines are put
        behind it, from their next chunk on, where they keep their promises. Raises `UnknownHost`, and `BadValue` for a
        move that has a booking or stays where it is, or a full calendar.
        """
        source, target = self._host(ask.source), self._host(ask.target)
        if ask.move in self._bookings or source is target or len(self._bookings) >= MOVES_MAX:
            raise BadValue(f"move {ask.move} has a booking, or ends where it begins, or the calendar is full")
        source.egress.forget(now_us)
        target.ingress.forget(now_us)
        target.lane.forget(now_us)
        cost = cost_of(ask, source.ports, target.ports, self.policy)
        if now_us + cost.alone_us > ask.deadline_us:
            return Refused(Bottleneck.DEADLINE, None)
        if ask.memory_bytes + target.memory_booked_bytes > target.ports.memory_free_bytes:
            return Refused(Bottleneck.MEMORY, self._memory_at_us(ask))
        slots = _fit(source, target, cost, now_us, cost.wire_us)
        booking = Booking(ask, cost, source, target)
        if slots.finish_us <= ask.deadline_us:
            _place(source, target, booking, slots)
        elif not self._make_room(booking, now_us):
            return self._refuse(booking, slots, now_us)
        self._bookings[ask.move] = booking
        target.memory_booked_bytes += ask.memory_bytes
        return Accepted(booking.slots.spans[0][0], booking.slots.finish_us)

    def grant(self, move: MoveId, now_us: int) -> Permission:
        """What the source of `move` may do now. What was granted once is not put elsewhere any more.

        Raises `BadValue` for a move without a booking.
        """
        booking = self.booking(move)
        for begin, end in booking.slots.spans:
            if now_us < begin:
                return Wait(begin)
            if now_us < end:
                until = min(end, now_us + booking.cost.piece_us)
                booking.granted_us = max(booking.granted_us, until)
                return Grant(move, booking.cost.bytes_per_s, until)
        return Spent()

    def freeze(self, move: MoveId, wire_bytes: int, by_us: int, now_us: int) -> Booking:
        """The session is frozen and a player waits: what is left of it, `wire_bytes`, goes next, before whoever may
        wait longer than until `by_us` and keeps its promise; and is not put elsewhere any more.

        Raises `BadValue` for a move without a booking.
        """
        booking = self.booking(move)
        source, target = booking.source, booking.target
        asked = booking.ask
        _clear(source, target, booking, now_us)
        booking.ask = asked._replace(wire_bytes=wire_bytes, deadline_us=min(by_us, asked.deadline_us))
        booking.cost = cost_of(booking.ask, source.ports, target.ports, self.policy)
        slots = _fit(source, target, booking.cost, now_us, booking.cost.wire_us)
        if slots.finish_us <= booking.ask.deadline_us or not self._make_room(booking, now_us):
            _place(source, target, booking, _fit(source, target, booking.cost, now_us, booking.cost.wire_us))
        booking.ask = asked
        booking.overran = True  # from here on it is held to its pause, not to its promise
        booking.granted_us = booking.slots.spans[-1][1]
        self.changed.add(move)
        return booking

    def finish(self, move: MoveId, now_us: int) -> None:
        """The move is over, well or not: what is left of its booking is free, and others come forward into it.

        Raises `BadValue` for a move without a booking.
        """
        booking = self.booking(move)
        source, target = booking.source, booking.target
        since = next((max(begin, now_us) for begin, end in booking.slots.spans if end > now_us), None)
        _clear(source, target, booking, now_us)
        target.memory_booked_bytes -= booking.memory_bytes
        del self._bookings[move]
        self.changed.discard(move)
        if since is not None:
            self._bring_forward(source.egress, now_us, since)
            self._bring_forward(target.ingress, now_us, since)

    def extend(self, move: MoveId, wire_bytes: int, now_us: int) -> Booking:
        """Books `wire_bytes` for a move in place of what it has left: they flowed slower than reserved, or were more
        than it said. No other promise is touched, so this one may be late now; it says that it overran, and whether it
        is late.

        Raises `BadValue` for a move without a booking.
        """
        booking = self.booking(move)
        source, target = booking.source, booking.target
        begin = max(now_us, min(booking.granted_us, booking.slots.spans[-1][1]))
        _clear(source, target, booking, begin)
        ask = booking.ask._replace(wire_bytes=wire_bytes)
        booking.overran = True
        booking.cost = cost_of(ask, source.ports, target.ports, self.policy)
        _place(source, target, booking, _fit(source, target, booking.cost, begin, booking.cost.wire_us))
        self.changed.add(move)
        return booking

    def check(self) -> None:
        """Raises `AssertionError` if an invariant does not hold. For tests: O(all bookings)."""
        for name, host in self._hosts.items():
            sent = [each for each in self._bookings.values() if each.ask.source == name]
            received = [each for each in self._bookings.values() if each.ask.target == name]
            for port, moves in ((host.egress, sent), (host.ingress, received)):
                _check_track(port.busy, [span for each in moves for span in each.slots.spans])
            _check_track(host.lane, [each.slots.lane for each in received if each.slots.lane is not None])
            assert host.memory_booked_bytes == sum(each.memory_bytes for each in received)
        for booking in self._bookings.values():
            assert booking.overran or booking.slots.finish_us <= booking.ask.deadline_us, "a promise is broken"

    # ---- how

    def _host(self, host: HostId) -> HostBook:
        found = self._hosts.get(host)
        if found is None:
            raise UnknownHost(f"the calendar knows no host {host}", host=host)
        return found

    def _make_room(self, booking: Booking, now_us: int) -> bool:
        """Places the move before others with later deadlines, if all can be kept; else everything is as it was."""
        source, target = booking.source, booking.target
        deadline = booking.ask.deadline_us
        standing = source.egress.in_the_way(now_us, deadline, ELSEWHERE_MAX)
        standing += target.ingress.in_the_way(now_us, deadline, ELSEWHERE_MAX)
        others = sorted({id(each): each for each in standing if not each.overran}.values(), key=_by_deadline)
        if not others or not _has_room(booking, now_us, max(deadline, others[-1].ask.deadline_us)):
            return False
        lifted = [(other, other.slots, self._lift(other, now_us)) for other in others]
        slots = _fit(source, target, booking.cost, now_us, booking.cost.wire_us)
        fits = slots.finish_us <= deadline
        if fits:
            _place(source, target, booking, slots)
        placed: list[Booking] = []
        for other, _, work in lifted:
            if fits and work:
                fits = self._fit_again(other, now_us, work)
                placed.append(other)
        if fits:
            self.changed.update(other.ask.move for other in placed)
            return True
        for other in placed:
            self._lift(other, now_us)
        if booking.slots.spans:
            _clear(source, target, booking, now_us)
        for other, before, work in lifted:
            if work:
                self._put_back(other, before, now_us)
        return False

    def _bring_forward(self, port: Port, now_us: int, since_us: int) -> None:
        """Moves on this port into time that became free from `since_us` on, in order, until one has nothing to gain."""
        for other in port.coming(since_us, ELSEWHERE_MAX):
            before = other.slots
            work = self._lift(other, now_us)
            if not work:
                continue
            self._fit_again(other, now_us, work)
            if other.slots.spans == before.spans:
                return
            if other.slots.finish_us > before.finish_us:
                self._lift(other, now_us)
                self._put_back(other, before, now_us)
                return
            self.changed.add(other.ask.move)

    def _lift(self, booking: Booking, now_us: int) -> int:
        """Frees what of a booking may still be put elsewhere. Returns how much of the wire that is."""
        begin = max(now_us, booking.granted_us)
        slots = booking.slots
        if slots.spans[-1][1] <= begin or (slots.lane is not None and slots.lane[0] < begin):
            return 0  # all is sent, or is being verified
        source, target = booking.source, booking.target
        return _clear(source, target, booking, begin)

    def _fit_again(self, booking: Booking, now_us: int, work: int) -> bool:
        """Places what was lifted. False: it is placed, and late."""
        source, target = booking.source, booking.target
        kept, begin = booking.slots.spans, max(now_us, booking.granted_us)
        slots = _fit(source, target, booking.cost, begin, work, since=kept[0][0] if kept else None)
        _place(source, target, booking, slots)
        return slots.finish_us <= booking.ask.deadline_us

    def _put_back(self, booking: Booking, before: Slots, now_us: int) -> None:
        """What was lifted at `now_us` goes back to where it was."""
        begin = max(now_us, booking.granted_us)
        source, target = booking.source, booking.target
        for span in before.spans:
            for port in (source.egress, target.ingress):
                if span[0] >= begin:
                    port.take(span, booking)
                elif span[1] > begin:
                    port.busy.take(begin, span[1])
        if before.lane is not None:
            target.lane.take(*before.lane)
        booking.slots = before

    def _refuse(self, booking: Booking, slots: Slots, now_us: int) -> Refused:
        ask, cost = booking.ask, booking.cost
        source, target = booking.source, booking.target
        why = _bottleneck(source, target, booking, slots, now_us)
        within_us = ask.deadline_us - now_us
        at_us = slots.finish_us - within_us
        for _ in range(ASKED_AGAIN_MAX):  # a later begin never ends earlier, so this goes up to the first that is met
            if at_us <= slots.spans[0][0] or slots.finish_us <= at_us + within_us:
                return Refused(why, at_us)
            slots = _fit(source, target, cost, at_us, cost.wire_us)
            at_us = max(at_us, slots.finish_us - within_us)
        return Refused(why, max(source.egress.busy.end, target.ingress.busy.end, target.lane.end))

    def _memory_at_us(self, ask: Ask) -> int | None:
        """When moves that leave the target, or end elsewhere, will have made enough room for this one; None: never."""
        target = self._host(ask.target)
        short = ask.memory_bytes + target.memory_booked_bytes - target.ports.memory_free_bytes
        leaving = {id(each): each for each in target.egress.owners if each.ask.move in self._bookings}
        for booking in sorted(leaving.values(), key=lambda each: each.slots.finish_us):
            short -= booking.ask.memory_bytes
            if short <= 0:
                return booking.slots.finish_us
        return None


def _check_track(track: Track, spans: list[Span]) -> None:
    spans.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), "something is booked twice"
    assert not any(track.is_free(begin, end) for begin, end in spans if begin >= track.begin), "a booking is not taken"


def _by_deadline(booking: Booking) -> int:
    return booking.ask.deadline_us


def _fit(source: HostBook, target: HostBook, cost: Cost, begin: int, work: int, since: int | None = None) -> Slots:
    """The earliest slots from `begin` on for `work` of the wire; `since`: when the move's first bytes were sent."""
    spans = first_fit(source.egress.busy, target.ingress.busy, begin, work, cost.piece_us)
    landed = spans[-1][1]
    if not cost.lane_us:
        return Slots(spans, None, landed + cost.overhead_us)
    lag, first = cost.lane_lag_us, spans[0][0] if since is None else since
    lane = first_span(target.lane, max(begin, first + lag, landed + lag - cost.lane_us), cost.lane_us)
    return Slots(spans, lane, lane[1] + cost.overhead_us)


def _place(source: HostBook, target: HostBook, booking: Booking, slots: Slots) -> None:
    """Books these slots, behind what of the booking has begun."""
    for span in slots.spans:
        source.egress.take(span, booking)
        target.ingress.take(span, booking)
    if slots.lane is not None:
        target.lane.take(*slots.lane)
    booking.slots = Slots(booking.slots.spans + slots.spans, slots.lane, slots.finish_us)


def _clear(source: HostBook, target: HostBook, booking: Booking, begin: int) -> int:
    """Frees what a booking has from `begin` on. Returns how much of the wire that was."""
    kept: list[Span] = []
    freed = 0
    for span in booking.slots.spans:
        if span[1] <= begin:
            kept.append(span)
            continue
        for port in (source.egress, target.ingress):
            if span[0] >= begin:
                port.give_back(span)
            else:
                port.cut(begin, span[1])
        if span[0] < begin:
            kept.append((span[0], begin))
        freed += span[1] - max(span[0], begin)
    lane = booking.slots.lane
    if lane is not None and lane[1] > begin:
        target.lane.give_back(max(lane[0], begin), lane[1])
        lane = (lane[0], begin) if lane[0] < begin else None
    booking.slots = Slots(kept, lane, booking.slots.finish_us)
    return freed


def _has_room(booking: Booking, now: int, last: int) -> bool:
    """Whether each of its ports alone has as much free time by `last`: whatever is put elsewhere by then, it takes as
    much time there as it leaves.
    """
    wire = booking.cost.wire_us
    ports = (booking.source.egress, booking.target.ingress)
    return all(first_fit(port.busy, FREE, now, wire, 1)[-1][1] <= last for port in ports)


def _bottleneck(source: HostBook, target: HostBook, booking: Booking, slots: Slots, now: int) -> Bottleneck:
    """Which of the two sides alone is too late, the target's first; else that they have no time in common."""
    cost = booking.cost
    latest = booking.ask.deadline_us - cost.overhead_us - cost.lane_lag_us
    for port, bottleneck in ((target.ingress, Bottleneck.INGRESS), (source.egress, Bottleneck.EGRESS)):
        if first_fit(port.busy, FREE, now, cost.wire_us, cost.piece_us)[-1][1] > latest:
            return bottleneck
    return Bottleneck.PAIR if slots.spans[-1][1] > latest else Bottleneck.LANE
