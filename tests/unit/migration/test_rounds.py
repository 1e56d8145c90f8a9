"""Cutting a state into rounds, and the decision at each cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worldline.capacity.gate import transfer_s
from worldline.migration.rounds import Cut, Freeze, GoOn, Limits, Refuse, RoundRate, decide, merge
from worldline.schema.layout import Extent

LIMITS = Limits(rounds_max=3, goal_fraction=0.25, stall_fraction=0.9, overhead_s=0.0)


def cut(dirty: int, before: int = 1000, rounds: int = 1, left_s: float = 100.0) -> Cut:
    return Cut(rounds, dirty, before, bytes_per_s=100.0, pause_bound_s=4.0, time_left_s=left_s)


def test_a_transfer_takes_the_bytes_over_the_rate_and_the_overhead() -> None:
    assert transfer_s(1000, 500.0, 0.25) == 2.25


def test_a_cut_within_the_goal_freezes_at_once() -> None:
    assert decide(cut(100), LIMITS) == Freeze(1.0)


def test_a_cut_beyond_the_goal_goes_on_while_the_dirty_set_shrinks() -> None:
    assert decide(cut(101), LIMITS) == GoOn(1.01)
    assert decide(cut(900), LIMITS) == GoOn(9.0)


def test_a_stalled_pre_copy_freezes_within_the_bound_and_refuses_beyond_it() -> None:
    assert decide(cut(399, before=400), LIMITS) == Freeze(3.99)
    refused = decide(cut(901, before=1000), LIMITS)
    assert isinstance(refused, Refuse)
    assert (refused.code, refused.predicted_pause_s) == ("BANDWIDTH", 9.01)
    assert "no longer shrinks" in refused.sentence


def test_used_up_rounds_freeze_within_the_bound_and_refuse_beyond_it() -> None:
    assert decide(cut(400, rounds=3), LIMITS) == Freeze(4.0)
    refused = decide(cut(401, rounds=3), LIMITS)
    assert isinstance(refused, Refuse)
    assert refused.code == "BANDWIDTH"


def test_a_rest_that_does_not_fit_the_completion_deadline_is_refused_for_that() -> None:
    refused = decide(cut(100, left_s=0.5), LIMITS)
    assert isinstance(refused, Refuse)
    assert refused.code == "DEADLINE"


def test_the_slowest_of_the_last_rounds_counts() -> None:
    rate = RoundRate(Limits(rate_window=2, rate_bytes_min=100))
    assert RoundRate(LIMITS).bytes_per_s is None
    rate.add(50, 1.0)
    assert rate.bytes_per_s == 50
    for nbytes, expected in ((1000, 1000), (400, 400), (50, 400), (600, 400), (800, 600)):
        rate.add(nbytes, 1.0)
        assert rate.bytes_per_s == expected


leaves = st.lists(st.booleans(), max_size=60).map(
    lambda kept: [Extent(n * 10, 10) for n, keep in enumerate(kept) if keep]
)


@given(leaves, st.integers(10, 200), st.integers(1, 200))
def test_chunks_hold_exactly_the_leaves_and_none_is_split(given_leaves: list[Extent], chunk: int, tail: int) -> None:
    chunks = merge(reversed(given_leaves), chunk, tail)
    covered = [start for extent in chunks for start in range(extent.offset, extent.offset + extent.nbytes, 10)]
    assert covered == [leaf.offset for leaf in given_leaves]
    assert all(extent.nbytes <= max(chunk, 10) for extent in chunks)


def test_the_last_chunks_get_smaller() -> None:
    chunks = merge([Extent(n * 10, 10) for n in range(32)], chunk_bytes=100, tail_bytes_min=20)
    assert [extent.nbytes for extent in chunks] == [100, 100, 60, 30, 20, 10]


def test_no_leaves_are_no_chunks() -> None:
    assert merge([], 100, 10) == ()
