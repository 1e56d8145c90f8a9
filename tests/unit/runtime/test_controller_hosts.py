"""A host that is connected and does not answer: nothing is begun with it, nobody waits for it, and nothing stays of
what was asked of it meanwhile.
"""

import asyncio

import pytest

from hall import Hall
from worldline.control.placement import Kind
from worldline.errors import HostGone
from worldline.runtime import controller_hosts
from worldline.runtime import messages as wire
from worldline.runtime.fleet_messages import PrewarmRequest
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
    async with asyncio.timeout(60):
        while message not in hall.hanging.handled:  # noqa: ASYNC110 - another process would be watched so
            await asyncio.sleep(0.01)


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
    async with asyncio.timeout(60):
        while (operation := await hall.operation(begun.id)).outcome is None:  # noqa: ASYNC110 - as a person would look
            await asyncio.sleep(0.01)
    assert operation.outcome == "partial"
    assert {(left.session, left.host) for left in operation.left} == {(there.id, "z")}
