"""Pre-copy, gate, pipelines and dirty sets: known values, and the laws between them."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.capacity.gate import (
    Codec,
    Demand,
    Fabric,
    Reason,
    Way,
    codec_helps,
    judge,
    lane_fan_in,
    largest_dirty_bytes_per_s,
    largest_state_bytes,
    needed_raw_bytes_per_s,
)
from worldline.capacity.occupancy import (
    mean_writes_to_touch_all,
    occupancy,
    occupancy_exact,
    occupancy_pmf,
    poisson_occupancy,
    poisson_occupancy_of,
    writes_to_touch_all,
)
from worldline.capacity.pipeline import CHUNKS_MAX, best_chunks, makespan_s, pipeline_s, stage_totals_s
from worldline.capacity.precopy import (
    Stop,
    linear_rounds,
    precopy,
    precopy_limit_s,
    replay,
    replay_rate,
)
from worldline.capacity.rewriting import (
    BlockSets,
    FixedSet,
    Linear,
    Saturating,
    block_union,
    burst,
    chain,
    first_residual_share,
    roll_aware_bytes,
    saturating_floor,
    saturating_shares,
)

few = settings(max_examples=60, deadline=None)
sizes = st.floats(0.01, 100)
PAPER = Demand(1.67e9, 0.93e9, 0.4, 0.4)


def test_the_papers_gate_is_a_precopy_with_equal_times() -> None:
    refused = judge(Way.PRECOPY, PAPER, Fabric(5.0e9))
    assert (refused.admissible, refused.reason) == (False, Reason.BANDWIDTH)
    assert refused.needed_wire_bytes_per_s == pytest.approx(5.105e9)
    assert judge(Way.PRECOPY, PAPER, Fabric(5.105e9)).admissible
    assert judge(Way.PRECOPY, PAPER, Fabric(5.2e9)).admissible


def test_a_roll_aware_residual_asks_for_less_and_an_overhead_for_more() -> None:
    rolled = Demand(1.67e9, roll_aware_bytes(0.93e9, 0.5), 0.4, 0.4)
    assert judge(Way.PRECOPY, rolled, Fabric(5e9)).needed_wire_bytes_per_s == pytest.approx(4.64e9)
    assert judge(Way.PRECOPY, PAPER, Fabric(5e9, 0.057)).needed_wire_bytes_per_s == pytest.approx(5.80e9, rel=1e-3)


def test_a_freeze_needs_less_and_pauses_the_whole_time() -> None:
    found = judge(Way.FREEZE, PAPER, Fabric(5e9))
    assert found.admissible
    assert found.needed_wire_bytes_per_s == pytest.approx(4.175e9)
    assert found.pause_s == found.finish_s == pytest.approx(0.334)


def test_a_late_deadline_admits_a_slow_link_under_a_short_pause() -> None:
    patient = Demand(1.67e9, 0.93e9, 0.02, 3.0)
    found = judge(Way.PRECOPY, patient, Fabric(2e9))
    assert found.admissible
    assert found.pause_s <= 0.02
    assert found.finish_s == pytest.approx(1.67 / 1.07)
    assert not judge(Way.FREEZE, patient, Fabric(2e9)).admissible


@pytest.mark.parametrize(
    ("way", "demand", "fabric", "admissible", "reason"),
    [
        (Way.PRECOPY, Demand(0, 1, 1, 1), Fabric(2, 0.5), True, None),
        (Way.PRECOPY, Demand(0, 3, 1, 1), Fabric(2, 0.5), False, Reason.BANDWIDTH),
        (Way.PRECOPY, Demand(0, 1, 1, 1), Fabric(2, 1.5), False, Reason.OVERHEAD),
        (Way.PRECOPY, Demand(1e-12, 2, 1, 1), Fabric(2), False, Reason.BANDWIDTH),
        (Way.PRECOPY, Demand(1, 2, 9, 9), Fabric(2), False, Reason.BANDWIDTH),
        (Way.PRECOPY, Demand(1, 0, 1, 1), Fabric(1), True, None),
        (Way.PRECOPY, Demand(1, 1, 0.1, 9), Fabric(4, 0.2), False, Reason.PAUSE),
        (Way.PRECOPY, Demand(1, 0, 0.2, 9), Fabric(4, 0.2), True, None),
        (Way.FREEZE, Demand(1, 0, 1, 1), Fabric(0), False, Reason.BANDWIDTH),
        (Way.FREEZE, Demand(0, 0, 1, 1), Fabric(0), True, None),
        (Way.FREEZE, Demand(1, 5, 1, 1), Fabric(2, 1.0), False, Reason.OVERHEAD),
        (Way.FREEZE, Demand(1, 0, 1, 1), Fabric(2, lane_bytes_per_s=0.9), False, Reason.STAGE),
        (Way.FREEZE, Demand(1, 0, 1, 1), Fabric(0.6, codec=Codec(2, 9, 9)), True, None),
        (Way.FREEZE, Demand(1, 0, 1, 1), Fabric(0.6, codec=Codec(2, 0.5, 9)), False, Reason.STAGE),
    ],
)
def test_the_edges_of_the_gate(way: Way, demand: Demand, fabric: Fabric, admissible: bool, reason: Reason) -> None:
    found = judge(way, demand, fabric)
    assert (found.admissible, found.reason) == (admissible, reason)


def test_a_codec_divides_what_the_wire_needs_by_its_worst_ratio() -> None:
    needed = [
        judge(Way.PRECOPY, PAPER, Fabric(9e9, codec=Codec(r, 50e9, 50e9))).needed_wire_bytes_per_s / 1e9
        for r in (1.1, 1.3, 1.5, 2)
    ]
    assert needed == pytest.approx([4.641, 3.927, 3.403, 2.553], abs=1e-3)


def test_a_codec_helps_only_where_it_is_faster_than_the_wire() -> None:
    raw = Fabric(8)
    assert codec_helps(1.67, raw, Fabric(8, codec=Codec(1.3, 20, 25)))
    assert not codec_helps(1.67, raw, Fabric(8, codec=Codec(1.3, 6, 25)))
    assert not codec_helps(1.67, raw, Fabric(8, codec=Codec(0.99, 20, 25)))
    assert not codec_helps(1.67, raw, Fabric(8, fill_s=1.0, codec=Codec(1.3, 20, 25)))


@few
@given(sizes, st.floats(0, 10), st.floats(0.05, 5), st.floats(0, 0.04), st.floats(0.1, 200))
def test_the_gate_is_the_limit_of_precopy_within_the_deadline(
    state: float, dirty: float, deadline: float, overhead: float, rate: float
) -> None:
    demand = Demand(state, dirty, deadline, deadline)
    limit = precopy_limit_s(state, rate, dirty) + overhead
    if limit != pytest.approx(deadline, rel=1e-6):
        assert judge(Way.PRECOPY, demand, Fabric(rate, overhead)).admissible == (limit < deadline)
    needed = needed_raw_bytes_per_s(Way.PRECOPY, demand, overhead)
    assert judge(Way.PRECOPY, demand, Fabric(needed, overhead)).admissible
    assert not judge(Way.PRECOPY, demand, Fabric(needed * 0.999, overhead)).admissible


def test_the_largest_state_and_the_fastest_rewriting_lie_on_the_gate() -> None:
    fabric = Fabric(8.0)
    assert largest_state_bytes(fabric, 0.93, 0.4) == pytest.approx(2.828)
    assert largest_dirty_bytes_per_s(fabric, 1.67, 0.4) == pytest.approx(3.825)
    assert largest_state_bytes(fabric, 9, 0.4) == 0
    assert largest_dirty_bytes_per_s(fabric, 99, 0.4) is None


def test_a_lane_takes_whole_moves_after_the_overhead() -> None:
    counts = [
        (found.frozen, found.live)
        for found in (
            lane_fan_in(1.67, 0.93, 0.4, lane, overhead)
            for lane, overhead in ((20, 0), (10, 0.057), (9.33, 0.057), (9.33, 0))
        )
    ]
    assert counts == [(4, 3), (2, 1), (1, 1), (2, 1)]
    assert lane_fan_in(0.1, 0.0, 0.3, 1.0, 0.0).frozen == 3
    assert lane_fan_in(Fraction(1, 10), Fraction(0), Fraction(1, 5), Fraction(1), Fraction(2, 5)).frozen == 0


@few
@given(sizes, st.floats(0.2, 50), st.floats(0, 0.95), st.floats(0.001, 0.5))
def test_a_linear_precopy_is_geometric_and_within_its_limit(s: float, b: float, ratio: float, part: float) -> None:
    course = precopy(s, b, Linear(b * ratio), Stop(s * part, 10_000))
    assert course.converged
    rounds = linear_rounds(s, b, b * ratio, s * part)
    assert rounds is not None
    # Where a round leaves the residual to the last bit, rounding decides on one more.
    on_the_edge = math.isclose(ratio**rounds, part, rel_tol=1e-8)
    assert course.rounds in ({rounds, rounds + 1} if on_the_edge else {rounds})
    assert course.finish_s <= precopy_limit_s(s, b, b * ratio) * (1 + 1e-9)
    tight = precopy(s, b, Linear(b * ratio), Stop(s * 1e-13, 10_000))
    assert tight.finish_s == pytest.approx(precopy_limit_s(s, b, b * ratio), rel=1e-9)


@pytest.mark.parametrize("law", [Linear(3), Linear(2), FixedSet(9, 1), Saturating(1, 3), BlockSets(1, 0.9, 0.01)])
def test_a_precopy_that_stops_helping_ends_at_once(law: Linear | FixedSet | Saturating | BlockSets) -> None:
    course = precopy(1, 2, law, Stop(0.01, 10_000))
    assert not course.converged
    assert course.rounds < 100


def test_the_edges_of_precopy() -> None:
    assert precopy(0, 1, Linear(5), Stop(0)).volumes == (0,)
    assert precopy(1, 1, Linear(5), Stop(1)).rounds == 0
    assert precopy(1, 1, Linear(0), Stop(0)).volumes == (1, 0)
    assert linear_rounds(1, 1, 1, 0.5) is None
    assert linear_rounds(1, 2, 1, 0) is None
    assert linear_rounds(1, 2, 0, 0) == 1
    assert precopy_limit_s(1, 1, 1) == math.inf
    assert precopy_limit_s(0, 1, 1) == 0


def test_the_table_of_the_papers_session_over_many_links() -> None:
    expected = {
        1.5: (10, 9.35, 2915, 4.37),
        2: (6, 8.44, 1554, 3.11),
        3: (4, 5.14, 805, 2.41),
        4: (3, 5.25, 542, 2.17),
        5.105: (3, 1.98, 399.6, 2.04),
        8: (2, 2.82, 235.8, 1.89),
        9.33: (2, 1.78, 198.6, 1.85),
        17.32: (1, 5.18, 101.6, 1.76),
        50: (1, 0.62, 34.0, 1.70),
    }
    for rate, (rounds, pause_ms, total_ms, sent) in expected.items():
        course = precopy(1.67, rate, FixedSet(0.93, 0.714 * 1.67), Stop(0.01 * rate))
        assert course.rounds == rounds
        assert course.pause_s * 1e3 == pytest.approx(pause_ms, abs=0.006)
        assert course.finish_s * 1e3 == pytest.approx(total_ms, rel=1e-3)
        assert course.sent_bytes == pytest.approx(sent, abs=0.006)
    stuck = precopy(1.67, 0.93, FixedSet(0.93, 0.714 * 1.67), Stop(0.0093))
    assert not stuck.converged
    assert stuck.pause_s * 1e3 == pytest.approx(1282, abs=0.5)


@few
@given(st.floats(0.01, 1), st.floats(0.01, 0.99))
def test_the_laws_of_rewriting_agree_within_a_block(time: float, part: float) -> None:
    block = BlockSets(1.0, part, 1.0).dirty_bytes(time)
    assert block == pytest.approx(Linear(part).dirty_bytes(time))
    assert block == pytest.approx(FixedSet(part, part).dirty_bytes(time))
    assert Saturating(1.0, part).dirty_bytes(time) <= block + 1e-12


@few
@given(st.integers(1, 40), st.floats(0.05, 3))
def test_the_exact_chain_is_below_the_mean_field(cells: int, ratio: float) -> None:
    exact, mean_field = chain(cells, ratio, 6), saturating_shares(ratio, 6)
    assert exact.means[0] == pytest.approx(cells * mean_field[0])
    assert all(mean <= cells * share * (1 + 1e-9) for mean, share in zip(exact.means, mean_field, strict=True))
    assert all(earlier <= later + 1e-12 for earlier, later in pairwise(exact.empty_chances))


@few
@given(st.floats(0, 20))
def test_the_floor_of_a_saturating_precopy_is_where_it_stalls(ratio: float) -> None:
    floor = saturating_floor(ratio)
    assert floor == pytest.approx(-math.expm1(-ratio * floor), abs=1e-12)
    assert (floor > 0) == (ratio > 1)
    if ratio > 1.1:
        assert saturating_shares(ratio, 3000)[-1] == pytest.approx(floor, rel=1e-9)


def test_the_floor_is_right_just_above_one() -> None:
    for off in (1e-12, 1e-9, 1e-6):
        assert saturating_floor(1 + off) == pytest.approx(2 * ((1 + off) - 1), rel=1e-5)


@few
@given(st.floats(1e-9, 30))
def test_clearing_at_send_leaves_less(ratio: float) -> None:
    late, early = first_residual_share(ratio, clear_at_send=True), first_residual_share(ratio, clear_at_send=False)
    assert 0 < late < early <= 1
    exact = 1 + Fraction(math.expm1(-ratio)) / Fraction(ratio)
    assert late == pytest.approx(float(exact), rel=1e-6, abs=1e-12)


def test_a_burst_at_the_boundary_is_all_or_nothing() -> None:
    assert burst(0.3, 1.28, 1.2).mean_bytes == pytest.approx(1.2 * 0.3 / 1.28)
    assert burst(0.3, 1.28, 1.2, phase_s=0.0).chance == 0
    assert burst(0.3, 1.28, 1.2, phase_s=1.0).chance == 1
    assert burst(9, 1.28, 1.2).chance == 1


@few
@given(st.integers(1, 12), st.integers(0, 12))
def test_occupancy_has_the_moments_of_its_distribution(cells: int, writes: int) -> None:
    pmf, exact, near = occupancy_pmf(cells, writes), occupancy_exact(cells, writes), occupancy(cells, writes)
    mean = sum(d * chance for d, chance in enumerate(pmf))
    assert sum(pmf) == 1
    assert exact.mean == mean
    assert exact.variance == sum(d * d * chance for d, chance in enumerate(pmf)) - mean**2
    assert near.mean == pytest.approx(float(mean), rel=1e-12)
    assert near.variance == pytest.approx(float(exact.variance), rel=1e-9, abs=1e-15)


def test_large_occupancies_keep_their_digits() -> None:
    assert occupancy(10**12, 10**6).mean == pytest.approx(10**6 - 0.5, abs=1e-3)
    assert occupancy(10**7, 3 * 10**7).mean == pytest.approx(poisson_occupancy(1e7, 3e7, 1), rel=1e-7)
    # n (exp(-a) - (1 + a) exp(-2a)) for a writes a cell
    assert occupancy(10**6, 10**6).variance == pytest.approx(1e6 * (math.exp(-1) - 2 * math.exp(-2)), rel=1e-5)
    assert poisson_occupancy_of([3.0] * 10, 1.0) == pytest.approx(poisson_occupancy(10, 30, 1.0))
    assert writes_to_touch_all(6) == Fraction(147, 10)
    assert mean_writes_to_touch_all(400) == pytest.approx(float(writes_to_touch_all(400)), rel=1e-14)


@few
@given(st.integers(1, 50), st.data())
def test_a_union_of_blocks_grows_to_the_whole(w: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(0, w))
    unions = [block_union(Fraction(w), Fraction(m), b) for b in range(6)]
    assert unions[0] == 0
    assert unions[1] == m
    assert unions == sorted(unions)
    assert unions[-1] <= w
    assert block_union(Fraction(w), Fraction(m), 2, Fraction(1)) == unions[3]


@few
@given(st.floats(0, 100), st.floats(0.1, 50), st.floats(1.01, 30), st.floats(0, 1))
def test_a_replay_is_level_when_it_has_played_as_much_as_the_session(s: float, b: float, g: float, o: float) -> None:
    found = replay(s, b, g, o)
    assert found.catch_up_s * g == pytest.approx(found.finish_s)
    if s > 0.01:
        rate = replay_rate(s, found.finish_s, g, o)
        assert rate == pytest.approx(b, rel=1e-6)


def test_a_replay_that_is_no_faster_than_play_is_never_level() -> None:
    assert replay(1, 1, 1).finish_s == math.inf
    assert replay(0, 1, 0.5).finish_s == 0
    assert replay_rate(1, 9, 1.0) == math.inf


stages = st.lists(st.floats(0.01, 10), min_size=1, max_size=5)


@few
@given(stages, st.integers(1, 30))
def test_a_pipeline_is_the_max_plus_recursion(totals: list[float], chunks: int) -> None:
    each = [[total / chunks for total in totals]] * chunks
    time_s = pipeline_s(totals, chunks)
    assert makespan_s(each) == pytest.approx(time_s)
    assert makespan_s(each, 1) == pytest.approx(time_s)
    assert makespan_s(each, 0) == pytest.approx(time_s)
    assert max(totals) * (1 - 1e-12) <= time_s <= sum(totals) * (1 + 1e-12)
    assert pipeline_s(totals, 1) == pytest.approx(sum(totals))
    assert pipeline_s(totals, CHUNKS_MAX) == pytest.approx(max(totals), rel=1e-4)
    assert pipeline_s(totals, chunks, 0.5, 0.01) == pytest.approx(time_s + 0.5 + 0.01 * (len(totals) + chunks - 1))


@few
@given(stages, st.floats(1e-4, 1))
def test_the_best_number_of_chunks_is_no_worse_than_its_neighbours(totals: list[float], overhead: float) -> None:
    best = best_chunks(totals, overhead)
    times = [pipeline_s(totals, max(1, best + off), 0.0, overhead) for off in (0, -1, 1)]
    assert times[0] <= min(times) * (1 + 1e-12)


def test_the_best_number_of_chunks_of_the_papers_move() -> None:
    totals = stage_totals_s(1.67, 8.0, 1.3, 20.0, 25.0)
    assert [best_chunks(totals, h) for h in (20e-6, 100e-6, 1e-3)] == [87, 39, 12]
    assert best_chunks([1.0], 0.1) == 1
    assert best_chunks([1.0, 1.0], 0.0) == CHUNKS_MAX


@few
@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=8))
def test_more_buffers_never_take_longer(rows: list[list[int]]) -> None:
    chunks = [[Fraction(spent) for spent in row] for row in rows]
    times = [makespan_s(chunks, room) for room in (0, 1, 2, 8)] + [makespan_s(chunks)]
    assert times == sorted(times, reverse=True)
    assert times[-2] == times[-1]
    assert np.sum(rows, axis=0).max() <= times[-1]
