"""Hosts emptied, packed and given back, with real processes: who plays plays on, and loses nothing."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from worldline.errors import (
    BadValue,
    HostCordoned,
    NoCapacity,
    OperationInProgress,
    UnknownOperation,
    UnknownWorld,
)
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.schema.contract import Contract
from worldline.service.client import Client

TINY = "worldline.testing.tiny:TinyWorld"
WAIT_S = 60


@pytest.fixture(scope="module")
def fleet():
    plan = FleetPlan(hosts=("a", "b", "c"), faults=True, worlds=(TINY,), memory_bytes=64 << 20)
    with Fleet.start(plan) as started:
        yield started


@pytest.fixture
def client(fleet):
    with Client(fleet.url) as connected:
        yield connected
        for operation in connected.operations():
            connected.cancel(operation.id)
            ended(connected, operation.id)
        for session in connected.sessions():
            if session.status != "closed" and session.twin_of is None:
                connected.session(session.id).close()
        for host in connected.hosts():
            connected.uncordon(host.id)


def ended(client, operation):
    return until(lambda: found if (found := client.operation(operation)).outcome is not None else None)


def until(ask):
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if (found := ask()) is not None:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def host(client, name):
    return next(one for one in client.hosts() if one.id == name)


def played(client, count, on="a", contract=None):
    sessions = [client.open(TINY, seed=seed, host=on, contract=contract) for seed in range(count)]
    for session in sessions:
        session.step(1, 2)
    return sessions


def roots(sessions):
    """What a session that was never touched shows after the same actions."""
    return [[block.digest for block in session.step(0, 1)] for session in sessions]


def test_a_drained_host_is_empty_and_cordoned_and_every_world_goes_on_as_if_nothing_had_been(client):
    sessions = played(client, 3)
    stayed = played(client, 3, on="b")
    planned = client.operate("drain", "a", dry_run=True)
    assert planned.outcome == "planned"
    assert len(planned.steps) == 3
    assert {session.describe().host for session in sessions} == {"a"}
    done = ended(client, client.operate("drain", "a").id)
    assert (done.outcome, done.emptied, {step.state for step in done.steps}) == ("done", ["a"], {"done"})
    assert all(step.pause_s is not None for step in done.steps)
    assert host(client, "a").cordon is not None
    assert "a" not in {session.describe().host for session in sessions}
    assert roots(sessions) == roots(stayed)
    with pytest.raises(HostCordoned):
        client.open(TINY, host="a")
    with pytest.raises(HostCordoned):
        sessions[0].move("a")
    assert client.open(TINY).describe().host != "a"


def test_a_twin_keeps_its_host_from_being_emptied_and_is_named(client):
    session = client.open(TINY, host="a", twin=True)
    there = client.describe(f"{session.id}-twin").host
    done = ended(client, client.operate("drain", there).id)
    assert done.outcome == "partial"
    assert "twins never move" in done.left[0].why


def test_the_idle_are_put_to_sleep_hosts_are_given_back_and_who_acts_again_is_woken(client):
    sleepers, busy = played(client, 2, on="b"), played(client, 1, on="a")
    never = played(client, 2, on="c")
    time.sleep(0.3)
    busy[0].step(1)
    for session in never:
        session.move("a")
    done = ended(client, client.operate("consolidate", idle_s=0.25, warm_slots=0, hosts_min=1).id)
    assert {"b", "c"} <= set(done.emptied)
    assert host(client, "b").cordon.released
    assert [(row.status, row.asleep) for row in (s.describe() for s in sleepers)] == [("parked", True)] * 2
    assert roots(sleepers) == roots(never)
    assert [(row.status, row.asleep) for row in (s.describe() for s in sleepers)] == [("running", False)] * 2


def test_actions_that_come_as_the_session_falls_asleep_wake_it(client):
    """Its player acts ahead: no action came for a while, and blocks are still due when it is parked."""
    slow, never = (client.open(TINY, host=host, options={"block_period_ms": 200.0}) for host in "ba")
    with ThreadPoolExecutor(2) as pool:
        playing = [pool.submit(session.step, *[0, 1] * 6) for session in (slow, never)]
        time.sleep(0.5)
        client.cordon("a")
        until(lambda: ended(client, client.operate("consolidate", idle_s=0.2, warm_slots=0).id).emptied or None)
        ended_well = [[block.digest for block in one.result()] for one in playing]
    assert ended_well[0] == ended_well[1]
    assert len(slow.describe().receipts) == 2


def test_a_host_that_was_given_back_is_used_again_when_the_others_are_full(client):
    played(client, 1)
    done = ended(client, client.operate("consolidate", idle_s=999.0, warm_slots=0).id)
    assert set(done.emptied) == {"b", "c"}
    client.cordon("a")
    with pytest.raises(HostCordoned):
        client.open(TINY, host="b")
    opened = client.open(TINY).describe().host
    assert opened in {"b", "c"}
    assert host(client, opened).cordon is None


def test_a_standing_consolidation_runs_until_it_is_cancelled(client):
    played(client, 1)
    begun = client.operate("consolidate", idle_s=999.0, warm_slots=0, every_s=0.1)
    until(lambda: True if client.operation(begun.id).passes >= 3 else None)
    client.cancel(begun.id)
    assert ended(client, begun.id).outcome == "cancelled"


def test_a_move_that_is_refused_goes_by_way_of_an_image_in_an_evacuation(client):
    never_in_time = Contract(pause_bound_s=1e-5)
    sessions, stayed = (played(client, 2, on=host, contract=never_in_time) for host in "ab")
    done = ended(client, client.operate("evacuate", "a").id)
    assert (done.outcome, done.emptied) == ("done", ["a"])
    assert all("by way of an image" in step.sentence for step in done.steps)
    assert roots(sessions) == roots(stayed)


def test_a_controller_that_ends_takes_its_operations_up_again(client, fleet):
    sessions = played(client, 6)
    begun = client.operate("drain", "a")
    fleet.kill("controller")
    done = ended_later(client, begun.id)
    assert (done.outcome, host(client, "a").cordon is not None) == ("done", True)
    assert "a" not in {session.describe().host for session in sessions}


def ended_later(client, operation):
    """Also while the controller is away."""

    def ask():
        try:
            found = client.operation(operation)
        except Exception:  # noqa: BLE001 - it is being started again
            return None
        return found if found.outcome is not None else None

    return until(ask)


def test_what_makes_no_sense_is_refused_before_anything_is_begun(client):
    with pytest.raises(BadValue):
        client.operate("drain")
    with pytest.raises(BadValue):
        client.operate("rebalance", "a")
    with pytest.raises(BadValue):
        client.operate("drain", "a", every_s=1.0)
    with pytest.raises(UnknownOperation):
        client.operation("o-none")
    played(client, 1, contract=Contract(pause_bound_s=1e-5))
    assert client.operate("drain", "a").outcome is None
    with pytest.raises(OperationInProgress):  # what is refused is tried three times, a second apart
        client.uncordon("a")
    with pytest.raises(OperationInProgress):
        client.operate("drain", "a")


def test_prewarmed_slots_hold_memory_are_taken_and_given_back(client):
    before = host(client, "b").facts.memory_used_bytes
    warm = client.prewarm("b", TINY, slots=3)
    assert warm.slots == 3
    until(lambda: True if host(client, "b").facts.memory_used_bytes == before + 3 * warm.arena_bytes else None)
    session = played(client, 1)[0]
    session.move("b")
    session.step(1)
    until(lambda: True if host(client, "b").facts.memory_used_bytes == before + 3 * warm.arena_bytes else None)
    assert client.prewarm("b", TINY, slots=0).slots == 0
    session.close()
    until(lambda: True if host(client, "b").facts.memory_used_bytes == before else None)
    with pytest.raises(NoCapacity):
        client.prewarm("b", "load", slots=2, options={"bytes": "60MB"})
    with pytest.raises(UnknownWorld):
        client.prewarm("b", "no-such-world")


def test_an_operation_waits_for_its_turn_at_a_port_that_is_promised_to_others():
    plan = FleetPlan(hosts=("a", "b"), faults=True, worlds=(TINY,), memory_bytes=64 << 20, port_bytes_per_s=40_000.0)
    with Fleet.start(plan) as started, Client(started.url) as client:
        sessions = played(client, 4, contract=Contract(pause_bound_s=3.0, completion_deadline_s=3.0))
        done = ended(client, client.operate("drain", "a", at_once=4).id)
        assert (done.outcome, {step.state for step in done.steps}) == ("done", {"done"})
        assert {session.describe().host for session in sessions} == {"b"}
