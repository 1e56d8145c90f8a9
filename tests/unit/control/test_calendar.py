"""No accepted move is ever late while its bytes flow as reserved, and nothing is ever booked twice."""

from __future__ import annotations

import heapq
from copy import deepcopy
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.capacity.track import Track, first_fit, first_span
from worldline.control.calendar import Calendar
from worldline.control.grants import (
    Accepted,
    Ask,
    Bottleneck,
    Grant,
    Policy,
    Ports,
    Refused,
    Spent,
    Wait,
)
from worldline.errors import BadValue, Internal, UnknownHost

MB = 1_000_000
PLAIN = Policy(margin=0.0, overhead_us=0, chunk_bytes=10_000, control_share=0.0)
"""At 1 MB/s a byte is a microsecond."""


def calendar(policy: Policy = PLAIN, lane: float | None = None, memory: int = 1 << 40, hosts: str = "abc") -> Calendar:
    made = Calendar(policy)
    for host in hosts:
        made.set_host(host, Ports(MB, MB, lane, memory))
    return made


def ask(move: str, source: str, target: str, size: int, deadline: int, memory: int = 0) -> Ask:
    return Ask(move, source, target, size, deadline, memory)


def free_ticks(track: Track, until: int) -> set[int]:
    return {tick for tick in range(until) if track.is_free(tick, tick + 1)}


# ---- tracks

spans_strategy = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=12)


def track_of(spans: list[tuple[int, int]]) -> tuple[Track, list[tuple[int, int]]]:
    track, taken = Track(), []
    for begin, length in spans:
        if track.is_free(begin, begin + length):
            track.take(begin, begin + length)
            taken.append((begin, begin + length))
    return track, taken


@settings(max_examples=100, deadline=None)
@given(spans_strategy)
def test_a_track_is_the_union_of_what_was_taken_and_is_empty_again_when_all_is_given_back(spans):
    track, taken = track_of(spans)
    assert free_ticks(track, 80) == set(range(80)) - {tick for span in taken for tick in range(*span)}
    assert all(before < after for before, after in zip(track.ends, track.starts[1:], strict=False))
    for span in taken:
        track.give_back(*span)
    assert (track.starts, track.ends) == ([], [])


@settings(max_examples=100, deadline=None)
@given(spans_strategy, spans_strategy, st.integers(0, 30), st.integers(1, 20), st.integers(1, 6))
def test_a_fit_lies_in_the_free_time_of_both_and_ends_as_early_as_any(one, other, begin, work, piece):
    first, second = track_of(one)[0], track_of(other)[0]
    fitted = first_fit(first, second, begin, work, piece)
    assert sum(end - start for start, end in fitted) == work
    assert all(first.is_free(*span) and second.is_free(*span) and span[0] >= begin for span in fitted)
    assert all(end - start >= piece for start, end in fitted[:-1])
    assert fitted[-1][1] == earliest_end(first, second, begin, work, piece)


def earliest_end(one: Track, other: Track, begin: int, work: int, piece: int) -> int:
    """By trying: runs of common free ticks, each used whole where it has a piece, until the rest fits into one."""
    free = free_ticks(one, 200) & free_ticks(other, 200)
    left, run = work, 0
    for tick in range(begin, 200):
        run = run + 1 if tick in free else 0
        if run == left:
            return tick + 1
        if run >= piece and tick + 1 not in free:
            left -= run
    raise AssertionError("200 ticks are enough")


@settings(max_examples=60, deadline=None)
@given(spans_strategy, st.integers(0, 30), st.integers(1, 20))
def test_one_stretch_is_the_first_that_is_long_enough(spans, begin, work):
    track = track_of(spans)[0]
    start, end = first_span(track, begin, work)
    assert end - start == work
    assert track.is_free(start, end)
    assert not any(track.is_free(tick, tick + work) for tick in range(begin, start))


def test_nothing_is_taken_twice_and_nothing_given_back_that_was_not_taken():
    track = Track()
    track.take(10, 20)
    for span in ((5, 11), (19, 30), (12, 13), (5, 30), (3, 3)):
        with pytest.raises(Internal):
            track.take(*span)
    for span in ((5, 11), (19, 30), (30, 40)):
        with pytest.raises(Internal):
            track.give_back(*span)


# ---- the calendar


@st.composite
def asks(draw: st.DrawFn) -> list[tuple[int, str, str, int, int]]:
    """Arrival, source, target, bytes, time allowed."""
    at, made = 0, []
    for _ in range(draw(st.integers(1, 25))):
        at += draw(st.integers(0, 60_000))
        source, target = draw(st.sampled_from(["ab", "ac", "ba", "bc", "ca", "cb"]))
        made.append((at, source, target, draw(st.integers(1, 120_000)), draw(st.integers(1, 500_000))))
    return made


class Fabric:
    """Serves what is granted, at a speed no lower than reserved, and notes who sent when on which port."""

    def __init__(self, calendar: Calendar, shares: list[float]) -> None:
        self.calendar = calendar
        self.shares = shares
        self.left: dict[str, int] = {}
        self.deadlines: dict[str, int] = {}
        self.sent: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.ended: dict[str, int] = {}
        self.busy_until: dict[str, int] = {}
        self.wakes: list[tuple[int, str]] = []

    def accepted(self, asked: Ask, now: int) -> None:
        wire_us = self.calendar.booking(asked.move).cost.wire_us
        self.left[asked.move] = max(1, int(wire_us * self.shares[len(self.left) % len(self.shares)]))
        self.deadlines[asked.move] = asked.deadline_us
        self.wake(now)

    def wake(self, now: int) -> None:
        """All moves ask for their grant: those that were put elsewhere, or begin now."""
        for move in [*self.left]:
            heapq.heappush(self.wakes, (now, move))

    def run(self, until: int) -> None:
        while self.wakes and self.wakes[0][0] <= until:
            now, move = heapq.heappop(self.wakes)
            if move in self.ended or move not in self.left:
                continue
            self.step(move, now)
            self.calendar.check()
            if self.calendar.changed:
                self.calendar.changed.clear()
                self.wake(now)

    def step(self, move: str, now: int) -> None:
        booking = self.calendar.booking(move)
        if now < self.busy_until.get(move, 0):
            return  # it sends, or its last bytes are verified, until then
        if self.left[move] == 0:
            self.ended[move] = now
            self.calendar.finish(move, now)
            return
        match self.calendar.grant(move, now):
            case Wait(begin):
                heapq.heappush(self.wakes, (begin, move))
            case Grant(_, _, until):
                end = min(until, now + self.left[move])
                self.left[move] -= end - now
                for port in ((booking.ask.source, "out"), (booking.ask.target, "in")):
                    self.sent.setdefault(port, []).append((now, end))
                over = self.left[move] == 0 and booking.slots.lane is not None
                self.busy_until[move] = booking.slots.finish_us if over else end
                heapq.heappush(self.wakes, (self.busy_until[move], move))
            case Spent():
                raise AssertionError(f"{move} was served as reserved and is not over")


@settings(max_examples=120, deadline=None)
@given(
    asks(),
    st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5),
    st.sampled_from([None, 0.7 * MB, 2.5 * MB]),
    st.sampled_from([0.0, 0.1]),
)
def test_no_accepted_move_is_late_under_service_within_the_reserve_and_no_port_serves_two(asked, shares, lane, margin):
    made = calendar(Policy(margin, 1_000 if margin else 0, 10_000, 0.0), lane)
    fabric = Fabric(made, shares)
    for number, (at, source, target, size, within) in enumerate(asked):
        fabric.run(at)
        one = ask(f"m{number}", source, target, size, at + within)
        if isinstance(made.ask(one, at), Accepted):
            fabric.accepted(one, at)
        made.check()
    fabric.run(1 << 50)
    assert len(made) == 0
    assert all(fabric.ended[move] <= deadline for move, deadline in fabric.deadlines.items())
    for spans in fabric.sent.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


@settings(max_examples=100, deadline=None)
@given(asks(), st.sampled_from([None, 0.7 * MB]))
def test_a_refusal_changes_nothing_and_names_a_time_at_which_the_same_move_is_accepted(asked, lane):
    made = calendar(lane=lane)
    for number, (at, source, target, size, within) in enumerate(asked):
        one = ask(f"m{number}", source, target, size, at + within)
        before = plan_of(made)
        answer = made.ask(one, at)
        if isinstance(answer, Accepted):
            assert answer.finish_us <= one.deadline_us
            continue
        assert plan_of(made) == before
        if answer.why is Bottleneck.DEADLINE:
            assert answer.earliest_at_us is None
            continue
        later = answer.earliest_at_us
        assert later > at
        assert isinstance(deepcopy(made).ask(one._replace(deadline_us=later + within), later), Accepted)


def plan_of(made: Calendar) -> dict[str, object]:
    return {move: (made.booking(move).slots.spans, made.booking(move).slots.lane) for move in made.moves()}


def test_an_urgent_move_waits_for_a_chunk_and_not_for_a_transfer():
    made = calendar()
    assert made.ask(ask("long", "a", "c", 300_000, 900_000), 0) == Accepted(0, 300_000)
    assert made.grant("long", 0) == Grant("long", float(MB), 10_000)
    assert made.ask(ask("urgent", "b", "c", 50_000, 70_000), 2_000) == Accepted(10_000, 60_000)
    assert made.changed == {"long"}
    assert made.booking("long").slots.spans == [(0, 10_000), (60_000, 350_000)]
    assert made.grant("long", 10_000) == Wait(60_000)


def test_an_urgent_move_never_takes_time_that_another_needs_for_its_promise():
    made = calendar()
    made.ask(ask("long", "a", "c", 300_000, 320_000), 0)
    before = plan_of(made)
    assert made.ask(ask("urgent", "b", "c", 50_000, 70_000), 0) == Refused(Bottleneck.INGRESS, 280_000)
    assert plan_of(made) == before


def test_a_move_is_fitted_into_the_gap_that_both_its_ports_have():
    made = calendar()
    made.ask(ask("one", "a", "b", 100_000, 900_000), 0)
    made.ask(ask("two", "a", "c", 100_000, 900_000), 0)
    assert made.ask(ask("gap", "b", "c", 60_000, 900_000), 0) == Accepted(0, 60_000)


def test_sides_are_free_at_different_times():
    made = calendar()
    made.ask(ask("one", "a", "b", 100_000, 100_000), 0)
    made.ask(ask("two", "b", "c", 100_000, 200_000), 100_000)
    refused = made.ask(ask("pair", "a", "c", 150_000, 250_000), 0)
    assert refused == Refused(Bottleneck.PAIR, 100_000)


def test_the_one_that_is_short_is_named():
    made = calendar()
    made.ask(ask("one", "a", "b", 100_000, 100_000), 0)
    assert made.ask(ask("in", "c", "b", 50_000, 100_000), 0) == Refused(Bottleneck.INGRESS, 50_000)
    assert made.ask(ask("out", "a", "c", 50_000, 100_000), 0) == Refused(Bottleneck.EGRESS, 50_000)
    assert made.ask(ask("self", "c", "a", 50_000, 49_999), 0) == Refused(Bottleneck.DEADLINE, None)


def test_a_slow_lane_is_booked_by_itself_while_the_next_bytes_arrive():
    made = calendar(lane=0.5 * MB)
    first = made.ask(ask("one", "a", "c", 100_000, 220_000), 0)
    second = made.ask(ask("two", "b", "c", 100_000, 420_000), 0)
    assert first == Accepted(0, 220_000)  # a chunk, then 0.2 s of verifying
    assert second == Accepted(100_000, 420_000)
    assert made.ask(ask("three", "a", "c", 100_000, 430_000), 0) == Refused(Bottleneck.LANE, 190_000)


def test_a_move_that_has_sent_all_keeps_its_place_in_the_lane():
    made = calendar(lane=2 * MB)
    made.ask(ask("sent", "a", "c", 1, 900_000), 0)
    made.ask(ask("other", "b", "a", 10_000, 900_000), 0)
    assert made.ask(ask("urgent", "b", "c", 10_000, 15_001), 1) == Accepted(1, 15_001)
    assert plan_of(made)["sent"] == ([(0, 1)], (1, 2))
    made.check()


def test_memory_is_booked_and_named_and_comes_back():
    made = calendar(memory=1000)
    made.ask(ask("one", "a", "c", 10, 900_000, memory=700), 0)
    assert made.ask(ask("two", "b", "c", 10, 900_000, memory=700), 0) == Refused(Bottleneck.MEMORY, None)
    leaving = made.ask(ask("away", "c", "b", 10, 900_000, memory=500), 0)
    assert made.ask(ask("two", "b", "c", 10, 900_000, memory=700), 0) == Refused(Bottleneck.MEMORY, leaving.finish_us)
    made.holds_memory("one")
    made.set_host("c", Ports(MB, MB, None, 300))  # as the host tells it now
    assert made.ask(ask("three", "b", "c", 10, 900_000, memory=301), 0).why is Bottleneck.MEMORY
    made.finish("one", 10)
    assert isinstance(made.ask(ask("four", "b", "c", 10, 900_000, memory=300), 10), Accepted)


def test_a_grant_is_a_chunk_at_most_and_ends():
    made = calendar()
    made.ask(ask("one", "a", "c", 25_000, 900_000), 0)
    made.ask(ask("two", "b", "c", 10_000, 900_000), 0)
    assert made.grant("two", 0) == Wait(25_000)
    assert [made.grant("one", now) for now in (0, 10_000, 20_000, 25_000)] == [
        Grant("one", float(MB), 10_000),
        Grant("one", float(MB), 20_000),
        Grant("one", float(MB), 25_000),
        Spent(),
    ]


def test_an_early_end_brings_the_next_forward():
    made = calendar()
    made.ask(ask("one", "a", "c", 100_000, 900_000), 0)
    made.ask(ask("two", "b", "c", 100_000, 900_000), 0)
    made.ask(ask("three", "b", "c", 100_000, 900_000), 0)
    made.finish("one", 30_000)
    assert made.changed == {"two", "three"}
    assert made.booking("two").slots.spans == [(30_000, 130_000)]
    assert made.booking("three").slots.spans == [(130_000, 230_000)]


def test_a_frozen_session_goes_before_whoever_can_wait_and_stays_there():
    made = calendar()
    made.ask(ask("frozen", "a", "c", 50_000, 900_000), 0)
    made.ask(ask("patient", "b", "c", 300_000, 900_000), 0)
    for now in range(0, 50_000, 10_000):
        made.grant("frozen", now)
    made.grant("patient", 50_000)
    booking = made.freeze("frozen", 20_000, 90_000, 55_000)
    assert booking.slots.spans[-1] == (60_000, 80_000)  # after the chunk that was granted
    assert made.booking("patient").slots.finish_us == 370_000
    made.check()
    assert not isinstance(made.ask(ask("urgent", "b", "c", 20_000, 85_000), 60_000), Accepted)


def test_a_frozen_session_for_which_nobody_can_wait_goes_as_soon_as_it_fits():
    made = calendar()
    made.ask(ask("frozen", "a", "c", 50_000, 900_000), 0)
    made.ask(ask("tight", "b", "c", 300_000, 350_000), 0)
    made.freeze("frozen", 20_000, 120_000, 50_000)
    made.check()
    assert made.booking("frozen").slots.spans[-1] == (350_000, 370_000)
    assert made.booking("tight").slots.spans == [(50_000, 350_000)]


def test_a_move_that_needs_more_than_it_said_harms_nobody_but_itself():
    made = calendar()
    made.ask(ask("liar", "a", "c", 100_000, 120_000), 0)
    made.ask(ask("honest", "b", "c", 100_000, 220_000), 0)
    assert made.extend("liar", 50_000, 100_000).late
    assert made.booking("liar").slots.finish_us == 250_000
    assert made.booking("honest").slots.finish_us == 200_000


def test_reserves_are_of_the_slowest_measured_rate_with_a_margin_and_leave_a_share_to_messages():
    made = Calendar(Policy(margin=0.1, overhead_us=5_000, chunk_bytes=MB, control_share=0.2))
    made.set_host("a", Ports(10 * MB, 10 * MB))
    made.set_host("b", Ports(2 * MB, 5 * MB))
    asked = Ask("m", "a", "b", 4 * MB, 9_000_000)
    assert made.ask(asked, 0) == Accepted(0, 1_105_000)  # 1.1 x 4 MB / (0.8 x 5 MB/s) + 5 ms
    assert made.booking("m").cost.bytes_per_s == 4 * MB
    slower = made.ask(asked._replace(move="n", source="b", target="a", path_bytes_per_s=float(MB)), 0)
    assert slower == Accepted(0, 5_505_000)


def test_what_is_not_known_or_not_possible_is_said():
    made = calendar()
    with pytest.raises(UnknownHost):
        made.ask(ask("m", "a", "z", 1, 1000), 0)
    with pytest.raises(BadValue):
        made.ask(ask("m", "a", "a", 1, 1000), 0)
    made.ask(ask("m", "a", "b", 1, 1000), 0)
    with pytest.raises(BadValue):
        made.ask(ask("m", "a", "b", 1, 1000), 0)
    for wrong in (made.booking, lambda move: made.grant(move, 0), lambda move: made.finish(move, 0)):
        with pytest.raises(BadValue):
            wrong("nobody")
    for policy in ({"margin": -1.0}, {"overhead_us": -1}, {"chunk_bytes": 0}, {"control_share": 1.0}):
        with pytest.raises(BadValue):
            Policy(**policy)
    with pytest.raises(BadValue):
        Ports(0.0, 1.0)
