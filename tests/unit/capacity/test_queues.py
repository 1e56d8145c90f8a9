"""Laws that hold for every queue here, and values that were published or computed another way."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.capacity.engset import engset, engset_offered, engset_offered_servers, engset_servers, idle_load_of
from worldline.capacity.erlang import (
    Service,
    erlang_b,
    erlang_b_load,
    erlang_b_real,
    erlang_b_servers,
    erlang_c,
    erlang_c_load,
    erlang_c_real,
    erlang_c_servers,
    queue,
    staff,
)
from worldline.capacity.finite_source import Sources, present_pmf, response_tail, stationary, wait_tail
from worldline.capacity.fixed_service import (
    Thinkers,
    fixed_response_tail,
    fixed_wait_tail,
    response_s,
    throughput_per_s,
)
from worldline.capacity.prewarm import prewarm_break_even, warm_buffer
from worldline.capacity.reclaim import Mix, Shortage, devices_needed, reclaimed_share
from worldline.capacity.sessions import (
    Lanes,
    Law,
    Metric,
    Promise,
    memory_sessions_max,
    sessions_max,
    sessions_table,
)
from worldline.capacity.setup_queue import setup_response_s
from worldline.errors import BadValue

few = settings(max_examples=40, deadline=None)
loads = st.floats(0.01, 60)
lanes_of = st.integers(1, 40)


@few
@given(lanes_of, loads)
def test_fewer_calls_are_lost_with_more_servers_and_more_with_more_load(c: int, load: float) -> None:
    assert erlang_b(c + 1, load) < erlang_b(c, load) < erlang_b(c, load * 1.1)


@few
@given(lanes_of, loads)
def test_erlang_b_is_the_same_in_fractions_and_for_a_real_number_of_servers(c: int, load: float) -> None:
    assert erlang_b(c, load) == pytest.approx(float(erlang_b(c, Fraction(load))), rel=1e-12)
    assert erlang_b_real(c, load) == pytest.approx(erlang_b(c, load), rel=1e-12)
    assert erlang_b(c + 1, load) < erlang_b_real(c + 0.5, load) < erlang_b(c, load)


def test_erlang_b_for_a_real_number_of_servers_has_its_known_values() -> None:
    assert erlang_b_real(2.5, 2) == pytest.approx(0.295419506411758, rel=1e-14)
    assert erlang_b_real(0.5, 1) == pytest.approx(0.725196777358349, rel=1e-14)


@few
@given(st.integers(1, 40), st.floats(0.0005, 0.5))
def test_the_inverses_of_loss_are_its_inverses(c: int, loss: float) -> None:
    load = erlang_b_load(c, loss)
    assert erlang_b(c, load) <= loss < erlang_b(c, load * 1.0001)
    assert erlang_b_servers(load * 0.999, loss) == c


@few
@given(st.integers(1, 40), st.floats(0.0005, 0.5))
def test_the_inverses_of_waiting_are_its_inverses(c: int, waiting: float) -> None:
    load = erlang_c_load(c, waiting)
    assert load < c
    assert erlang_c(c, load) <= waiting < erlang_c(c, load * 1.0001)
    assert erlang_c_servers(load * 0.999, waiting) == c
    assert erlang_c_real(c, load) == pytest.approx(erlang_c(c, load), rel=1e-9)


def test_the_edges_of_erlang_are_the_documented_limits() -> None:
    assert [erlang_b(0, 5.0), erlang_b(0, 0.0), erlang_b(4, 0.0)] == [1, 1, 0]
    assert [erlang_b_servers(0.0, 0.01), erlang_b_servers(5.0, 1.0), erlang_b_load(0, 0.1)] == [0, 0, 0]
    assert [erlang_c(2, 2.0), erlang_c(2, 9.0), erlang_c(1, 0.25), erlang_c(0, 1.0)] == [1, 1, 0.25, 1]
    with pytest.raises(BadValue, match="grows without end"):
        queue(2, 20, 10)


def test_a_staffed_queue_keeps_its_promise_and_one_server_less_does_not() -> None:
    found = staff(100 / 30, 1 / 3, Service(0.33, 0.8, 0.85))
    assert found.servers == 14
    assert 1 - queue(13, 100 / 30, 1 / 3).wait_tail(0.33) < 0.8
    assert staff(0.0, 1.0, Service(0.0, 0.5)).servers == 1


idle_loads = st.floats(0.001, 5)


@few
@given(st.integers(1, 60), st.integers(1, 60), idle_loads)
def test_traffic_congestion_is_at_most_call_and_call_at_most_time_congestion(n: int, c: int, a: float) -> None:
    found = engset(n, c, a)
    assert 0 <= found.traffic_congestion <= found.call_congestion <= found.time_congestion * (1 + 1e-12) <= 1 + 1e-12
    assert found.traffic_congestion == pytest.approx(1 - found.carried * (1 + a) / (n * a), abs=1e-12)
    assert 0 <= found.carried <= min(n, c) * (1 + 1e-12)


@few
@given(st.integers(1, 20), st.floats(0.1, 20))
def test_engset_goes_to_erlang_b_with_many_sources(c: int, load: float) -> None:
    assert engset(10**7, c, load / 10**7).call_congestion == pytest.approx(erlang_b(c, load), rel=1e-4)


@few
@given(st.integers(1, 40), idle_loads, st.floats(0.001, 0.3))
def test_the_fewest_servers_of_engset_are_the_fewest(n: int, a: float, loss: float) -> None:
    c = engset_servers(n, a, loss)
    assert engset(n, c, a).call_congestion <= loss
    assert c == 0 or engset(n, c - 1, a).call_congestion > loss


def test_engset_has_two_conventions_of_load() -> None:
    assert engset(10, 5, 0.25).call_congestion == pytest.approx(0.0165659, abs=5e-8)
    assert engset_offered(10, 5, 0.2) == pytest.approx(0.0163500, abs=5e-8)
    assert engset_offered_servers(10, 0.2, 0.017) == 5
    assert engset_servers(10, idle_load_of(0.2), 0.017) == 5


@few
@given(st.integers(2, 60), st.integers(1, 8), st.floats(0.01, 5), st.floats(0.1, 20))
def test_a_finite_source_keeps_littles_law_and_its_tails_fall(n: int, c: int, nu: float, mu: float) -> None:
    sources = Sources(n, c, nu, mu)
    found = stationary(sources)
    assert found.throughput_per_s * (found.response_s + 1 / nu) == pytest.approx(n, rel=1e-9)
    assert sum(present_pmf(sources)) == pytest.approx(1)
    assert wait_tail(sources, 0.0) == pytest.approx(found.waiting_chance, rel=1e-9)
    tails = [wait_tail(sources, t / mu) for t in (0, 0.5, 1, 3)]
    assert all(earlier >= later - 1e-12 for earlier, later in pairwise(tails))
    for t in (0.0, 0.5 / mu, 3 / mu):
        assert math.exp(-mu * t) * (1 - 1e-9) <= response_tail(sources, t) <= 1
        assert wait_tail(sources, t) <= response_tail(sources, t) + 1e-12


@few
@given(st.integers(2, 12), st.integers(1, 4))
def test_floats_and_fractions_agree_on_a_finite_source(n: int, c: int) -> None:
    exact, near = stationary(Sources(n, c, Fraction(1, 3), Fraction(2))), stationary(Sources(n, c, 1 / 3, 2.0))
    for name in ("nobody", "present", "waiting", "throughput_per_s", "utilization", "response_s", "waiting_chance"):
        assert getattr(near, name) == pytest.approx(float(getattr(exact, name)), rel=1e-11, abs=1e-15)


def test_a_finite_source_goes_to_the_open_queue_with_many_sources() -> None:
    found, open_queue = stationary(Sources(500_000, 3, 4 / 500_000, 2.0)), queue(3, 4, 2)
    assert found.wait_s == pytest.approx(open_queue.wait_s, rel=1e-3)
    assert wait_tail(Sources(500_000, 3, 4 / 500_000, 2.0), 0.5) == pytest.approx(open_queue.wait_tail(0.5), rel=1e-3)


def test_the_mean_response_is_the_area_under_its_tail() -> None:
    sources = Sources(9, 3, 0.7, 1.3)
    times = np.linspace(0, 40, 4001)
    area = np.trapezoid([response_tail(sources, float(t)) for t in times], times)
    assert area == pytest.approx(stationary(sources).response_s, rel=1e-4)


def takacs_per_s(n: int, idle_s: float, service_s: float) -> float:
    """The closed form of Takacs 1962, in fractions of the floats so that its sum loses nothing."""
    product, total = Fraction(1), Fraction(0)
    for k in range(n):
        if k:
            transform = Fraction(math.exp(-k * service_s / idle_s))
            product *= (1 - transform) / transform
        total += math.comb(n - 1, k) * product
    volume = n * Fraction(service_s) / Fraction(idle_s) * total
    return float(volume / (1 + volume) / Fraction(service_s))


@few
@given(st.integers(1, 20), st.floats(0.2, 10), st.floats(0.05, 0.5))
def test_a_fixed_service_has_the_throughput_of_takacs(n: int, idle_s: float, service_s: float) -> None:
    assert throughput_per_s(Thinkers(n, idle_s, service_s)) == pytest.approx(
        takacs_per_s(n, idle_s, service_s), rel=1e-9
    )


@settings(max_examples=8, deadline=None)
@given(st.integers(2, 10), st.floats(0.2, 10), st.floats(0.05, 0.5))
def test_the_tail_of_a_fixed_service_falls_and_its_area_is_the_mean_wait(n: int, idle_s: float, d: float) -> None:
    thinkers = Thinkers(n, idle_s, d)
    times = np.linspace(0, n * d, 25 * n + 1)
    tails = [fixed_wait_tail(thinkers, float(t)) for t in times]
    assert all(earlier >= later - 1e-12 for earlier, later in pairwise(tails))
    assert tails[-1] == 0
    assert np.trapezoid(tails, times) == pytest.approx(response_s(thinkers) - d, rel=5e-3, abs=1e-6)


def test_a_fixed_service_survives_loads_that_underflow() -> None:
    busy = Thinkers(300, 0.001, 10.0)
    assert throughput_per_s(busy) == pytest.approx(0.1)
    assert fixed_wait_tail(busy, 298 * 10.0 - 1) == pytest.approx(1, abs=1e-3)
    assert fixed_response_tail(busy, 5.0) == 1


def test_the_table_of_sessions_is_the_published_one() -> None:
    rows = sessions_table((0.5, 1, 2, 5, 10, 20, 60), 0.0964, 0.4, memory_cap=memory_sessions_max(80e9, 0, 1.67e9))
    assert [row.exponential_wait for row in rows] == [3, 4, 6, 14, 26, 51, 149]
    assert [row.exponential_wait_before_service for row in rows] == [2, 3, 4, 9, 16, 32, 92]
    assert [row.fixed_wait for row in rows] == [6, 9, 15, 33, 63, 122, 360]
    assert [row.fixed_response for row in rows] == [5, 8, 12, 27, 52, 102, 301]
    assert [row.limit for row in rows] == [5, 8, 12, 27, 47, 47, 47]
    assert memory_sessions_max(141e9, 0, 1.67e9) == 84
    assert memory_sessions_max(10e9, 20e9, 1e9) == 0


def test_more_lanes_help_more_than_in_proportion() -> None:
    def most(lanes: int) -> list[int]:
        promise = Promise(0.3036, 0.01, Metric.WAIT)
        return [sessions_max(z, Lanes(0.0964, Law.EXPONENTIAL, lanes), promise) for z in (1, 5, 10, 20)]

    assert most(2) == [13, 52, 100, 196]
    assert most(4) == [39, 155, 301, 592]


def test_an_exponential_service_never_keeps_a_response_that_its_own_tail_breaks() -> None:
    promise = Promise(0.4, 0.01, Metric.RESPONSE)
    assert [sessions_max(z, Lanes(0.0964, Law.EXPONENTIAL), promise) for z in (0.5, 60, 1e6)] == [0, 0, 0]


def test_setup_queues_have_their_known_times() -> None:
    assert setup_response_s(2, 1, 1, 0.5) == pytest.approx(46 / 17, rel=1e-12)
    assert setup_response_s(5, 3, 1, 0.2) == pytest.approx(2.795906027882, rel=1e-11)
    assert setup_response_s(1, 0.5, 1, 0.5) == 4
    assert setup_response_s(3, 0, 1, 0.5) == 3
    # Instant setups: the plain queue.
    assert setup_response_s(4, 3, 1, 1e7) == pytest.approx(queue(4, 3, 1).response_s, rel=1e-6)


shares = st.floats(0, 1)


@few
@given(st.integers(0, 150), shares, st.floats(0.05, 0.95), st.sampled_from(Shortage))
def test_devices_are_between_the_pinned_and_all_and_grow_with_duty(n: int, f: float, d: float, by: Shortage) -> None:
    found = [devices_needed(Mix(n, f, duty), by, 0.01, 0.3) for duty in (0.0, d * 0.9, d, 1.0)]
    assert found == sorted(found)
    assert found[0] == Mix(n, f, d).pinned
    assert found[-1] == n
    assert 0 <= reclaimed_share(Mix(n, f, d), by, 0.01, 0.3) <= 1 - f + 1e-12


def test_reclaim_at_120_devices_is_the_published_sweep() -> None:
    def percents(f: float) -> list[int]:
        mixes = [Mix(120, f, d / 10) for d in range(1, 10)]
        return [round(100 * reclaimed_share(mix, Shortage.WAIT, 0.01, 0.3036)) for mix in mixes]

    assert percents(0) == [82, 71, 59, 49, 39, 30, 21, 12, 4]
    assert percents(0.5) == [39, 33, 28, 22, 18, 12, 8, 4, 1]
    assert percents(1) == [0] * 9


def test_the_papers_three_reclaims_are_one_calibration() -> None:
    found = [reclaimed_share(Mix(120, f, d), Shortage.CALL) for f, d in ((0, 0.4), (0.6, 0.25), (1, 0.4))]
    assert [round(100 * part) for part in found] == [51, 24, 0]


def test_a_warm_buffer_shrinks_as_players_stay_away_longer() -> None:
    assert [warm_buffer(120, cycle, 0.0964, 0.01).slots for cycle in (75.6, 80, 300, 1200)] == [3, 2, 2, 1]
    assert warm_buffer(0, 60, 0.0964, 0.01).slots == 0


def test_prewarming_pays_from_the_break_even_on() -> None:
    assert prewarm_break_even(96.4, 247.0, 96.4) == pytest.approx(0.64, abs=1e-3)
    assert prewarm_break_even(1.0, 5.0, 5.0) == math.inf
    assert prewarm_break_even(0.0, 5.0, 1.0) == 0
