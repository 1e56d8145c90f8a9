"""Faults that other systems met (docs/faults.md), each planted in a move: what answers, and that nothing was harmed.

Every test runs twice, with its fault and without: only the plant makes the difference.
"""

import threading

import pytest

from scenarios.duet import hall, spec
from scenarios.odd_worlds import LingeringWorld
from worldline.errors import Corrupt, LayoutRefused, WorldlineError
from worldline.runtime.messages import Rejected
from worldline.schema.receipt import Mode
from worldline.testing.faults import Blank, Drop, FaultyTransport, Flip, Lie
from worldline.transport.registry import open_transport

ODD = "scenarios.odd_worlds"
TINY = "worldline.testing.tiny:TinyWorld"
planted = pytest.mark.parametrize("planted", [True, False], ids=["planted", "sound"])


@pytest.fixture
async def stage(tmp_path):
    async with hall(tmp_path, "a", "b") as stage:
        yield stage


async def open_pair(stage, what=None):
    """A session on a, its twin on b: equal, and a bystander of every move to b."""
    for session, host in (("walk", "a"), ("twin", "b")):
        await stage.open(session, host, what)
        await stage.play(session, 3)


async def assert_equal(stage):
    """Both play on by the same actions: every frame and the whole state are equal, block after block."""
    for session in ("walk", "twin"):
        await stage.play(session, 3)
    walk, twin = (stage.players[session] for session in ("walk", "twin"))
    assert [(block.block, block.digest, block.root) for block in walk.blocks] == [
        (block.block, block.digest, block.root) for block in twin.blocks
    ]


async def assert_refused_or_moved(stage, planted, errors, mode=Mode.FREEZE):
    """With its fault the move is refused: the session is where it was, and the target holds what it held. Without, it
    has moved. Either way it goes on like its twin.
    """
    held = (await stage.facts("b")).memory_used_bytes
    if planted:
        with pytest.raises(errors):
            await stage.move("walk", "b", "tcp", mode)
        assert (await stage.facts("b")).memory_used_bytes == held
    else:
        await stage.move("walk", "b", "tcp", mode)
    assert sorted(found.session for found in (await stage.facts("b")).sessions) == ["twin"] + ["walk"] * (not planted)
    await assert_equal(stage)


@planted
@pytest.mark.parametrize("mode", [Mode.FREEZE, Mode.PRECOPY])
@pytest.mark.parametrize(
    "fault", [Lie, Blank, Drop, Flip], ids=["1-withheld", "6-nothing-written", "8-one-dropped", "9-one-flipped"]
)
async def test_a_transfer_that_reports_success_is_believed_by_its_bytes_alone(stage, fault, mode, planted):
    """1 a tenant lived at the target, and ended  2 the session's transfer into that place goes wrong  3 refused."""
    await stage.open("tenant", "b", spec(seed=9))
    await stage.play("tenant", 2)
    await stage.hosts["b"].forget("tenant")
    await open_pair(stage)
    for transports in stage.transports.values() if planted else ():
        transports["tcp"] = FaultyTransport(open_transport("tcp"), fault, seed=7)
    await assert_refused_or_moved(stage, planted, Corrupt, mode)
    for transports in stage.transports.values():
        transports["tcp"] = open_transport("tcp")
    await stage.move("walk", "b" if planted else "a", "tcp")
    await assert_equal(stage)


@planted
@pytest.mark.parametrize(
    ("world", "errors"),
    [
        ("FlatteningWorld", LayoutRefused),
        ("UnsharingWorld", LayoutRefused),
        ("ForgetfulWorld", WorldlineError),
        ("WastefulWorld", Corrupt),
    ],
    ids=["3-strides", "4-alias", "10-not-used", "12-generator-consumed"],
)
async def test_an_installation_is_believed_by_the_state_read_back_alone(stage, world, errors, planted):
    await open_pair(stage, spec(f"{ODD}:{world}" if planted else TINY))
    await assert_refused_or_moved(stage, planted, errors)


@planted
async def test_a_writer_that_the_freeze_does_not_stop_costs_the_move_and_a_retry_sends_everything(stage, planted):
    """Row 18."""
    await open_pair(stage)
    if planted:
        with pytest.raises(Corrupt):
            await stage.move("walk", "b", "tcp", Mode.FREEZE, fault="late-write")
        await assert_equal(stage)
    _, seal = await stage.move("walk", "b", "tcp", Mode.FREEZE)
    assert seal.bytes_moved >= (await stage.facts("b")).sessions[-1].state_bytes
    await assert_equal(stage)


@planted
async def test_a_session_that_ended_leaves_no_byte_and_no_frame_in_the_next_one(stage, planted):
    """Row 19.  1 A ends, a thread of its engine does not  2 B opens in its place  3 B is like its twin elsewhere."""
    LingeringWorld.ended.clear()
    await stage.open("before", "a", spec(f"{ODD}:LingeringWorld" if planted else TINY))
    await stage.play("before", 2)
    await stage.hosts["a"].forget("before")
    try:
        await open_pair(stage)
        stage.act("before", 1)
        await assert_equal(stage)
    finally:
        LingeringWorld.ended.set()
    assert len(stage.players["before"].blocks) == 2
    assert [notice.code for notice in stage.notices if isinstance(notice, Rejected)] == ["UNKNOWN_SESSION"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("engine-before")]
