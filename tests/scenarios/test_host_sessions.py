"""One host and its sessions: actions, watchers, failures, sabotage, park and resume."""

import asyncio

import pytest

from scenarios.duet import hall, spec
from worldline.errors import (
    AlreadyThere,
    BadValue,
    ByteOrderRefused,
    Conflict,
    Corrupt,
    LayoutRefused,
    Malformed,
    NoCapacity,
    PlanMismatch,
    Poisoned,
    StaleEpoch,
    StateLost,
    UnknownSession,
    UnknownWorld,
    VersionUnknown,
    WorldlineError,
    WrongSession,
)
from worldline.runtime import messages as wire
from worldline.runtime.frames import split_frames
from worldline.runtime.messages import Act, Attach, Rejected, SessionFacts, SessionFailed
from worldline.schema.receipt import Mode, Receipt


@pytest.fixture
async def stage(tmp_path):
    async with hall(tmp_path, "a", "b") as stage:
        yield stage


def roots(stage, session):
    return [(block.digest, block.root) for block in stage.players[session].blocks]


async def until(claim):
    async with asyncio.timeout(30):
        while not claim():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.005)


# ---- open, describe, close


async def test_an_opened_session_describes_itself_and_the_host_counts_its_memory(stage):
    opened = await stage.open("walk", "a", spec(seed=3))
    assert (opened.block, opened.number, opened.frame, opened.frozen, opened.poisoned) == (0, 0, 0, False, None)
    assert opened.actions == ["stay", "forward", "back", "left", "right"]
    assert opened.state_bytes > 0
    await stage.play("walk", 2)
    facts = await stage.facts("a")
    (seen,) = facts.sessions
    assert (seen.block, seen.number, seen.frame) == (2, 2, 6)
    assert seen.block_ms_median > 0
    assert facts.memory_used_bytes > 0
    assert facts.transports == ["memory", "shm", "tcp"]
    await stage.call("a", wire.CloseSession("walk", 1))
    assert (await stage.facts("a")).memory_used_bytes == 0
    assert await stage.call("a", wire.CloseSession("walk", 1)) is None
    with pytest.raises(UnknownSession):
        await stage.call("a", Attach("walk", 1), SessionFacts)


async def test_a_session_is_never_opened_over_another(stage):
    await stage.open("walk", "a")
    await stage.play("walk", 2)
    with pytest.raises(AlreadyThere):
        await stage.call("a", wire.OpenSession("walk", 1, spec(seed=9), True), SessionFacts)
    await stage.play("walk", 1)
    assert stage.players["walk"].blocks[-1].block == 3


@pytest.mark.parametrize(
    ("what", "error"),
    [
        (spec("nowhere"), UnknownWorld),
        (spec(colour="red"), BadValue),
        (spec("scenarios.odd_worlds:NumberedWorld"), LayoutRefused),
        (spec(width=1024), NoCapacity),
    ],
    ids=["unknown world", "unknown option", "indescribable state", "too large"],
)
async def test_what_cannot_be_opened_is_refused_and_leaves_nothing(tmp_path, what, error):
    async with hall(tmp_path, "a", memory_bytes=200_000) as stage:
        with pytest.raises(error):
            await stage.open("walk", "a", what)
        facts = await stage.facts("a")
        assert (facts.sessions, facts.memory_used_bytes) == ([], 0)
        await stage.open("walk", "a")
        await stage.play("walk", 1)


async def test_a_name_that_is_no_name_is_refused(stage):
    with pytest.raises(BadValue):
        await stage.open("../walk", "a")


async def test_two_sessions_of_one_seed_are_equal_and_of_two_seeds_are_not(stage):
    for session, seed in (("one", 1), ("two", 1), ("three", 2)):
        await stage.open(session, "a", spec(seed=seed))
        await stage.play(session, 3)
    assert roots(stage, "one") == roots(stage, "two")
    assert roots(stage, "one")[0] != roots(stage, "three")[0]


# ---- actions


async def test_blocks_are_numbered_by_the_actions_they_apply_and_frames_go_on(stage):
    await stage.open("walk", "a", raw=True)
    await stage.play("walk", 4)
    blocks = stage.players["walk"].blocks
    assert [(block.block, block.number, block.frame, block.frames) for block in blocks] == [
        (n, n, 3 * (n - 1), 3) for n in (1, 2, 3, 4)
    ]
    for block in blocks:
        assert len(list(split_frames(block.payload))) == 3
        assert len(block.raw) == 3 * block.height * block.width * 3


async def test_a_repeated_action_is_dropped_and_a_jump_is_rejected_with_the_number_that_is_due(stage):
    await stage.open("walk", "a")
    await stage.play("walk", 2)
    for number in (1, 2, 2, 5):
        stage.peers["a"].notify(Act("walk", 1, number, 0))
    await until(lambda: stage.notices)
    (rejected,) = stage.notices
    assert isinstance(rejected, Rejected)
    assert (rejected.number, rejected.expected, rejected.code) == (5, 3, "ACTION_GAP")
    assert (await stage.facts("a")).sessions[0].block == 2


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (Act("walk", 2, 1, 0), StaleEpoch.code),
        (Act("walk", 1, 1, 99), BadValue.code),
        (Act("walk", 1, 1, -1), BadValue.code),
        (Act("nobody", 1, 1, 0), UnknownSession.code),
    ],
    ids=["another epoch", "unknown action", "negative action", "unknown session"],
)
async def test_an_action_that_cannot_be_taken_is_rejected_and_the_session_plays_on(stage, action, code):
    await stage.open("walk", "a")
    stage.peers["a"].notify(action)
    await until(lambda: stage.notices)
    assert stage.notices[0].code == code
    await stage.play("walk", 2)


async def test_more_actions_than_the_queue_takes_are_rejected_and_can_be_sent_again(stage):
    await stage.open("walk", "a", witness=False)
    player = stage.players["walk"]
    for n in range(1200):
        player.actions.append(n % 5)
        stage.peers["a"].notify(Act("walk", 1, n + 1, n % 5))
    player.sent = 1200
    await until(lambda: any(notice.code == NoCapacity.code for notice in stage.notices))
    while len(player.blocks) < 1200:
        facts = await stage.attach("walk")
        await player.wait_for(min(1200, facts.number + 500))
    assert [block.number for block in player.blocks] == list(range(1, 1201))


# ---- watchers


async def test_a_watcher_that_lost_its_connection_gets_the_blocks_it_missed(stage):
    await stage.open("walk", "a")
    await stage.play("walk", 2)
    await stage.peers["a"].close()
    await stage.connect("a", stage.servers["a"].path)
    for number in (3, 4):
        stage.peers["a"].notify(Act("walk", 1, number, 0))
    await until(lambda: stage.hosts["a"].sessions["walk"].engine.position.block == 4)
    assert len(stage.players["walk"].blocks) == 2
    stage.players["walk"].actions += [0, 0]
    stage.players["walk"].sent = 4
    await stage.attach("walk")
    await stage.players["walk"].wait_for(4)
    await stage.play("walk", 1)


async def test_a_detached_watcher_gets_nothing_and_a_stale_one_is_refused(stage):
    await stage.open("walk", "a")
    await stage.play("walk", 1)
    with pytest.raises(StaleEpoch):
        await stage.call("a", Attach("walk", 7), SessionFacts)
    await stage.call("a", wire.Detach("walk"))
    stage.act("walk", 1)
    await until(lambda: stage.hosts["a"].sessions["walk"].engine.position.block == 2)
    assert (await stage.facts("a")).sessions[0].block == 2
    assert len(stage.players["walk"].blocks) == 1


# ---- failures and sabotage


async def test_an_engine_that_fails_inside_a_block_poisons_its_session_and_no_other(stage):
    await stage.open("walk", "a", spec(fail_at=3))
    await stage.open("bystander", "a")
    await stage.play("walk", 2)
    stage.act("walk", 0)
    await until(lambda: stage.notices)
    failure = stage.notices[0]
    assert isinstance(failure, SessionFailed)
    assert (failure.session, failure.epoch) == ("walk", 1)
    assert "block 3" in failure.sentence
    facts = {found.session: found for found in (await stage.facts("a")).sessions}
    assert facts["walk"].poisoned is not None and facts["walk"].block == 2
    assert facts["bystander"].poisoned is None
    endpoint = wire.Endpoint("tcp", "127.0.0.1:1", bytes(32))
    for verb, answer in (
        (Attach("walk", 1), SessionFacts),
        (wire.WriteImage("p1", "walk", 1, "walk-1"), Receipt),
        (wire.FlipBit("walk", 1), None),
    ):
        with pytest.raises(Poisoned):
            await stage.call("a", verb, answer)
    with pytest.raises(WorldlineError):
        await stage.call("a", wire.RunSource("m1", "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    await stage.play("bystander", 2)
    await stage.call("a", wire.CloseSession("walk", 1))
    assert [found.session for found in (await stage.facts("a")).sessions] == ["bystander"]


async def test_a_session_that_fails_during_its_move_is_not_moved(stage):
    await stage.open("walk", "a", spec(fail_at=4, block_period_ms=20.0))
    await stage.play("walk", 2)
    move, endpoint = await stage.prepare("walk", "b", "tcp", Mode.PRECOPY)
    stage.act("walk", 0)
    stage.act("walk", 0)
    await asyncio.sleep(0.03)  # the failing block is in the making
    with pytest.raises(Poisoned):
        await stage.call("a", wire.RunSource(move, "walk", 1, Mode.PRECOPY, endpoint), wire.SourceSealed)
        await until(lambda: stage.hosts["a"].sessions["walk"].poisoned)
        raise Poisoned("frozen before it failed")
    await stage.call("b", wire.Discard(move))
    assert (await stage.facts("b")).memory_used_bytes == 0


@pytest.mark.parametrize("seed", range(12))
async def test_one_flipped_bit_anywhere_shows_in_the_root_and_in_all_that_follows(stage, seed):
    for session in ("walk", "twin"):
        await stage.open(session, "a")
        await stage.play(session, 3)
    await stage.call("a", wire.FlipBit("walk", 982_451_653 * (seed + 1)))
    for session in ("walk", "twin"):
        await stage.play(session, 2)
    assert roots(stage, "walk")[:3] == roots(stage, "twin")[:3]
    assert roots(stage, "walk")[3][1] != roots(stage, "twin")[3][1]
    assert roots(stage, "walk")[4] != roots(stage, "twin")[4]


# ---- park and resume


async def park(stage, session, host, move="p1", image="walk-1.image"):
    _, epoch, *_ = stage.owners[session]
    return await stage.call(host, wire.WriteImage(move, session, epoch, image), Receipt)


def load(stage, move="r1", session="walk", epoch=2, image="walk-1.image", what=None):
    return wire.LoadImage(move, session, epoch, what or spec(), True, image, None)


async def resume(stage, host, **change):
    order = load(stage, **change)
    receipt = await stage.call(host, order, Receipt)
    facts = await stage.call(host, wire.Activate(order.move, order.epoch + 1), SessionFacts)
    stage.owners["walk"] = (host, order.epoch + 1, order.spec, True)
    return receipt, facts


async def parked(stage):
    """A session parked from a at block 3, and its twin on b."""
    for session, host in (("walk", "a"), ("twin", "b")):
        await stage.open(session, host)
        await stage.play(session, 3)
    written = await park(stage, "walk", "a")
    await stage.call("a", wire.Retire("p1", "walk", 1))
    return written


async def assert_like_its_twin(stage, blocks=3):
    for session in ("walk", "twin"):
        await stage.play(session, blocks)
    assert roots(stage, "walk") == roots(stage, "twin")


async def test_a_parked_session_resumes_on_another_host_and_goes_on_like_its_twin(stage):
    receipt = await parked(stage)
    assert (receipt.mode, receipt.source, receipt.target, receipt.epoch) == (Mode.PARK, "a", "walk-1.image", 2)
    assert receipt.source_root == receipt.target_root == stage.players["walk"].blocks[-1].root
    assert (await stage.facts("a")).memory_used_bytes == 0
    back, facts = await resume(stage, "b")
    assert (back.mode, back.source, back.target, back.epoch) == (Mode.RESUME, "walk-1.image", "b", 3)
    assert back.target_root == receipt.source_root
    assert (facts.block, facts.number, facts.epoch) == (3, 3, 3)
    await stage.attach("walk")
    await assert_like_its_twin(stage)


async def test_a_park_that_is_called_off_plays_on_and_leaves_no_image(stage):
    for session in ("walk", "twin"):
        await stage.open(session, "a")
        await stage.play(session, 3)
    await park(stage, "walk", "a")
    assert {found.session: found.frozen for found in (await stage.facts("a")).sessions}["walk"]
    directory = stage.hosts["a"].config.image_dir
    assert [image.name for image in directory.iterdir()] == ["walk-1.image"]
    await stage.call("a", wire.Thaw("p1", "walk"))
    await stage.call("a", wire.Thaw("p1", "walk"))
    assert list(directory.iterdir()) == []
    await assert_like_its_twin(stage)


async def test_an_image_that_cannot_be_written_refuses_the_park_and_the_session_plays_on(stage):
    for session in ("walk", "twin"):
        await stage.open(session, "a")
        await stage.play(session, 3)
    with pytest.raises(BadValue):
        await park(stage, "walk", "a", image="../walk.image")
    directory = stage.hosts["a"].config.image_dir
    (directory / "taken.image").mkdir()
    with pytest.raises(WorldlineError):
        await park(stage, "walk", "a", image="taken.image")
    await assert_like_its_twin(stage)


async def test_a_resume_that_is_discarded_leaves_nothing_and_can_be_tried_again(stage):
    await parked(stage)
    before = (await stage.facts("b")).memory_used_bytes
    await stage.call("b", load(stage, "r1"), Receipt)
    await stage.call("b", wire.Discard("r1"))
    await stage.call("b", wire.Discard("r1"))
    assert (await stage.facts("b")).memory_used_bytes == before
    with pytest.raises(WorldlineError):
        await stage.call("b", wire.Activate("r1", 3), SessionFacts)
    await resume(stage, "b", move="r2")
    await stage.attach("walk")
    await assert_like_its_twin(stage)


def spoil(path, offset, data):
    octets = bytearray(path.read_bytes())
    octets[offset : offset + len(data)] = data
    path.write_bytes(octets)


@pytest.mark.parametrize(
    ("harm", "errors"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-4096]), (Malformed, Corrupt)),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), (Malformed, Corrupt)),
        (lambda path: spoil(path, len(path.read_bytes()) - 4096, b"\xff\xfe"), (Corrupt, Malformed)),
        (lambda path: spoil(path, 12, b"\x63"), (VersionUnknown, Corrupt)),
        (lambda path: spoil(path, 8, b"\x01\x02\x03\x04"), (ByteOrderRefused,)),
        (lambda path: path.unlink(), (StateLost,)),
    ],
    ids=["cut", "longer", "changed", "newer", "big-endian", "gone"],
)
async def test_an_image_that_is_not_what_was_written_is_refused_and_nothing_is_installed(stage, harm, errors):
    await parked(stage)
    path = stage.hosts["b"].config.image_dir / "walk-1.image"
    whole = path.read_bytes()
    before = (await stage.facts("b")).memory_used_bytes
    harm(path)
    with pytest.raises(errors):
        await stage.call("b", load(stage), Receipt)
    facts = await stage.facts("b")
    assert facts.memory_used_bytes == before
    assert [found.session for found in facts.sessions] == ["twin"]
    path.write_bytes(whole)
    await resume(stage, "b", move="r2")
    await stage.attach("walk")
    await assert_like_its_twin(stage)


async def test_an_image_of_another_session_park_or_plan_is_refused(stage):
    await parked(stage)
    for change, error in (
        ({"session": "other"}, WrongSession),
        ({"epoch": 4}, StaleEpoch),
        ({"what": spec(flavour="other")}, PlanMismatch),
    ):
        with pytest.raises(error):
            await stage.call("b", load(stage, move=f"r-{error.__name__.lower()}", **change), Receipt)
    await resume(stage, "b")
    await stage.attach("walk")
    await assert_like_its_twin(stage)


async def test_a_session_is_not_parked_while_it_moves(stage):
    await stage.open("walk", "a")
    await stage.play("walk", 1)
    move, endpoint = await stage.prepare("walk", "b", "tcp", Mode.FREEZE)
    await stage.call("a", wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    with pytest.raises(Conflict):
        await park(stage, "walk", "a")
    await stage.call("a", wire.Thaw(move, "walk"))
    await park(stage, "walk", "a")
    await stage.call("a", wire.Thaw("p1", "walk"))
    await stage.play("walk", 1)
