"""Where sessions go when hosts are emptied, evened out or packed."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from worldline.control.placement import Deed, Rules, Seat, SessionBudget, Sitting, empty, even, pack

GB = 10**9
PLAN = "plan"


def seat(host, free=4, memory=8, is_open=True, takes=(PLAN,)):
    return Seat(host, memory * GB, free * GB, is_open, frozenset(takes))


def sitting(session, host="a", size=1, idle_s=0.0, **more):
    return Sitting(session, host, PLAN, size * GB, idle_s, **more)


def test_a_drained_host_gives_its_largest_sessions_to_the_roomiest_hosts():
    placement = empty("a", [seat("a"), seat("b", 5), seat("c", 3)], [sitting("s1"), sitting("s2", size=3)], Rules())
    assert [(step.session, step.target) for step in placement.steps] == [("s2", "b"), ("s1", "c")]
    assert placement.emptied == ("a",)


def test_a_session_without_a_host_is_named_with_the_reason():
    seats = [seat("a"), seat("b", 0), seat("c", takes=()), seat("d", is_open=False)]
    placement = empty("a", seats, [sitting("s1")], Rules())
    assert (placement.steps, placement.emptied) == ((), ())
    assert placement.left[0].why == "it needs 1 GB, and at most 0 B are free on a host for it"
    assert "plans" in empty("a", [seat("a"), seat("c", takes=())], [sitting("s1")], Rules()).left[0].why
    assert empty("a", [seat("a"), seat("d", is_open=False)], [sitting("s1")], Rules()).left[0].why == (
        "no other host is open"
    )


def test_with_parking_allowed_it_is_parked_instead():
    placement = empty("a", [seat("a"), seat("b", 0)], [sitting("s1")], Rules(park=True))
    assert [(step.deed, step.target) for step in placement.steps] == [(Deed.PARK, None)]


def test_a_twin_stays_and_is_never_parked():
    placement = empty("a", [seat("a"), seat("b")], [sitting("s1", stays="it is a twin")], Rules(park=True))
    assert [left.why for left in placement.left] == ["it is a twin"]


def test_the_budget_of_moves_and_of_frozen_time_holds_unless_it_is_waived():
    tired = sitting("s1", moves_spent=12)
    frozen = sitting("s2", frozen_spent_s=1.9, frozen_next_s=0.2)
    seats = [seat("a"), seat("b")]
    assert [left.session for left in empty("a", seats, [tired, frozen], Rules()).left] == ["s1", "s2"]
    assert empty("a", seats, [tired, frozen], Rules(budget=None)).left == ()


def test_rebalancing_stops_when_no_move_narrows_the_spread():
    seats = [seat("a", 2), seat("b", 8)]
    sittings = [sitting(f"s{n}", size=2) for n in range(3)]
    placement = even(seats, sittings, Rules())
    assert [(step.source, step.target) for step in placement.steps] == [("a", "b")]
    assert even(seats, [sitting("s", size=6)], Rules()).steps == ()


def test_consolidation_parks_the_idle_moves_the_others_and_empties_whole_hosts_only():
    seats = [seat("a", 6), seat("b", 4), seat("c", 1)]
    sittings = [sitting("idle", idle_s=90), sitting("busy"), sitting("b1", "b", 2), sitting("b2", "b", 2)]
    sittings.append(sitting("c1", "c", 5))
    placement = pack(seats, sittings, Rules(idle_s=60))
    assert {(step.session, step.deed, step.target) for step in placement.steps} == {
        ("idle", Deed.PARK, None),
        ("busy", Deed.MOVE, "c"),
    }
    assert placement.emptied == ("a",)
    assert placement.left[0].session == "b1"


def test_consolidation_keeps_room_for_who_comes_back():
    seats, sittings = [seat("a", 7), seat("b", 3)], [sitting("s1"), sitting("s2", "b", 5)]
    assert pack(seats, sittings, Rules(idle_s=60)).emptied == ("a",)
    kept = pack(seats, sittings, Rules(idle_s=60, warm_bytes=3 * GB))
    assert (kept.emptied, kept.left[0].session) == ((), None)


def test_consolidation_leaves_as_many_hosts_as_asked_and_moves_nobody_twice():
    seats = [seat("a", 7), seat("b", 7), seat("c", 7)]
    sittings = [sitting("s1", "a"), sitting("s2", "b"), sitting("s3", "c")]
    placement = pack(seats, sittings, Rules(hosts_min=2))
    assert placement.emptied == ("a",)
    far = pack(seats, sittings, Rules(hosts_min=1))
    assert len({step.session for step in far.steps}) == len(far.steps)


SEATS = st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.booleans()), min_size=2, max_size=5)
SITTINGS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 120), st.integers(0, 14)), max_size=12
)


@given(seats=SEATS, sittings=SITTINGS, kind=st.sampled_from(["empty", "even", "pack"]), park=st.booleans())
def test_no_placement_promises_memory_twice_or_a_host_that_may_not_take_it(seats, sittings, kind, park):
    hosts = [seat(f"h{n}", free, 8, is_open, (PLAN,) if able else ()) for n, (free, is_open, able) in enumerate(seats)]
    there = [
        replace(sitting(f"s{n}", hosts[at % len(hosts)].host, size, float(idle)), moves_spent=moves)
        for n, (at, size, idle, moves) in enumerate(sittings)
    ]
    rules = Rules(budget=SessionBudget(), park=park, idle_s=60.0)
    placement = (
        empty("h0", hosts, there, rules) if kind == "empty" else {"even": even, "pack": pack}[kind](hosts, there, rules)
    )
    by_host = {one.host: one for one in hosts}
    free = {one.host: one.free_bytes for one in hosts}
    where = {one.session: one.host for one in there}
    for step in placement.steps:
        assert step.source == where[step.session]
        free[step.source] += step.arena_bytes
        if step.target is not None:
            free[step.target] -= step.arena_bytes
            assert by_host[step.target].open and PLAN in by_host[step.target].takes
            assert free[step.target] >= 0
        where[step.session] = step.target
    assert not set(placement.emptied) & set(where.values())
    assert all(
        one.moves_spent < 12
        for one in there
        for step in placement.steps
        if (step.session == one.session and step.deed is Deed.MOVE)
    )
