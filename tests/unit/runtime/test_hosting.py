"""One session's thread and boundaries, without a host around it."""

import asyncio
import sys
import threading

import pytest

from worldline.clock import SystemClock
from worldline.errors import Poisoned, SessionClosed
from worldline.runtime.host_engine import Engine
from worldline.runtime.host_worlds import Built
from worldline.runtime.hosting import EngineThread, HostedSession, Identity
from worldline.runtime.messages import Act, SessionSpec
from worldline.schema.contract import Contract
from worldline.snapshot.arena import Arena
from worldline.snapshot.memory import arena_capacity
from worldline.testing.tiny import TinyWorld
from worldline.worlds.plan import plan_of


def make_session(on_failed=None, **options):
    world = TinyWorld(options)
    spec = SessionSpec("tiny", 1, options, Contract())
    engine = Engine.open(world, 1, Arena.create(arena_capacity(world.state_bytes_max), "walk"), SystemClock())
    built = Built(world, plan_of(TinyWorld({})))
    identity = Identity("walk", 1, spec, witness=True)
    session = HostedSession(identity, built, engine, EngineThread("walk"), on_failed or (lambda failure: None))
    session.start()
    return session


@pytest.fixture
async def session():
    session = make_session()
    yield session
    await session.close()


async def until(claim):
    async with asyncio.timeout(30):
        while not claim():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.002)


def act(session, *numbers):
    return [session.act(Act("walk", 1, number, 0)) for number in numbers]


async def test_a_freeze_comes_at_a_boundary_also_when_no_action_waits_and_holds_until_it_is_released(session):
    await session.hold("m1")
    act(session, 1, 2)
    await asyncio.sleep(0.05)
    assert (session.engine.position.block, session.facts().frozen) == (0, True)
    session.release("another")
    await asyncio.sleep(0.02)
    assert session.engine.position.block == 0
    session.release("m1")
    session.release("m1")
    await until(lambda: session.engine.position.block == 2)
    assert not session.facts().frozen


async def test_a_cut_between_two_blocks_is_the_state_after_the_last_one(session):
    act(session, *range(1, 30))
    for _ in range(5):
        await session.hold("m1")
        block = session.engine.position.block
        cut = await session.do(lambda engine: engine.cut())
        assert (cut.manifest.block, cut.number) == (block, block)
        session.release("m1")
    await until(lambda: session.engine.position.block == 29)


async def test_two_who_want_the_boundary_get_it_one_after_the_other(session):
    order = []

    async def visit(name):
        async with session.at_boundary():
            order.append(f"{name} in")
            await asyncio.sleep(0.01)
            order.append(f"{name} out")

    await asyncio.gather(visit("one"), visit("two"))
    assert order == ["one in", "one out", "two in", "two out"]


async def test_a_closed_session_has_no_thread_and_no_arena_and_gives_nothing_away():
    session = make_session()
    arena = session.engine.arena
    act(session, 1)
    await until(lambda: session.engine.position.block == 1)
    await session.close()
    await session.close()
    assert arena.closed
    assert not session._recent, "its pictures: ended moves, and their sessions with them, are remembered by the hundred"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("engine-walk")]
    with pytest.raises(SessionClosed):
        await session.hold("m1")


async def test_a_frozen_session_can_be_closed():
    session = make_session()
    await session.hold("m1")
    await session.close()
    assert session.engine.arena.closed


async def test_a_failing_engine_is_told_once_and_gives_no_state_away():
    told = []
    session = make_session(told.append, fail_at=2)
    act(session, 1, 2, 3)
    await until(lambda: told)
    assert len(told) == 1
    assert session.facts().block == 1
    assert [rejected.code for rejected in act(session, 4)] == ["POISONED"]
    with pytest.raises(Poisoned):
        await session.hold("m1")
    await session.close()


async def test_work_in_the_engine_thread_is_waited_for_even_when_its_caller_is_cancelled():
    thread = EngineThread("x")
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work():
        begun.set()
        go_on.wait(10)
        ended.set()

    task = asyncio.create_task(thread.do(work))
    await until(begun.is_set)
    task.cancel()
    await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.sleep(0.02)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    thread.join()


async def test_an_engine_that_asks_for_the_end_of_the_process_has_failed_and_ends_nothing():
    thread = EngineThread("walk")
    with pytest.raises(RuntimeError, match="asked for the process to end"):
        await thread.do(sys.exit)
    assert await thread.do(lambda: "alive") == "alive"
    thread.join()
