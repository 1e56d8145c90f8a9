"""No promise is ever broken, none is refused that could be kept, and the ideal is what a simulation shows."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.capacity.admission import (
    EMPTY,
    Calendar,
    Request,
    book,
    decide,
    greedy,
    ideal_accepted_share,
    most_admitted,
    reserved,
    run_edf,
)
from worldline.capacity.erlang import erlang_b
from worldline.errors import BadValue

few = settings(max_examples=80, deadline=None)
costs = st.integers(0, 20)


@st.composite
def requests(draw: st.DrawFn, most: int = 25) -> list[Request]:
    arrival, asked = 0, []
    for _ in range(draw(st.integers(0, most))):
        arrival += draw(st.integers(0, 15))
        asked.append(Request(arrival, draw(costs), arrival + draw(st.integers(0, 80))))
    return asked


@few
@given(requests())
def test_every_accepted_move_ends_by_its_deadline_and_no_two_overlap(asked: list[Request]) -> None:
    served = run_edf(asked)
    for one in served:
        request = asked[one.request]
        assert request.arrival <= one.start
        assert one.finish == one.start + request.cost
        assert one.finish <= request.deadline
    spans = sorted((one.start, one.finish) for one in served)
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))


@few
@given(st.lists(st.tuples(costs, st.integers(0, 80)), max_size=4), costs, st.integers(0, 80), st.integers(0, 10))
def test_a_move_is_accepted_if_and_only_if_some_order_keeps_every_promise(
    moves: list[tuple[int, int]], cost: int, deadline: int, busy: int
) -> None:
    def feasible(batch: list[tuple[int, int]]) -> bool:
        for order in permutations(batch):
            end, late = busy, False
            for spent, due in order:
                end += spent
                late = late or end > due
            if not late:
                return True
        return not batch

    calendar, kept = Calendar(EMPTY.costs, EMPTY.deadlines, busy), list[tuple[int, int]]()
    for move in [*moves, (cost, deadline)]:
        decision = decide(calendar, 0, *move)
        assert decision.accepted == feasible([*kept, move])
        assert decide(calendar, 0, move[0], decision.earliest_deadline).accepted
        assert not decide(calendar, 0, move[0], decision.earliest_deadline - 0.5).accepted
        if decision.accepted:
            calendar = book(calendar, decision, *move)
            kept.append(move)
        else:
            with pytest.raises(BadValue):
                book(calendar, decision, *move)


@few
@given(st.lists(st.integers(0, 60), max_size=30).map(sorted), st.integers(1, 30), st.integers(0, 90))
def test_first_come_first_served_admission_is_optimal_for_equal_moves(arrivals: list[int], c: int, h: int) -> None:
    accepted = greedy(arrivals, c, h)
    assert len(accepted) == most_admitted(arrivals, c, h)
    assert [one.request for one in run_edf([Request(at, c, at + h) for at in arrivals])] == list(accepted)


def test_the_ideal_has_its_known_values() -> None:
    wait = (400 - 96.4) / 96.4
    loads = (0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 2)
    shares = (0.99783, 0.98486, 0.94569, 0.87445, 0.78504, 0.69631, 0.61831, 0.49902)
    for load, share in zip(loads, shares, strict=True):
        assert ideal_accepted_share(wait, load) == pytest.approx(share, abs=6e-6)
    assert ideal_accepted_share(1, 1) == pytest.approx(math.e / (1 + math.e), rel=1e-14)


@few
@given(st.floats(0, 30), st.floats(0.01, 5))
def test_the_ideal_is_between_no_waiting_and_the_capacity(wait: float, load: float) -> None:
    found = ideal_accepted_share(wait, load)
    assert 1 / (1 + load) <= found * (1 + 1e-12)
    assert found <= min(1, 1 / load) * (1 + 1e-12)
    assert ideal_accepted_share(0, load) == pytest.approx(1 - erlang_b(1, load))


def test_the_ideal_keeps_its_digits_where_the_sum_alternates() -> None:
    assert ideal_accepted_share(300, 2.0) == pytest.approx(0.5, rel=1e-12)
    assert ideal_accepted_share(200, 0.5) == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(BadValue, match="digits"):
        ideal_accepted_share(1e6, 1.0)


def test_greedy_admission_of_a_simulated_trace_reaches_the_ideal() -> None:
    arrivals = np.cumsum(np.random.default_rng(7).exponential(1.0, 40_000)).tolist()
    accepted = len(greedy(arrivals, 1.0, 4.0)) / len(arrivals)
    assert accepted == pytest.approx(ideal_accepted_share(3.0, 1.0), abs=0.01)


def test_a_margin_is_what_the_service_may_be_longer() -> None:
    assert reserved(100, 0.1, 5) == pytest.approx(115)


@pytest.mark.parametrize(
    ("spent", "due"), [([1.0], []), ([math.nan], [1.0]), ([-1.0], [1.0]), ([1.0], [math.inf]), ([1.0, 1.0], [2.0, 1.0])]
)
def test_a_calendar_that_makes_no_sense_is_refused(spent: list[float], due: list[float]) -> None:
    with pytest.raises(BadValue):
        Calendar(np.array(spent), np.array(due))


def test_requests_out_of_order_are_refused() -> None:
    with pytest.raises(BadValue):
        run_edf([Request(5, 1, 9), Request(4, 1, 9)])
    with pytest.raises(BadValue):
        greedy([5, 4], 1, 9)
