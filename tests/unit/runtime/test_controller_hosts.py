"""A host that is connected and does not answer: nothing is begun with it, nobody waits for it, and nothing stays of
what was asked of it meanwhile.
"""

import asyncio
import threading

import pytest

from hall import Hall
from worldline.control.placement import Kind
from worldline.errors import HostGone
from worldline.runtime import controller_hosts, controller_sessions, controller_survey
from worldline.runtime import messages as wire
from worldline.runtime.fleet_messages import PrewarmRequest
from worldline.runtime.host_engine import Engine
from worldline.runtime.messages import Session
from worldline.testing.memory_store import MemoryStore

SAYS = "host z is connected and does not answer"


@pytest.fixture
async def hall(tmp_path, monkeypatch):
    monkeypatch.setattr(controller_hosts, "DESCRIBE_WAIT_S", 0.5)
    monkeypatch.setattr(controller_hosts, "REFRESH_S", 0.05)
    hall = Hall(tmp_path / "run", MemoryStore())
    await hall.start_host("a")
    hall.hanging = await hall.start_hanging("z")
    await hall.start_controller()
    yield hall
    hall.hanging.go_on()
    await hall.close()


async def until_alive(hall, alive):
    await hall.until(lambda hosts: next(host for host in hosts if host.id == "z").alive is alive)


async def until_handled(hall, message):
    await hall.soon(lambda: message in hall.hanging.handled)


async def test_nothing_is_begun_with_it_until_it_answers(hall):
    here, there = await hall.open(host="a"), await hall.open(host="z")
    hall.hanging.hang()
    await until_alive(hall, False)
    for begin in (
        lambda: hall.open(host="z"),
        lambda: hall.move(here.id, "z"),
        lambda: hall.move(there.id, "a"),
        lambda: hall.ask(wire.ParkRequest(there.id), Session),
        lambda: hall.operate(Kind.DRAIN, "z"),
        lambda: hall.ask(PrewarmRequest("z", here.world, {}, 1), wire.Prewarmed),
    ):
        with pytest.raises(HostGone, match=SAYS):
            await begin()
    assert (await hall.open()).host == "a"
    hall.hanging.go_on()
    await until_alive(hall, True)
    assert (await hall.move(here.id, "z")).outcome == "done"
    assert (await hall.describe(there.id)).status == "running"


async def test_nobody_waits_for_what_it_would_have_built(hall):
    """It hangs before anybody knows."""
    here = await hall.open(host="a")
    hall.hanging.hang()
    with pytest.raises(HostGone, match=SAYS):
        await hall.move(here.id, "z")
    assert await hall.describe(here.id) == here


@pytest.mark.parametrize("wish", ["z", None])
async def test_what_it_opens_once_nobody_waits_any_more_is_closed(hall, wish):
    await hall.open(host="a", width=1 << 16)  # so that the emptiest host is z
    await hall.until(lambda hosts: next(host for host in hosts if host.id == "a").facts.sessions != [])
    hall.hanging.hang()
    if wish is None:
        assert (await hall.open(wish, session="x")).host == "a"
    else:
        with pytest.raises(HostGone, match=SAYS):
            await hall.open(wish, session="x")
    hall.hanging.go_on()
    await until_handled(hall, wire.OpenSession)
    await until_handled(hall, wire.CloseSession)
    assert hall.holders("x") == ([] if wish else ["a"])
    assert (await hall.describe("x")).host == "a" if wish is None else True
    if wish is not None:
        assert (await hall.open(wish, session="x")).host == "z"


async def test_what_it_could_not_be_told_to_close_is_closed_when_it_answers(hall):
    there = await hall.open(host="z")
    hall.hanging.hang()
    await until_alive(hall, False)
    assert (await hall.ask(wire.CloseRequest(there.id), Session)).status == "closed"
    hall.hanging.go_on()
    await until_handled(hall, wire.CloseSession)
    assert hall.holders(there.id) == []


async def test_an_emptying_that_can_not_look_names_the_sessions_that_stay(hall):
    there = await hall.open(host="z")
    hall.hanging.hang()
    begun = await hall.operate(Kind.DRAIN, "z")
    operation = await hall.ended(begun.id)
    assert operation.outcome == "partial"
    assert {(left.session, left.host) for left in operation.left} == {(there.id, "z")}


async def test_a_close_that_is_repeated_gives_memory_back_once_and_only_after_the_last_block(hall, monkeypatch, caplog):
    """A block takes longer than a close is waited for, and whoever closes asks again."""
    monkeypatch.setattr(controller_sessions, "CLOSE_WAIT_S", 0.2)
    there = await hall.open(host="z")
    host, _ = hall.hosts["z"]
    session, used_bytes = host.sessions[there.id], host.memory.ledger.used_bytes
    begun, goes_on, step = threading.Event(), threading.Event(), Engine.step

    def slow(self, *args):
        begun.set()
        assert goes_on.wait(60)
        return step(self, *args)

    monkeypatch.setattr(Engine, "step", slow)
    try:
        session.act(wire.Act(there.id, 1, 1, 0))
        await hall.soon(begun.is_set)
        assert (await hall.ask(wire.CloseRequest(there.id), Session)).status == "closed"
        again = [asyncio.create_task(host.forget(there.id)) for _ in range(2)]
        await asyncio.wait(again, timeout=0.1)
        assert (session.engine.arena.closed, host.memory.ledger.used_bytes) == (False, used_bytes)
        assert host.facts().sessions == []  # what is closing is told of to nobody, who would close it once more
    finally:
        goes_on.set()
    await asyncio.gather(*again)
    await hall.soon(lambda: there.id not in host.sessions)
    assert (session.engine.arena.closed, host.memory.ledger.used_bytes) == (True, 0)
    assert "for a reason of ours" not in caplog.text


async def test_what_fell_silent_meanwhile_is_asked_for_nothing(hall):
    """Two hosts hang at once: when the first is given up, the second is known to be silent."""
    other = await hall.start_hanging("y")
    await hall.until(lambda hosts: sum(host.alive for host in hosts) == 3)
    await hall.open(host="a", width=1 << 16)
    await hall.until(lambda hosts: hosts[0].facts.sessions != [])
    try:
        hall.hanging.hang()
        del hall.hanging.heard[:]
        await hall.soon(lambda: wire.Describe in hall.hanging.heard)  # it falls silent first, and is asked last
        other.hang()
        assert (await hall.open(session="x")).host == "a"
    finally:
        other.go_on()
    hall.hanging.go_on()
    await hall.until(lambda hosts: all(host.alive for host in hosts))
    await hall.soon(lambda: wire.CloseSession in [*other.handled, *hall.hanging.handled])
    assert sum(hanging.handled.count(wire.OpenSession) for hanging in (hall.hanging, other)) == 1


async def test_a_resume_goes_past_it(hall):
    there = await hall.open(host="a", width=1 << 16)
    await hall.ask(wire.ParkRequest(there.id), Session)
    await hall.open(host="a", width=1 << 15)  # so that the emptiest host is z
    await hall.until(lambda hosts: hosts[0].facts.sessions != [])
    hall.hanging.hang()
    assert (await hall.ask(wire.ResumeRequest(there.id, None), Session)).host == "a"


async def test_a_twin_goes_past_it(hall):
    await hall.start_host("b")
    await hall.until(lambda hosts: len(hosts) == 3 and hosts[1].alive)
    await hall.open(host="b", width=1 << 16)  # so that the emptiest host is z
    await hall.until(lambda hosts: hosts[1].facts.sessions != [])
    hall.hanging.hang()
    opened = await hall.open(host="a", twin=True)
    assert (await hall.describe(opened.twin)).host == "b"


async def test_a_move_that_it_was_to_receive_is_refused_and_its_session_is_free_at_once(hall):
    here, there = await hall.open(host="a"), await hall.open(host="z")
    for host in ("z", "a"):  # z has built the world, and said so
        assert (await hall.move(here.id, host)).outcome == "done"
    here = await hall.describe(here.id)
    used_bytes = hall.hosts["z"][0].memory.ledger.used_bytes
    hall.hanging.hang()
    refused = await hall.move(here.id, "z")
    assert (refused.outcome, refused.error.code) == ("refused", HostGone.code)
    assert SAYS in refused.error.sentence
    assert await hall.describe(here.id) == here
    del hall.hanging.handled[:]
    hall.hanging.go_on()
    await until_handled(hall, wire.Discard)
    await hall.soon(lambda: hall.hosts["z"][0].memory.ledger.used_bytes == used_bytes)
    assert (await hall.move(here.id, "z")).outcome == "done"
    assert (await hall.describe(there.id)).status == "running"


async def test_it_holds_up_no_emptying_of_another(hall, monkeypatch):
    monkeypatch.setattr(controller_survey, "OTHERS_WAIT_S", 0.1)
    monkeypatch.setattr(controller_hosts, "DESCRIBE_WAIT_S", 60.0)
    await hall.start_host("b")
    await hall.until(lambda hosts: len(hosts) == 3 and hosts[1].alive)
    here = await hall.open(host="a")
    hall.hanging.hang()
    begun = await hall.operate(Kind.DRAIN, "a")
    async with asyncio.timeout(30):
        operation = await hall.ended(begun.id)
    assert (operation.outcome, (await hall.describe(here.id)).host) == ("done", "b")
