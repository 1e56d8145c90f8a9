"""Every public function, each of its numbers replaced by one that makes no sense: a typed error, never a number."""

from __future__ import annotations

import inspect
import math
import pkgutil
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module

import numpy as np
import pytest

import worldline.capacity
from worldline.capacity import (
    admission,
    cases,
    coding,
    distributions,
    domain,
    edf,
    engset,
    erlang,
    finite_source,
    fixed_service,
    gate,
    occupancy,
    pipeline,
    planner,
    precopy,
    prewarm,
    priorities,
    reclaim,
    rewriting,
    sessions,
    setup_queue,
    tasks,
    timeline,
)
from worldline.errors import BadValue

BAD = (-1, math.nan, math.inf, -math.inf, 10**400, "5", True)
SIGNED = (math.nan, math.inf, -math.inf, 10**400, "5", True)
TICKS = (-1, math.nan, math.inf, 0.5, "5", True)

fifo = (tasks.Task(1, 4, 4), tasks.Task(2, 8, 8))
sources = finite_source.Sources(5, 2, 0.5, 1.0)
thinkers = fixed_service.Thinkers(5, 1.0, 0.1)
demand = gate.Demand(1.0, 0.1, 1.0, 1.0)
fabric = gate.Fabric(2.0)
mix = reclaim.Mix(20, 0.2, 0.4)
calendar = admission.Calendar(np.array([1.0]), np.array([5.0]))
a_coding = coding.Coding(1.3, 3.0, 4.0)
promise, lanes = sessions.Promise(0.4), sessions.Lanes(0.1)

NUMBERS: tuple[tuple[Callable[..., object], tuple[object, ...]], ...] = (
    (erlang.erlang_b, (3, 2.0)),
    (erlang.erlang_b_real, (2.5, 2.0)),
    (erlang.erlang_b_servers, (2.0, 0.1)),
    (erlang.erlang_b_load, (3, 0.1)),
    (erlang.erlang_c, (3, 2.0)),
    (erlang.erlang_c_real, (2.5, 2.0)),
    (erlang.erlang_c_servers, (2.0, 0.1)),
    (erlang.erlang_c_load, (3, 0.1)),
    (erlang.queue, (3, 2.0, 1.0)),
    (erlang.queue(3, 2.0, 1.0).wait_tail, (0.5,)),
    (lambda a, m, w, s, o: erlang.staff(a, m, erlang.Service(w, s, o)), (2.0, 1.0, 0.5, 0.8, 0.9)),
    (engset.engset, (5, 2, 0.5)),
    (engset.engset_servers, (5, 0.5, 0.1)),
    (engset.engset_offered, (5, 2, 0.2)),
    (engset.engset_offered_servers, (5, 0.2, 0.1)),
    (engset.idle_load_of, (0.3,)),
    (finite_source.Sources, (5, 2, 0.5, 1.0)),
    (lambda t: finite_source.wait_tail(sources, t), (0.5,)),
    (lambda t: finite_source.response_tail(sources, t), (0.5,)),
    (fixed_service.Thinkers, (5, 1.0, 0.1)),
    (lambda t: fixed_service.fixed_wait_tail(thinkers, t), (0.1,)),
    (lambda t: fixed_service.fixed_response_tail(thinkers, t), (0.3,)),
    (lambda n, z: sessions.late_share(n, z, lanes, promise), (3, 1.0)),
    (
        lambda z, s, b, e: sessions.sessions_max(z, sessions.Lanes(s), sessions.Promise(b, e)),
        (1.0, 0.1, 0.4, 0.01),
    ),
    (
        lambda s, n, b: sessions.sessions_max(
            1.0, sessions.Lanes(s, sessions.Law.EXPONENTIAL, n), sessions.Promise(b, 0.01, sessions.Metric.WAIT)
        ),
        (0.1, 2, 0.4),
    ),
    (sessions.memory_sessions_max, (10.0, 1.0, 2.0)),
    (lambda z, *rest: sessions.sessions_table([z], *rest), (1.0, 0.1, 0.4, 0.01, 9)),
    (setup_queue.setup_response_s, (2, 1.0, 1.0, 0.5)),
    (priorities.lift, (0.4, 0.1, 0.05, 0.01)),
    (lambda a, k, o, h: pipeline.pipeline_s([a, 1.0], k, o, h), (1.0, 4, 0.1, 0.01)),
    (lambda a, h: pipeline.best_chunks([a, 1.0], h), (1.0, 0.01)),
    (pipeline.stage_totals_s, (1.0, 2.0, 1.5, 3.0, 4.0)),
    (lambda a, b: pipeline.makespan_s([[a, 1.0], [1.0, 1.0]], b), (1.0, 1)),
    (occupancy.occupancy, (5, 3)),
    (occupancy.occupancy_exact, (5, 3)),
    (occupancy.occupancy_pmf, (5, 3)),
    (occupancy.poisson_occupancy, (5.0, 1.0, 2.0)),
    (lambda r, t: occupancy.poisson_occupancy_of([r], t), (1.0, 2.0)),
    (occupancy.writes_to_touch_all, (5,)),
    (occupancy.mean_writes_to_touch_all, (5,)),
    (rewriting.Linear, (1.0,)),
    (rewriting.FixedSet, (1.0, 1.0)),
    (rewriting.BlockSets, (2.0, 1.0, 1.0)),
    (rewriting.Saturating, (2.0, 1.0)),
    (rewriting.Linear(1.0).dirty_bytes, (1.0,)),
    (rewriting.FixedSet(1.0, 1.0).dirty_bytes, (1.0,)),
    (rewriting.BlockSets(2.0, 1.0, 1.0).dirty_bytes, (1.0,)),
    (rewriting.Saturating(2.0, 1.0).dirty_bytes, (1.0,)),
    (rewriting.block_union, (4.0, 2.0, 3, 0.5)),
    (rewriting.saturating_shares, (0.5, 5)),
    (rewriting.saturating_floor, (1.5,)),
    (rewriting.chain, (8, 0.5, 5)),
    (lambda r: rewriting.first_residual_share(r, True), (0.5,)),
    (lambda r: rewriting.first_residual_share(r, False), (0.5,)),
    (rewriting.burst, (0.3, 1.0, 2.0, 0.5)),
    (rewriting.roll_aware_bytes, (2.0, 0.5, 0.1)),
    (lambda s, b, v, n: precopy.precopy(s, b, rewriting.Linear(0.5), precopy.Stop(v, n)), (2.0, 1.0, 0.1, 9)),
    (precopy.linear_rounds, (2.0, 1.0, 0.5, 0.1)),
    (precopy.precopy_limit_s, (2.0, 1.0, 0.5)),
    (precopy.replay, (2.0, 1.0, 3.0, 0.1)),
    (precopy.replay_rate, (2.0, 9.0, 3.0, 0.1)),
    (gate.Codec, (1.5, 2.0, 3.0)),
    (lambda w, o, f, lane: gate.Fabric(w, o, f, None, lane), (2.0, 0.1, 0.1, 3.0)),
    (gate.Demand, (1.0, 0.1, 1.0, 1.0)),
    (gate.transfer_s, (1.0, 2.0, 0.1)),
    (lambda o: gate.needed_raw_bytes_per_s(gate.Way.FREEZE, demand, o), (0.1,)),
    (lambda d, h: gate.largest_state_bytes(fabric, d, h), (0.1, 1.0)),
    (lambda s, h: gate.largest_dirty_bytes_per_s(fabric, s, h), (0.1, 1.0)),
    (lambda s: gate.codec_helps(s, fabric, gate.Fabric(2.0, codec=gate.Codec(2, 9, 9))), (1.0,)),
    (gate.lane_fan_in, (1.0, 0.1, 1.0, 9.0, 0.1)),
    (coding.Coding, (1.3, 3.0, 4.0)),
    (lambda b: coding.coded_bytes_per_s(b, a_coding), (1.0,)),
    (lambda b, n, s: coding.gain(b, n, s, a_coding), (1.0, 9, 2)),
    (lambda b, n, s: coding.best_codec(b, n, s, {"x": a_coding}), (1.0, 9, 2)),
    (lambda m, r, d, a: planner.Situation(demand, fabric, m, r, d, 1.0, a), (0.5, 2.0, 3.0, 1)),
    (prewarm.warm_buffer, (20, 60.0, 0.1, 0.01)),
    (prewarm.prewarm_break_even, (1.0, 5.0, 2.0)),
    (reclaim.Mix, (20, 0.2, 0.4, 60.0)),
    (lambda e, w: reclaim.devices_needed(mix, reclaim.Shortage.WAIT, e, w), (0.01, 0.3)),
    (lambda e, w: reclaim.reclaimed_share(mix, reclaim.Shortage.CALL, e, w), (0.01, 0.3)),
    (admission.reserved, (1.0, 0.1, 0.1)),
    (lambda c: admission.decide(calendar, 0.0, c, 9.0), (1.0,)),
    (lambda c, h: admission.greedy([0, 1], c, h), (1.0, 3.0)),
    (lambda c, h: admission.most_admitted([0, 1], c, h), (1.0, 3.0)),
    (admission.ideal_accepted_share, (3.0, 1.0)),
)
"""With arguments that are right. Each place is replaced in turn by each of `BAD`."""

OTHERS: tuple[tuple[Callable[..., object], tuple[object, ...], tuple[object, ...]], ...] = (
    (lambda n, d: admission.decide(calendar, n, 1.0, d), (0.0, 9.0), SIGNED),
    (lambda f: admission.Calendar(calendar.costs, calendar.deadlines, f), (0.0,), SIGNED),
    (lambda a, d: admission.run_edf([admission.Request(a, 1.0, d)]), (0.0, 9.0), SIGNED),
    (lambda a: admission.greedy([0.0, a], 1.0, 3.0), (1.0,), SIGNED),
    (lambda a: admission.most_admitted([a], 1.0, 3.0), (1.0,), SIGNED),
    (tasks.Task, (1, 4, 4, 0), TICKS),
    (lambda o: timeline.play([tasks.Task(1, 4, 4)], [o]), (0,), TICKS),
    (lambda o: timeline.anomaly([tasks.Task(1, 4, 4)], [o]), (0,), TICKS),
)

WRONG: tuple[Callable[[], object], ...] = (
    lambda: erlang.erlang_b(501, Fraction(1)),
    lambda: erlang.erlang_b_servers(1e12, 0.01),
    lambda: erlang.erlang_c_servers(1e12, 0.01),
    lambda: erlang.queue(2, 3.0, 1.0),
    lambda: erlang.queue(2, 2.0, 1.0),
    lambda: erlang.queue(1, 1e300, 1e-300),
    lambda: erlang.staff(1e300, 1e-5, erlang.Service(0.1, 0.9)),
    lambda: erlang.staff(1.0, 1.0, erlang.Service(0.1, 0.9, 1e-320)),
    lambda: engset.engset_offered(5, 2, 1.0),
    lambda: engset.idle_load_of(1.0),
    lambda: finite_source.Sources(5, 0, 0.5, 1.0),
    lambda: finite_source.Sources(10**9, 1, 0.5, 1.0),
    lambda: finite_source.Sources(501, 1, Fraction(1), Fraction(1)),
    lambda: finite_source.Sources(5, 1, 1e300, 1e-300),
    lambda: fixed_service.Thinkers(10**6, 1.0, 1.0),
    lambda: fixed_service.Thinkers(5, 1e300, 1e-300),
    lambda: sessions.sessions_max(1.0, sessions.Lanes(0.1, sessions.Law.FIXED, 2), promise),
    lambda: sessions.sessions_max(1e9, sessions.Lanes(0.1), promise),
    lambda: sessions.sessions_table([1.0], 0.5, 0.4),
    lambda: setup_queue.setup_response_s(2, 2.0, 1.0, 0.5),
    lambda: setup_queue.setup_response_s(2, 1.0, 1.0, 1e-12),
    lambda: setup_queue.setup_response_s(10**6, 1.0, 1.0, 1.0),
    lambda: priorities.lift(1.0, 1e-300),
    lambda: pipeline.pipeline_s([], 1),
    lambda: pipeline.makespan_s([]),
    lambda: pipeline.makespan_s([[]]),
    lambda: pipeline.makespan_s([[1.0], [1.0, 2.0]]),
    lambda: pipeline.makespan_s([[1.0]] * 1_000_001),
    lambda: occupancy.occupancy_exact(10**6, 10**6),
    lambda: rewriting.block_union(1.0, 2.0, 1),
    lambda: rewriting.block_union(Fraction(2), Fraction(1), 10**9),
    lambda: rewriting.BlockSets(1.0, 2.0, 1.0),
    lambda: rewriting.burst(0.3, 1.0, 2.0, 1.0),
    lambda: precopy.precopy(1e300, 1e-300, rewriting.Linear(1.0), precopy.Stop(0)),
    lambda: precopy.replay(1e300, 1e-300, 2.0),
    lambda: gate.codec_helps(1.0, fabric, fabric),
    lambda: gate.lane_fan_in(1e-320, 0.0, 1e10, 1e10, 0.0),
    lambda: planner.Situation(demand, fabric, memory_free_bytes=-1.0),
    lambda: planner.Situation(demand, fabric, memory_free_bytes=math.nan),
    lambda: prewarm.warm_buffer(100, 1e-308, 1e308, 0.1),
    lambda: tasks.Task(1, 0, 4),
    lambda: priorities.responses([tasks.Task(Fraction(1, 2), 4, 4)], tasks.Time.WHOLE),
    lambda: priorities.responses(fifo * 501),
    lambda: priorities.surely_meets_deadlines(fifo * 501),
    lambda: priorities.audsley(fifo * 501),
    lambda: priorities.meets_deadlines(fifo * 501),
    lambda: edf.jeffay([tasks.Task(1, 4, 3)]),
    lambda: edf.jeffay([tasks.Task(1, None, 3)]),
    lambda: edf.demand([tasks.Task(1, 4, 4, 1)]),
    lambda: edf.edf_responses([tasks.Task(Fraction(1, 2), 4, 4)]),
    lambda: timeline.play(fifo, [0]),
    lambda: timeline.play([tasks.Task(1, None, 4)], [0]),
    lambda: timeline.play([tasks.Task(1, 10**9 + 7, 4), tasks.Task(1, 10**9 + 9, 4)], [0, 0]),
    lambda: admission.ideal_accepted_share(1e4, 1.0),
    lambda: admission.most_admitted([0.0] * 5001, 1.0, 1.0),
    lambda: admission.run_edf([admission.Request(0, -1, 5)]),
    lambda: admission.book(calendar, admission.decide(calendar, 0, 9, 1), 9, 1),
    lambda: cases.parse_exact("1e9"),
)
"""Numbers that are right one by one and not together, or beyond what is computed."""


TABLE = [*((*row, BAD) for row in NUMBERS), *OTHERS]


@pytest.mark.parametrize(("function", "arguments", "wrong"), TABLE, ids=map(str, range(len(TABLE))))
def test_a_number_that_makes_no_sense_is_a_typed_error(
    function: Callable[..., object], arguments: tuple[object, ...], wrong: tuple[object, ...]
) -> None:
    function(*arguments)
    for at in range(len(arguments)):
        for bad in wrong:
            try:
                answer = function(*arguments[:at], bad, *arguments[at + 1 :])
            except BadValue:
                continue
            pytest.fail(f"argument {at} as {bad!s:.20} gave {answer}")


@pytest.mark.parametrize("call", WRONG, ids=map(str, range(len(WRONG))))
def test_numbers_that_do_not_fit_together_are_a_typed_error(call: Callable[[], object]) -> None:
    with pytest.raises(BadValue):
        call()


def test_every_public_function_and_type_with_rules_is_in_these_tables() -> None:
    here = inspect.getsource(inspect.getmodule(test_every_public_function_and_type_with_rules_is_in_these_tables))
    exempt = {
        # take only what was checked before
        "stationary", "present_pmf", "throughput_per_s", "response_s", "judge", "by_deadline", "late", "load",
        "jobs_within", "jobs_before", "check", "plan", "predict", "explain", "first_fit",
        "first_span", "size_text", "time_text",
        # are the file format's, and tested there
        "read_cases", "run_case", "difference", "as_json", "parse_or_nothing",
    }  # fmt: skip
    for module in pkgutil.iter_modules(worldline.capacity.__path__):
        loaded = import_module(f"worldline.capacity.{module.name}")
        if loaded in {domain, distributions} or module.name == "formulas":
            continue
        for name, thing in vars(loaded).items():
            ours = inspect.isfunction(thing) and thing.__module__ == loaded.__name__ and not name.startswith("_")
            assert not ours or name in exempt or f"{module.name}.{name}" in here, f"{module.name}.{name} is not tried"


def test_what_was_checked_before_still_answers_at_its_edges() -> None:
    nobody, silent = finite_source.Sources(0, 1, 0.5, 2.0), finite_source.Sources(5, 1, 0.0, 2.0)
    for still in (nobody, silent):
        assert finite_source.stationary(still).response_s == 0.5
        assert finite_source.stationary(still).throughput_per_s == 0
        assert finite_source.wait_tail(still, 0.0) == 0
    assert finite_source.stationary(finite_source.Sources(5, 1, 5e-324, 1.0)).response_s == pytest.approx(1)
    assert finite_source.stationary(finite_source.Sources(5, 1, 1e12, 1.0)).response_s == pytest.approx(5)
    assert fixed_service.throughput_per_s(fixed_service.Thinkers(0, 1.0, 1.0)) == 0
    assert fixed_service.response_s(fixed_service.Thinkers(1, 1.0, 0.5)) == 0.5
    assert rewriting.chain(4, 1e300, 2).means == (4, 4)
    assert rewriting.saturating_floor(1e300) == 1
    assert gate.judge(gate.Way.PRECOPY, gate.Demand(1e300, 1.0, 1.0, 1.0), gate.Fabric(1e-300)).admissible is False
    assert gate.rounds_while_playing(demand, gate.Fabric(0.05)) is None
    assert admission.ideal_accepted_share(0.0, 1e9) == pytest.approx(1e-9)
