"""Response times against every possible pattern of arrivals, and the laws they keep."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.capacity.edf import Ties, demand, edf_responses, jeffay
from worldline.capacity.priorities import (
    audsley,
    by_deadline,
    lift,
    meets_deadlines,
    responses,
    surely_meets_deadlines,
)
from worldline.capacity.tasks import Task, Time, load
from worldline.capacity.timeline import anomaly, play
from worldline.errors import BadValue

few = settings(max_examples=60, deadline=None)


@st.composite
def task_sets(draw: st.DrawFn, most: int = 4, period_max: int = 14, jitter_max: int = 0) -> tuple[Task, ...]:
    """Sets with a load below one."""
    tasks: list[Task] = []
    for _ in range(draw(st.integers(1, most))):
        period = draw(st.integers(2, period_max))
        room = 1 - load(tuple(tasks))
        cost_max = min(period, int(room * period)) - (int(room * period) == room * period)
        if cost_max < 1:
            break
        cost = draw(st.integers(1, min(cost_max, 6)))
        tasks.append(Task(cost, period, draw(st.integers(cost, 2 * period)), draw(st.integers(0, jitter_max))))
    return tuple(tasks) or (Task(1, 3, 3),)


def worst_of_all_patterns(tasks: tuple[Task, ...], by_due: bool) -> tuple[int, ...]:
    """The worst responses over all sporadic arrivals, by walking every reachable state tick by tick.

    A state is, a task: ticks until it may arrive again, and the ages of its waiting jobs; and what runs, its ticks left
    and its age. Equal deadlines go by place.
    """
    worst = [0] * len(tasks)
    start = (tuple((0, ()) for _ in tasks), None)
    seen, todo = {start}, [start]
    while todo:
        rows, running = todo.pop()
        able = [at for at, (timer, _) in enumerate(rows) if timer == 0]
        for chosen in range(1 << len(able)):
            now = list(rows)
            for bit, at in enumerate(able):
                if chosen >> bit & 1:
                    now[at] = (tasks[at].period, (*now[at][1], 0))
            runs = running
            if runs is None:
                waiting = [at for at, (_, ages) in enumerate(now) if ages]
                if waiting:
                    at = min(waiting, key=lambda i: (tasks[i].deadline - now[i][1][0] if by_due else 0, i))
                    runs = (at, tasks[at].cost, now[at][1][0])
                    now[at] = (now[at][0], now[at][1][1:])
            if runs is not None:
                at, left, age = runs
                runs = (at, left - 1, age + 1)
                if left == 1:
                    worst[at] = max(worst[at], age + 1)
                    runs = None
            later = (tuple((max(0, timer - 1), tuple(age + 1 for age in ages)) for timer, ages in now), runs)
            if later not in seen:
                seen.add(later)
                todo.append(later)
        assert len(seen) < 200_000
    return tuple(worst)


@settings(max_examples=25, deadline=None)
@given(task_sets(most=3, period_max=6))
def test_fixed_priority_is_exact_over_all_arrivals(tasks: tuple[Task, ...]) -> None:
    found = responses(tasks, Time.WHOLE)
    assert tuple(one.worst for one in found if one) == worst_of_all_patterns(tasks, by_due=False)


@settings(max_examples=25, deadline=None)
@given(task_sets(most=3, period_max=6))
def test_earliest_deadline_is_exact_over_all_arrivals(tasks: tuple[Task, ...]) -> None:
    exact = worst_of_all_patterns(tasks, by_due=True)
    assert edf_responses(tasks, Ties.BY_PLACE) == exact
    assert all(bound >= one for bound, one in zip(edf_responses(tasks), exact, strict=True) if bound is not None)
    assert demand(tasks).schedulable == all(one <= task.deadline for one, task in zip(exact, tasks, strict=True))


@few
@given(task_sets(most=5, jitter_max=6), st.data())
def test_a_response_never_improves_with_cost_jitter_or_frequency(tasks: tuple[Task, ...], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(tasks) - 1))
    task = tasks[at]
    better = data.draw(
        st.sampled_from(
            [
                replace(task, cost=max(0, task.cost - 1)),
                replace(task, jitter=max(0, task.jitter - 1)),
                replace(task, period=task.period + 3),
            ]
        )
    )
    before, after = responses(tasks), responses([*tasks[:at], better, *tasks[at + 1 :]])
    assert all(old.worst >= new.worst for old, new in zip(before, after, strict=True) if old and new)


@few
@given(task_sets(most=5, jitter_max=6))
def test_the_first_instance_is_optimistic_and_whole_ticks_are_no_worse_than_continuous(tasks: tuple[Task, ...]) -> None:
    for whole, continuous in zip(responses(tasks, Time.WHOLE), responses(tasks), strict=True):
        assert whole is not None
        assert continuous is not None
        assert whole.first <= whole.worst <= continuous.worst
        assert whole.from_arrival <= whole.worst


@few
@given(task_sets(most=4))
def test_scaling_all_times_scales_the_response(tasks: tuple[Task, ...]) -> None:
    scaled = [Task(Fraction(t.cost, 3), Fraction(t.period, 3), Fraction(t.deadline, 3)) for t in tasks]
    assert [one.worst * 3 for one in responses(scaled) if one] == [one.worst for one in responses(tasks) if one]


@few
@given(task_sets(most=4, jitter_max=3), st.sampled_from(Time))
def test_the_sufficient_test_never_promises_too_much(tasks: tuple[Task, ...], time: Time) -> None:
    if all(surely_meets_deadlines(tasks, time)):
        assert all(meets_deadlines(tasks, time))


@settings(max_examples=40, deadline=None)
@given(task_sets(most=4))
def test_audsley_finds_an_order_whenever_there_is_one(tasks: tuple[Task, ...]) -> None:
    orders = [list(order) for order in permutations(range(len(tasks)))]
    able = any(all(meets_deadlines([tasks[at] for at in order], Time.WHOLE)) for order in orders)
    found = audsley(tasks, Time.WHOLE)
    assert (found is not None) == able
    if found is not None:
        assert all(meets_deadlines([tasks[at] for at in found], Time.WHOLE))


@few
@given(task_sets(most=5))
def test_the_order_of_deadlines_is_best_for_moves_of_equal_size(tasks: tuple[Task, ...]) -> None:
    equal = [replace(task, cost=1, deadline=min(task.deadline, task.period)) for task in tasks]
    ordered = [equal[at] for at in by_deadline(equal)]
    assert all(meets_deadlines(ordered, Time.WHOLE)) == (audsley(equal, Time.WHOLE) is not None)


def test_the_order_of_deadlines_is_not_best_where_deadlines_exceed_periods() -> None:
    """Found by search."""
    tasks = [Task(1, 5, 1), Task(1, 3, 2), Task(1, 3, 5), Task(1, 9, 5)]
    assert by_deadline(tasks) == (0, 1, 2, 3)
    assert not all(meets_deadlines(tasks, Time.WHOLE))
    assert audsley(tasks, Time.WHOLE) == (0, 1, 3, 2)


@few
@given(task_sets(most=4))
def test_both_tests_by_deadlines_agree_where_both_apply(tasks: tuple[Task, ...]) -> None:
    implicit = [replace(task, deadline=task.period) for task in tasks]
    assert jeffay(implicit).schedulable == demand(implicit).schedulable


def test_what_is_not_bounded_is_said_to_be_so() -> None:
    full = [Task(1, 2, 2), Task(2, 4, 4), Task(1, 8, 8)]
    assert [one and one.worst for one in responses(full)] == [3, None, None]
    assert [one and one.worst for one in responses([Task(1, 2, 2), Task(1, 2, 2)])] == [2, 2]
    assert not demand(full).schedulable
    assert not jeffay([replace(task, deadline=task.period) for task in full]).schedulable
    assert edf_responses(full) == (None, None, None)
    assert audsley(full) is None


def test_the_edges_of_a_task_are_what_they_should_be() -> None:
    assert [one.worst for one in responses([Task(5, 9, 9, 2)]) if one] == [7]
    assert [one.worst for one in responses([Task(0, 9, 9), Task(4, 9, 9)]) if one] == [4, 4]
    assert [one.worst for one in responses([Task(3, None, 9), Task(4, None, 9)]) if one] == [7, 7]
    assert responses([]) == ()
    assert audsley([]) == ()
    assert demand([]).schedulable
    assert demand([Task(3, None, 9), Task(4, None, 6)]).schedulable
    assert not demand([Task(3, None, 9), Task(4, None, 5)]).schedulable


def test_a_load_too_near_one_ends_as_an_error_and_not_never() -> None:
    slow = [Task(1, 2, 2), Task(10**9 - 1, 2 * 10**9, 10**10)]
    for asked in (lambda: responses(slow), lambda: demand(slow), lambda: edf_responses(slow)):
        with pytest.raises(BadValue, match="steps"):
            asked()


def test_far_deadlines_take_no_more_steps() -> None:
    assert edf_responses([Task(1, 3, 10**15), Task(1, 3, 2)]) == (2, 1)


def test_a_shorter_move_can_make_another_late_in_one_schedule_but_not_in_the_analysis() -> None:
    tasks, offsets = [Task(1, 6, 1), Task(3, 6, 4), Task(2, 12, 10)], [0, 3, 5]
    assert play(tasks, offsets) == (1, 3, 4)
    found = anomaly(tasks, offsets)
    assert found is not None
    assert (found.task, found.cost, found.responses, found.late) == (1, 2, (2, 2, 2), 0)
    assert not all(meets_deadlines(tasks, Time.WHOLE))
    assert anomaly([Task(1, 4, 4), Task(1, 4, 4)], [0, 0]) is None


def test_the_fleet_lift_counts_whole_moves_after_the_overhead() -> None:
    found = lift(0.4, 0.179, 0.057)
    assert (found.count, found.fluid) == (1, 2)
    assert found.urgent_blocked_s == pytest.approx(0.415)
    assert lift(0.4, 0.179, 0.057, chunk_s=0.010).urgent_blocked_s == pytest.approx(0.246)
    assert lift(0.4, 0.1).count == 4
    assert lift(0.05, 0.1, 0.057).count == 0
    assert lift(0.3, 1e-3, 1e308).count == 0
