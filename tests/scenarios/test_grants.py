"""A fleet whose ports are promised by a calendar: a move is booked and paced, or refused with the time to wait."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from worldline.errors import DeadlineMissed, IncastRefused, Unavailable, UnknownMove
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.schema.contract import Contract
from worldline.service.client import Client

PORT_BYTES_PER_S = 2e6
STATE = "4MB"
CONTRACT = Contract(pause_bound_s=30.0, completion_deadline_s=30.0)
TIGHT = Contract(pause_bound_s=2.4, completion_deadline_s=2.4)
FIRM = Contract(pause_bound_s=3.8, completion_deadline_s=3.8)
"""Two moves take 2 s each at the ports' rate: this one can wait for no other, and nobody for it."""
IMPOSSIBLE = Contract(pause_bound_s=0.5, completion_deadline_s=0.5)


@pytest.fixture(scope="module")
def fleet():
    plan = FleetPlan(hosts=("a", "b", "c"), memory_bytes=256 << 20, port_bytes_per_s=PORT_BYTES_PER_S)
    with Fleet.start(plan) as started:
        yield started


@pytest.fixture(scope="module")
def client(fleet):
    with Client(fleet.url) as connected:
        yield connected


def opened(client: Client, host: str, contract: Contract):
    return client.open("load", host=host, options={"bytes": STATE}, contract=contract)


def test_a_move_that_would_be_late_is_refused_at_once_with_the_time_at_which_it_would_not(client):
    first, second = opened(client, "a", FIRM), opened(client, "b", TIGHT)
    with ThreadPoolExecutor() as movers:
        moving = movers.submit(first.move, "c")
        wait_for_its_booking(client, first.id)
        with pytest.raises(IncastRefused, match="would be accepted") as refused:
            second.move("c")
        assert moving.result().outcome == "done"
    facts = refused.value.facts
    assert facts["bottleneck"] == "ingress"
    assert 0 < facts["earliest_in_s"] < 30
    assert abs(facts["earliest_at_s"] - time.time()) < 60
    assert client.describe(second.id).host == "b"
    first.close()
    second.close()


def wait_for_its_booking(client: Client, session: str) -> None:
    """A move is in the journal after it was booked."""
    while True:
        move = client.describe(session).move
        if move is not None:
            with contextlib.suppress(UnknownMove):
                client.move(move)
                return
        time.sleep(0.005)


def test_moves_to_one_host_are_promised_one_after_another_and_all_are_done(client):
    sessions = [opened(client, host, CONTRACT) for host in ("a", "b")]
    with ThreadPoolExecutor() as movers:
        done = list(movers.map(lambda session: session.move("c"), sessions))
    assert [move.outcome for move in done] == ["done", "done"]
    assert all(move.receipt.source_root == move.receipt.target_root for move in done)
    for session in sessions:
        session.close()


def until_it_sends(client: Client, session: str) -> str:
    while True:
        name = client.describe(session).move
        assert name is not None
        if any("sending" in line for line in client.move(name).story):
            return name
        time.sleep(0.005)


def until_it_ends(client: Client, name: str):
    while True:
        with contextlib.suppress(Unavailable):
            move = client.move(name)
            if move.outcome is not None:
                return move
        time.sleep(0.05)


def test_a_move_that_no_port_could_carry_in_time_is_a_missed_deadline(client):
    session = opened(client, "a", IMPOSSIBLE)
    with pytest.raises(DeadlineMissed, match="too slow"):
        session.move("b")
    assert client.describe(session.id).status == "running"
    session.close()


def test_a_move_under_way_outlives_its_controller(fleet, client):
    """1. A move sends under grants. 2. Its controller is killed: no grant comes. 3. The next one books it again, and
    the session plays at its target.
    """
    session, twin = (opened(client, "a", CONTRACT) for _ in range(2))
    with ThreadPoolExecutor() as movers:
        moving = movers.submit(session.move, "b")
        wait_for_its_booking(client, session.id)
        name = until_it_sends(client, session.id)
        fleet.kill("controller")
        moving.exception()  # who asked may not hear the end
    move = until_it_ends(client, name)
    assert (move.outcome, move.receipt.source_root) == ("done", move.receipt.target_root)
    assert any("goes on" in line for line in move.story)
    assert client.describe(session.id).host == "b"
    assert [block.digest for block in session.step(1, 2)] == [block.digest for block in twin.step(1, 2)]
