"""Faults that a fleet's user can name, planted in a move or a park: what answers, and that nothing else was harmed."""

import pytest

from scenarios.duet import hall, spec
from worldline.errors import BadValue, NoCapacity, WorldlineError
from worldline.runtime import messages as wire
from worldline.schema.contract import Contract
from worldline.schema.receipt import Mode, Receipt
from worldline.testing.faults import FaultyTransport, LateWriter
from worldline.transport.faults import DELAY_S
from worldline.transport.named_faults import PLANTED
from worldline.transport.registry import open_transport

HARMLESS = {"delay", "reorder"}
SHORT = Contract(pause_bound_s=2.0, completion_deadline_s=3.0)


@pytest.fixture
async def stage(tmp_path):
    async with hall(tmp_path, "a", "b") as stage:
        yield stage


async def open_pair(stage, what=None):
    for session, host in (("walk", "a"), ("twin", "b")):
        await stage.open(session, host, what)
        await stage.play(session, 3)


async def assert_equal(stage):
    for session in ("walk", "twin"):
        await stage.play(session, 3)
    walk, twin = (stage.players[session] for session in ("walk", "twin"))
    assert [(block.block, block.digest, block.root) for block in walk.blocks] == [
        (block.block, block.digest, block.root) for block in twin.blocks
    ]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("mode", [Mode.FREEZE, Mode.PRECOPY])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("name", PLANTED)
async def test_a_fault_of_the_data_plane_costs_at_most_its_move(stage, name, transport, mode, seed):
    """1 the fault  2 moved or refused by name, never wrong bytes  3 nothing is kept  4 the next move succeeds."""
    await open_pair(stage, spec(contract=SHORT) if name == "stall" else None)
    held = (await stage.facts("b")).memory_used_bytes
    try:
        await stage.move("walk", "b", transport, mode, fault=f"{name},{seed}")
        back = "a"
        assert name in HARMLESS | {"duplicate"}
    except WorldlineError as refused:
        back = "b"
        assert name not in HARMLESS
        assert refused.code in {"CORRUPT", "LINK_CUT", "TIMEOUT", "DEADLINE", "MALFORMED", "BANDWIDTH"}
        assert (await stage.facts("b")).memory_used_bytes == held
    await assert_equal(stage)
    await stage.move("walk", back, transport, mode)
    await assert_equal(stage)


@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize(
    ("name", "errors"), [("enospc", NoCapacity), ("eio", WorldlineError), ("short-write", WorldlineError)]
)
async def test_a_fault_of_the_disk_costs_at_most_its_park(stage, name, errors, seed):
    """1 the disk fails under an image  2 refused, no file is left  3 the session plays on  4 the next park succeeds."""
    await open_pair(stage)
    images = stage.hosts["a"].config.image_dir
    for move, fault in (("m1", f"{name},{seed}"), ("m2", None)):
        park = wire.WriteImage(move, "walk", 1, f"walk.{move}.image", fault)
        if fault is None:
            assert (await stage.call("a", park, Receipt)).block == 6
        else:
            with pytest.raises(errors) as refused:
                await stage.call("a", park, Receipt)
            assert not isinstance(refused.value, BadValue)
            assert list(images.iterdir()) == []
            await assert_equal(stage)
    await stage.call("a", wire.Thaw("m2", "walk"))
    await assert_equal(stage)


async def test_a_park_without_its_fault_leaves_one_image(stage):
    await open_pair(stage)
    await stage.call("a", wire.WriteImage("m1", "walk", 1, "walk.m1.image"), Receipt)
    assert [entry.name for entry in stage.hosts["a"].config.image_dir.iterdir()] == ["walk.m1.image"]


async def test_a_text_that_is_no_fault_is_refused_by_hosts_too_before_anything_is_held(stage):
    await open_pair(stage)
    with pytest.raises(BadValue, match="kill-source"):
        await stage.move("walk", "b", "tcp", fault="earthquake")
    with pytest.raises(BadValue, match="short-write"):
        await stage.call("a", wire.WriteImage("m1", "walk", 1, "walk.m1.image", "flip"), Receipt)
    await assert_equal(stage)


@pytest.mark.parametrize("planted", [True, False], ids=["planted", "sound"])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
async def test_a_transfer_that_outlasts_its_deadline_is_told_and_nothing_is_freed_under_it(stage, transport, planted):
    """Row 7.  1 the deadline is shorter than the transfer  2 refused by name  3 the source's bytes are whole."""
    bound_s = DELAY_S / 4 if planted else 20.0
    await open_pair(stage, spec(contract=Contract(pause_bound_s=bound_s, completion_deadline_s=3 * bound_s)))
    if planted:
        with pytest.raises(WorldlineError) as refused:
            await stage.move("walk", "b", transport, Mode.FREEZE, fault="delay")
        assert refused.value.code in {"DEADLINE", "TIMEOUT"}
        assert [held.session for held in (await stage.facts("b")).sessions] == ["twin"]
    else:
        await stage.move("walk", "b", transport, Mode.FREEZE, fault="delay")
    await assert_equal(stage)


@pytest.mark.parametrize("planted", [True, False], ids=["planted", "sound"])
@pytest.mark.parametrize("transport", ["tcp", "memory"])
async def test_a_writer_of_a_failed_attempt_reaches_nobodys_memory(stage, transport, planted):
    """Row 29.  1 an attempt fails and its writer goes on  2 its memory is given back  3 another session opens there
    4 not one of its bytes changes.
    """
    await open_pair(stage)
    if planted:
        stage.transports["b"][transport] = FaultyTransport(open_transport(transport), LateWriter, seed=1)
        with pytest.raises(WorldlineError):
            await stage.move("walk", "b", transport, Mode.FREEZE)
    for session, host in (("next", "b"), ("next-twin", "a")):
        await stage.open(session, host, spec(seed=23))
    for _ in range(4):
        for session in ("next", "next-twin"):
            await stage.play(session, 2)
    ours, theirs = ([block.root for block in stage.players[session].blocks] for session in ("next", "next-twin"))
    assert ours == theirs
    await assert_equal(stage)
