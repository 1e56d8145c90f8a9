"""Every way is judged by its own formula, and the least pause within the contract wins, then the least bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.capacity.gate import Demand, Fabric, Reason
from worldline.capacity.planner import Bar, Means, Situation, explain, plan, predict
from worldline.errors import BadValue

GB = 1e9
PAPER = Demand(1.67 * GB, 0.93 * GB, 0.4, 0.4)


def situation(wire: float, demand: Demand = PAPER, overhead_s: float = 0.0, **more: float) -> Situation:
    return Situation(demand, Fabric(wire * GB, overhead_s), **more)


@pytest.mark.parametrize(
    ("means", "overhead_s", "needed"),
    [
        (Means.PRECOPY, 0.0, 5.105),
        (Means.ROLLS, 0.0, 4.64),
        (Means.FREEZE, 0.0, 4.175),
        (Means.PRECOPY, 0.057, 5.799),
    ],
)
def test_each_way_names_the_bandwidth_it_needs(means, overhead_s, needed):
    assert predict(means, situation(5.0, overhead_s=overhead_s)).needed_wire_bytes_per_s / GB == pytest.approx(
        needed, abs=6e-4
    )


def test_a_precopy_is_refused_below_the_gate_and_possible_above_it():
    below, above = (predict(Means.PRECOPY, situation(wire)) for wire in (5.0, 5.2))
    assert (below.admissible, below.reason) == (False, Reason.BANDWIDTH)
    assert above.admissible


def test_a_freeze_says_that_it_pauses_the_whole_time():
    for wire in (4.0, 5.0):
        at = situation(wire)
        assert "pauses the whole time" in explain(predict(Means.FREEZE, at), at)


def test_a_long_deadline_and_a_short_pause_need_less_than_the_gate():
    relaxed = replace(PAPER, pause_bound_s=0.02, deadline_s=3.0)
    found = plan(situation(2.0, relaxed, moved_share=0.0))
    assert found.of(Means.PRECOPY).admissible
    assert found.of(Means.PRECOPY).sent_bytes / GB == pytest.approx(3.09, abs=0.01)
    assert not found.of(Means.FREEZE).admissible


def test_equal_pauses_are_decided_by_the_bytes():
    still = replace(PAPER, dirty_bytes_per_s=0.0)
    assert plan(situation(5.0, still)).choice is Means.PRECOPY
    assert plan(situation(5.0, PAPER, moved_share=0.0)).choice is Means.FREEZE


def test_what_is_not_known_is_never_promised():
    found = plan(situation(50.0))
    assert [found.of(means).reason for means in (Means.REPLAY, Means.PARK)] == [Bar.UNKNOWN, Bar.UNKNOWN]
    guessed = plan(situation(50.0, dirty_known=False))
    assert [guessed.of(means).reason for means in (Means.PRECOPY, Means.ROLLS)] == [Bar.UNKNOWN, Bar.UNKNOWN]
    assert guessed.of(Means.FREEZE) == found.of(Means.FREEZE)
    known = plan(situation(50.0, replay_speed=4.0, disk_bytes_per_s=20 * GB))
    assert known.of(Means.REPLAY).admissible
    assert known.of(Means.PARK).pause_s == pytest.approx(2 * 1.67 / 20)


def test_a_replay_needs_speed_and_not_a_low_dirty_rate():
    wild = replace(PAPER, dirty_bytes_per_s=100 * GB, deadline_s=3.0)
    assert predict(Means.REPLAY, situation(2.0, wild, replay_speed=3.0)).admissible
    assert predict(Means.REPLAY, situation(2.0, wild, replay_speed=1.0)).reason is Bar.SPEED
    assert predict(Means.REPLAY, situation(0.6, wild, replay_speed=3.0)).reason is Reason.BANDWIDTH
    assert predict(Means.PRECOPY, situation(2.0, wild)).reason is Reason.BANDWIDTH


def test_a_replay_is_never_chosen_as_nothing_carries_it_out():
    wild = replace(PAPER, dirty_bytes_per_s=100 * GB, pause_bound_s=0.02, deadline_s=3.0)
    found = plan(situation(2.0, wild, replay_speed=3.0))
    assert found.of(Means.REPLAY).admissible
    assert found.choice is None


def test_moves_ahead_take_their_time_from_the_deadline_and_not_from_the_pause():
    longer = replace(PAPER, deadline_s=2.0)
    alone, third = (predict(Means.PRECOPY, situation(5.2, longer, ahead=ahead)) for ahead in (0, 2))
    assert third.admissible
    assert third.finish_s == pytest.approx(3 * alone.finish_s)
    assert third.pause_s == alone.pause_s
    assert predict(Means.PRECOPY, situation(5.2, longer, ahead=9)).reason is Bar.QUEUE


def test_a_target_without_room_is_refused_but_for_an_image():
    full = plan(situation(50.0, memory_free_bytes=1.0, disk_bytes_per_s=20 * GB))
    assert full.of(Means.PRECOPY).reason is Bar.MEMORY
    assert full.choice is Means.PARK


amounts = st.floats(0.01, 100.0)


@settings(max_examples=150, deadline=None)
@given(
    amounts, st.floats(0.0, 20.0), amounts, st.floats(0.001, 5.0), st.floats(0.0, 1.0), st.floats(0.0, 0.2),
    st.one_of(st.none(), st.floats(0.1, 5.0)), st.one_of(st.none(), amounts), st.integers(0, 3),
)  # fmt: skip
def test_what_is_admitted_keeps_the_contract_and_every_answer_can_be_explained(
    state, dirty, wire, bound, share, overhead, speed, disk, ahead
):
    demand = Demand(state * GB, dirty * GB, bound, 2 * bound)
    at = Situation(demand, Fabric(wire * GB, overhead), share, speed, disk and disk * GB, math.inf, ahead)
    found = plan(at)
    for each in found.predictions:
        assert explain(each, at)
        if each.admissible:
            assert each.pause_s <= demand.pause_bound_s * (1 + 1e-6)
            assert each.finish_s <= demand.deadline_s * (1 + 1e-6)
            assert each.needed_wire_bytes_per_s <= wire * GB * (1 + 1e-6)
        if each.admissible and each.means.carried_out:
            assert found.of(found.choice).pause_s <= each.pause_s
    possible = [each for each in found.predictions if each.admissible and each.means.carried_out]
    assert (found.choice is None) == (not possible)


def test_numbers_that_make_no_sense_are_refused():
    for more in (
        {"moved_share": 1.5}, {"replay_speed": 0.0}, {"disk_bytes_per_s": -1.0}, {"ahead": -1},
        {"memory_free_bytes": math.nan},
    ):  # fmt: skip
        with pytest.raises(BadValue):
            situation(1.0, **more)
