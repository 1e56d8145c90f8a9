"""Moves between hosts in one process: what holds after a success and after each failure."""

import asyncio
import threading
from pathlib import Path

import pytest

from scenarios.duet import hall, open_files, spec
from worldline.clock import SystemClock
from worldline.errors import (
    AlreadyThere,
    BadValue,
    Corrupt,
    DeadlineMissed,
    HostGone,
    Internal,
    LinkCut,
    MoveInProgress,
    NoCapacity,
    PlanMismatch,
    StaleEpoch,
    TimedOut,
    UnknownMove,
    UnknownSession,
    WorldlineError,
)
from worldline.runtime import messages as wire
from worldline.runtime.messages import SessionFacts
from worldline.schema.contract import Contract, Tier
from worldline.schema.plan import Qualification
from worldline.schema.receipt import Mode, Receipt

TRANSPORTS = ["tcp", "shm", "memory"]
MODES = [Mode.FREEZE, Mode.PRECOPY]
ODD = "scenarios.odd_worlds"


@pytest.fixture
async def stage(tmp_path):
    async with hall(tmp_path, "a", "b") as stage:
        yield stage


async def open_pair(stage, what=None, blocks=3):
    """A session on a, its twin on b, some blocks of each."""
    for session, host in (("walk", "a"), ("twin", "b")):
        await stage.open(session, host, what)
        await stage.play(session, blocks)


def seen(stage, session):
    return [
        (block.block, block.number, block.frame, block.digest, block.root) for block in stage.players[session].blocks
    ]


async def assert_like_its_twin(stage, blocks=3):
    """Some blocks more; then the twin is given the same actions, and frames and whole state are equal, block after
    block.
    """
    await stage.play("walk", blocks)
    twin, walk = stage.players["twin"], stage.players["walk"]
    for action in walk.actions[twin.sent :]:
        stage.act("twin", action)
    await twin.wait_for(walk.sent)
    assert len(walk.blocks) == walk.sent
    assert seen(stage, "walk") == seen(stage, "twin")
    assert walk.blocks[-1].root is not None


# ---- success


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_declaration_that_is_not_kept_costs_no_exactness(stage, transport):
    """1 a first move's cuts know the state  2 a block rewrites a `Static` entry  3 the freeze must send it again."""
    for session, host in (("walk", "a"), ("twin", "b")):
        await stage.open(session, host, spec(f"{ODD}:RewritingWorld"), witness=False)
        await stage.play(session, 2)
    with pytest.raises(Corrupt):
        await stage.move("walk", "b", transport, Mode.FREEZE, fault="flip")
    await stage.play("walk", 2)
    await stage.move("walk", "b", transport, Mode.FREEZE)
    await stage.play("walk", 2)
    await stage.play("twin", 4)
    assert seen(stage, "walk") == seen(stage, "twin"), "the tiny world's picture shows every bit of its state"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_moved_session_goes_on_like_its_twin(stage, transport, mode):
    await open_pair(stage)
    receipt, seal = await stage.move("walk", "b", transport, mode)
    assert (receipt.source, receipt.target, receipt.made_by) == ("a", "b", "b")
    assert receipt.block == seal.block == 3
    assert receipt.bytes_moved == (0 if transport == "shm" else seal.bytes_moved)
    await assert_like_its_twin(stage)
    await stage.move("walk", "a", transport, mode)
    await assert_like_its_twin(stage)


@pytest.mark.parametrize("codec", ["zeros", "window", "exponents"])
async def test_a_session_that_moved_encoded_goes_on_like_its_twin_and_less_crossed(stage, codec):
    await open_pair(stage)
    receipt, seal = await stage.move("walk", "b", "tcp", Mode.FREEZE, codec=codec)
    assert seal.bytes_moved < receipt.bytes_moved
    await assert_like_its_twin(stage)


async def test_a_source_that_needs_grants_sends_nothing_without_one_and_is_done_with_them(stage):
    await open_pair(stage, spec(contract=Contract(pause_bound_s=2.0, completion_deadline_s=2.0)))
    move, endpoint = await stage.prepare("walk", "b", "tcp", Mode.FREEZE)
    run = wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint, grant_bytes=4 << 20)
    with pytest.raises((DeadlineMissed, TimedOut)):  # of the attempt, or of its post
        await stage.call("a", run, wire.SourceSealed)
    await stage.call("b", wire.Discard(move))
    await assert_like_its_twin(stage)
    move, endpoint = await stage.prepare("walk", "b", "tcp", Mode.FREEZE)
    run = wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint, grant_bytes=4 << 20)
    sealing = asyncio.create_task(stage.call("a", run, wire.SourceSealed))
    while not sealing.done():
        stage.peers["a"].notify(wire.Grant(move, 1e9, 1.0))
        await asyncio.sleep(0.01)
    assert sealing.result().bytes_moved > 0
    await stage.call("b", wire.AwaitPrepared(move), Receipt)
    await stage.commit("walk", move, "b", "tcp")
    await assert_like_its_twin(stage)


async def test_a_codec_over_memory_that_is_handed_over_is_refused(stage):
    await open_pair(stage)
    with pytest.raises(BadValue, match="only tcp encodes"):
        await stage.move("walk", "b", "shm", codec="window")
    await assert_like_its_twin(stage)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_session_that_plays_through_its_move_loses_no_action_and_shows_no_block_twice(stage, transport):
    await open_pair(stage, spec(block_period_ms=3.0))
    playing = asyncio.create_task(_hurry(stage, "walk", 150))
    for target in ("b", "a", "b"):
        await stage.move("walk", target, transport, Mode.PRECOPY)
    await playing
    await stage.players["walk"].wait_for(stage.players["walk"].sent)
    await assert_like_its_twin(stage)
    assert [block.number for block in stage.players["walk"].blocks] == list(range(1, stage.players["walk"].sent + 1))


async def _hurry(stage, session, count):
    """Actions without waiting for blocks; sent to whoever owns the session, who drops or rejects what it may not
    take.
    """
    for n in range(count):
        stage.act(session, n % 5)
        await asyncio.sleep(0.002)


async def test_actions_that_wait_at_a_frozen_source_are_answered_by_the_new_owner(stage):
    await open_pair(stage)
    move, endpoint = await stage.prepare("walk", "b", "tcp", Mode.FREEZE)
    await stage.call("a", wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    for action in (1, 2, 3):
        stage.act("walk", action)
    await stage.call("b", wire.AwaitPrepared(move), wire.Receipt)
    assert len(stage.players["walk"].blocks) == 3
    await stage.commit("walk", move, "b", "tcp")
    await stage.players["walk"].wait_for(6)
    await assert_like_its_twin(stage)


async def test_moves_keep_to_their_processors_while_sessions_play_and_not_while_one_is_frozen(stage):
    """1 nobody plays  2 both hosts play  3 the walk is frozen until the controller's word  4 both play on."""
    a, b = (stage.hosts[name] for name in "ab")
    assert a.moves_are_urgent() and b.moves_are_urgent()
    await open_pair(stage)
    assert not a.moves_are_urgent() and not b.moves_are_urgent()
    move, endpoint = await stage.prepare("walk", "b", "tcp")
    assert not b.moves_are_urgent()
    await stage.call("a", wire.RunSource(move, "walk", 1, Mode.PRECOPY, endpoint), wire.SourceSealed)
    await stage.call("b", wire.AwaitPrepared(move), Receipt)
    assert a.moves_are_urgent() and b.moves_are_urgent()
    await stage.commit("walk", move, "b", "tcp")
    await stage.open("other", "a")
    assert not a.moves_are_urgent() and not b.moves_are_urgent()


async def test_the_pages_of_an_arena_are_in_place_before_the_first_byte_comes(stage):
    await stage.open("walk", "a")
    move, _ = await stage.prepare("walk", "b", "tcp")
    arena = stage.hosts["b"]._moves._arriving(move).arrival._arena
    (facts,) = (await stage.facts("a")).sessions
    async with asyncio.timeout(60):
        while arena.resident_bytes() < facts.state_bytes:  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.001)
    await stage.call("b", wire.Discard(move))
    assert arena.closed


async def test_the_pause_of_an_idle_session_begins_with_its_move(stage):
    """1 a session plays and stands idle  2 it is moved  3 its pause counts from the move, not from its last block."""
    await open_pair(stage)
    asked_at_s = SystemClock().monotonic_s()
    _, seal = await stage.move("walk", "b", "tcp", Mode.FREEZE)
    assert seal.frozen_at_s >= asked_at_s


async def test_a_thawed_session_goes_on_and_its_next_move_succeeds(stage):
    await open_pair(stage)
    move, endpoint = await stage.prepare("walk", "b", "tcp", Mode.FREEZE)
    await stage.call("a", wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    await stage.call("b", wire.AwaitPrepared(move), wire.Receipt)
    await stage.call("b", wire.Discard(move))
    await stage.call("a", wire.Thaw(move, "walk"))
    await assert_like_its_twin(stage)
    await stage.move("walk", "b", "tcp")
    await assert_like_its_twin(stage)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
async def test_a_session_that_comes_back_plays_on_under_a_later_epoch_and_old_orders_are_without_effect(
    stage, transport
):
    """1 sealed, with actions that wait  2 the target ends before it plays  3 back, two epochs on  4 a late retire"""
    await open_pair(stage)
    move, endpoint = await stage.prepare("walk", "b", transport, Mode.FREEZE)
    await stage.call("a", wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    await stage.call("b", wire.AwaitPrepared(move), wire.Receipt)
    for action in (1, 2, 3):
        stage.act("walk", action)
    await stage.call("b", wire.Discard(move))
    for _ in range(2):
        await stage.call("a", wire.Thaw(move, "walk", 3))
    with pytest.raises(StaleEpoch):
        await stage.attach("walk")
    stage.owners["walk"] = ("a", 3, *stage.owners["walk"][2:])
    await stage.attach("walk")
    await stage.players["walk"].wait_for(6)
    assert [block.epoch for block in stage.players["walk"].blocks] == [1, 1, 1, 3, 3, 3]
    await stage.call("a", wire.Retire(move, "walk", 1))
    await assert_like_its_twin(stage)
    await stage.move("walk", "b", transport)
    await assert_like_its_twin(stage)
    with pytest.raises(UnknownSession):
        await stage.call("a", wire.Thaw(move, "walk", 3))


async def test_a_session_that_was_not_frozen_by_a_move_does_not_come_back_by_it(stage):
    await open_pair(stage)
    with pytest.raises(StaleEpoch):
        await stage.call("a", wire.Thaw("m9", "walk", 3))
    await assert_like_its_twin(stage)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
async def test_every_word_of_the_controller_may_be_said_twice(stage, transport):
    await open_pair(stage)
    move, endpoint = await stage.prepare("walk", "b", transport, Mode.FREEZE)
    run = wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint)
    seals = [await stage.call("a", run, wire.SourceSealed) for _ in range(2)]
    receipts = [await stage.call("b", wire.AwaitPrepared(move), wire.Receipt) for _ in range(2)]
    assert seals[0] == seals[1] and receipts[0] == receipts[1]
    retire, activate = wire.Retire(move, "walk", 1), wire.Activate(move, 2)
    order = [("a", retire, None), ("b", activate, SessionFacts)]
    for host, word, answer in order if transport == "shm" else order[::-1]:
        first = await stage.call(host, word, answer)
        assert await stage.call(host, word, answer) == first
    assert await stage.call("b", wire.Discard(move)) is None
    assert await stage.call("a", wire.Thaw(move, "walk")) is None
    stage.owners["walk"] = ("b", 2, *stage.owners["walk"][2:])
    await stage.attach("walk")
    await assert_like_its_twin(stage)
    assert [found.session for found in (await stage.facts("a")).sessions] == []


async def test_a_sealed_session_stays_frozen_when_controller_and_link_are_lost_until_the_word_comes(stage):
    await open_pair(stage)
    move, endpoint = await stage.prepare("walk", "b", "tcp", Mode.FREEZE)
    await stage.call("a", wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    await stage.call("b", wire.AwaitPrepared(move), wire.Receipt)
    await stage.peers["a"].close()
    await stage.peers["b"].close()
    for name in ("a", "b"):
        await stage.connect(name, stage.servers[name].path)
    (facts,) = (await stage.facts("a")).sessions
    assert facts.frozen
    stage.act("walk", 1)
    assert (await stage.facts("a")).sessions[0].block == 3
    await stage.commit("walk", move, "b", "tcp")
    await stage.attach("twin")
    await assert_like_its_twin(stage)


async def test_a_t1_contract_moves_to_another_plan_that_was_qualified_and_the_receipt_says_so(stage):
    t1 = Contract(Tier.T1, 20.0, 60.0, readout_psnr_db_min=40.0)
    what, elsewhere = spec(contract=t1), spec(contract=t1, flavour="other")
    await stage.open("walk", "a", what)
    await stage.play("walk", 2)
    (facts,) = (await stage.facts("a")).sessions
    other = await stage.call("b", wire.PlanOf(elsewhere), wire.Plan)
    good = Qualification("q1", facts.plan.digest, other.digest, "tiny", 60, 61.0, 48.0, 1)
    poor = Qualification("q2", facts.plan.digest, other.digest, "tiny", 60, 61.0, 39.0, 1)
    for qualification, why in ((None, "flavour"), (poor, "39.0 dB")):
        with pytest.raises(PlanMismatch, match=why):
            await stage.prepare("walk", "b", "tcp", spec=elsewhere, qualification=qualification)
    receipt, _ = await stage.move("walk", "b", "tcp", spec=elsewhere, qualification=good)
    assert receipt.qualification == "q1"
    assert receipt.source_plan != receipt.target_plan


# ---- refusals: the source plays on, the target is empty


async def assert_unharmed(stage):
    """The source plays on like its twin, the target has nothing of it, and a second try succeeds."""
    await assert_like_its_twin(stage)
    assert stage.owners["walk"][:2] == ("a", 1)
    facts = await stage.facts("b")
    assert [found.session for found in facts.sessions] == ["twin"]
    assert facts.memory_used_bytes == (await stage.facts("a")).memory_used_bytes
    await stage.move("walk", "b", "tcp")
    await assert_like_its_twin(stage)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("fault", ["flip", "lie"])
async def test_wrong_bytes_at_the_target_are_refused_and_the_source_is_unharmed(stage, transport, mode, fault):
    await open_pair(stage)
    with pytest.raises(Corrupt):
        await stage.move("walk", "b", transport, mode, fault)
    await assert_unharmed(stage)


@pytest.mark.parametrize(("transport", "mode"), [("tcp", Mode.FREEZE), ("shm", Mode.FREEZE), ("shm", Mode.PRECOPY)])
async def test_a_write_that_the_freeze_does_not_stop_is_refused_and_the_source_is_unharmed(stage, transport, mode):
    await open_pair(stage)
    with pytest.raises(Corrupt):
        await stage.move("walk", "b", transport, mode, "late-write")
    await assert_unharmed(stage)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
async def test_a_link_cut_in_the_middle_is_refused_and_the_source_is_unharmed(stage, transport):
    await open_pair(stage)
    with pytest.raises(LinkCut):
        await stage.move("walk", "b", transport, Mode.FREEZE, "cut")
    await assert_unharmed(stage)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("world", ["ForgetfulWorld", "WastefulWorld"])
async def test_an_importer_that_changes_the_state_is_refused_before_the_commit(stage, transport, world):
    await open_pair(stage, spec(f"{ODD}:{world}"))
    with pytest.raises(WorldlineError, match="verified"):
        await stage.move("walk", "b", transport, Mode.FREEZE)
    await assert_like_its_twin(stage)
    assert [found.session for found in (await stage.facts("b")).sessions] == ["twin"]


@pytest.mark.parametrize("transport", ["tcp", "shm"])
async def test_an_importer_that_raises_is_refused_before_the_commit(stage, transport, caplog):
    await open_pair(stage, spec(f"{ODD}:BrokenWorld"))
    with pytest.raises(Internal, match="ZeroDivisionError"):
        await stage.move("walk", "b", transport, Mode.FREEZE)
    await assert_like_its_twin(stage)
    assert "ZeroDivisionError" in caplog.text


async def test_another_plan_is_refused_before_a_byte_moves_and_the_differing_fact_is_named(stage):
    await open_pair(stage)
    with pytest.raises(PlanMismatch, match="flavour"):
        await stage.prepare("walk", "b", "tcp", spec=spec(flavour="other"))
    await assert_unharmed(stage)


async def test_a_target_with_too_little_memory_refuses_before_an_arena_is_made(tmp_path):
    async with hall(tmp_path, "a", "b", memory_bytes=200_000) as stage:
        await open_pair(stage)
        with pytest.raises(NoCapacity):
            for _ in range(3):
                await stage.prepare("walk", "b", "tcp")
                stage.owners["walk2"] = stage.owners["walk"]
        assert len((await stage.facts("b")).sessions) == 1


async def test_a_session_larger_than_its_world_announced_is_refused(stage):
    await open_pair(stage)
    with pytest.raises(NoCapacity):
        await stage.prepare("walk", "b", "tcp", state_bytes=10**9)
    await assert_unharmed(stage)


async def test_a_move_to_where_the_session_is_and_a_second_move_at_once_are_refused(stage):
    await open_pair(stage)
    with pytest.raises(AlreadyThere):
        await stage.prepare("walk", "a", "tcp")
    move, endpoint = await stage.prepare("walk", "b", "tcp", Mode.FREEZE)
    await stage.call("a", wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    with pytest.raises(MoveInProgress):
        await stage.call("a", wire.RunSource("other", "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    await stage.call("b", wire.Discard(move))
    await stage.call("a", wire.Thaw(move, "walk"))
    await assert_unharmed(stage)


async def test_words_about_things_that_are_not_there_are_typed_errors(stage):
    await open_pair(stage)
    with pytest.raises(UnknownMove):
        await stage.call("b", wire.AwaitPrepared("m9"), wire.Receipt)
    with pytest.raises(UnknownMove):
        await stage.call("b", wire.Activate("m9", 2), SessionFacts)
    with pytest.raises(UnknownSession):
        await stage.call("a", wire.RunSource("m9", "nobody", 1, Mode.FREEZE, wire.Endpoint("tcp", "", b"")), None)
    with pytest.raises(StaleEpoch):
        await stage.call("a", wire.RunSource("m9", "walk", 9, Mode.FREEZE, wire.Endpoint("tcp", "", b"")), None)
    with pytest.raises(BadValue):
        await stage.prepare("walk", "b", "carrier-pigeon")
    with pytest.raises(BadValue):
        await stage.prepare("walk", "b", "tcp", fault="earthquake")
    assert await stage.call("b", wire.Discard("m9")) is None
    with pytest.raises(UnknownSession):
        await stage.call("b", wire.Thaw("m9", "walk"))
    assert await stage.call("a", wire.Thaw("m9", "walk")) is None
    assert await stage.call("b", wire.Retire("m9", "nobody", 1)) is None
    await assert_unharmed(stage)


async def test_a_source_that_reaches_nobody_plays_on_and_says_so(stage):
    await open_pair(stage)
    endpoint = wire.Endpoint("tcp", "127.0.0.1:1", bytes(32))
    with pytest.raises(LinkCut):
        await stage.call("a", wire.RunSource("m9", "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    await assert_unharmed(stage)


async def test_an_activation_before_the_proof_or_with_another_epoch_is_refused(stage):
    await open_pair(stage)
    move, endpoint = await stage.prepare("walk", "b", "tcp", Mode.FREEZE)
    with pytest.raises(WorldlineError, match="not proven"):
        await stage.call("b", wire.Activate(move, 2), SessionFacts)
    await stage.call("a", wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    await stage.call("b", wire.AwaitPrepared(move), wire.Receipt)
    with pytest.raises(StaleEpoch):
        await stage.call("b", wire.Activate(move, 3), SessionFacts)
    await stage.commit("walk", move, "b", "tcp")
    await assert_like_its_twin(stage)


async def test_a_completion_deadline_that_passes_ends_the_attempt_on_both_sides(stage):
    await open_pair(stage, spec(contract=Contract(pause_bound_s=0.05, completion_deadline_s=0.05)))
    move, _ = await stage.prepare("walk", "b", "tcp", Mode.FREEZE)
    with pytest.raises(WorldlineError):
        await stage.call("b", wire.AwaitPrepared(move), wire.Receipt)
    assert (await stage.facts("b")).memory_used_bytes == (await stage.facts("a")).memory_used_bytes
    await assert_like_its_twin(stage)


async def test_faults_are_refused_where_the_fleet_was_not_started_with_them(tmp_path):
    async with hall(tmp_path, "a", "b", allow_faults=False) as stage:
        await open_pair(stage)
        with pytest.raises(BadValue, match="without faults"):
            await stage.move("walk", "b", "tcp", fault="flip")
        with pytest.raises(BadValue, match="without faults"):
            await stage.call("a", wire.FlipBit("walk", 5))
        await assert_unharmed(stage)


# ---- nothing is left behind


async def test_a_hundred_sessions_opened_moved_and_closed_leave_no_file_thread_or_memory(stage):
    await _cycles(stage, 5)
    before = _held(stage)
    await _cycles(stage, 100)
    assert _held(stage) == before


async def _cycles(stage, count):
    for n in range(count):
        await stage.open("walk", "a", witness=False)
        await stage.play("walk", 1)
        transport, mode = TRANSPORTS[n % 3], MODES[n % 2]
        if n % 5 == 4:
            with pytest.raises((Corrupt, LinkCut)):
                await stage.move("walk", "b", transport, Mode.FREEZE, "flip" if transport != "memory" else "cut")
        else:
            await stage.move("walk", "b", transport, mode)
            await stage.play("walk", 1)
        host, epoch, *_ = stage.owners["walk"]
        await stage.call(host, wire.CloseSession("walk", epoch))


def _held(stage):
    arenas = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:worldline" in line]
    threads = sorted(thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio"))
    used = [host.memory.ledger.used_bytes for host in stage.hosts.values()]
    return open_files(), threads, len(arenas), used, len(asyncio.all_tasks())


async def test_a_call_of_a_move_that_was_called_off_begins_nothing(stage):
    """1 the controller calls a move off  2 its delayed calls arrive  3 nothing may freeze or be reserved for them."""
    await open_pair(stage)
    move, endpoint = await stage.prepare("walk", "b", "tcp")
    for called_off in (move, "m8"):
        await stage.call("b", wire.Discard(called_off))
        await stage.call("a", wire.Thaw(called_off, "walk"))
    with pytest.raises(StaleEpoch, match="called off"):
        await stage.call("b", wire.LoadImage("m8", "walk", 1, spec(), True, "late.image", None), wire.Receipt)
    with pytest.raises(StaleEpoch, match="called off"):
        await stage.call("a", wire.RunSource(move, "walk", 1, Mode.FREEZE, endpoint), wire.SourceSealed)
    with pytest.raises(StaleEpoch, match="called off"):
        await stage.call("a", wire.WriteImage(move, "walk", 1, "late.image"), wire.Receipt)
    (facts,) = (found for found in (await stage.facts("a")).sessions if found.session == "walk")
    assert not facts.frozen
    await stage.move("walk", "b", "tcp")
    await assert_like_its_twin(stage)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
async def test_a_target_waits_no_longer_for_a_source_that_ended_before_it_connected(stage, transport):
    """Its deadline is a minute away; what it is told of an attempt that it does not know changes nothing."""
    await stage.open("walk", "a")
    move, _ = await stage.prepare("walk", "b", transport)
    for told in ("unknown", move):
        stage.peers["b"].notify(wire.SourceEnded(told))
    with pytest.raises(HostGone, match="before it connected"):
        await stage.call("b", wire.AwaitPrepared(move), Receipt)
    assert (await stage.facts("b")).memory_used_bytes == 0
    await stage.play("walk", 2)


async def test_a_source_that_is_connected_is_not_given_up_by_a_word_of_its_end(stage):
    """The proof decides, which it may have sent before it ended."""
    await stage.open("walk", "a")
    move, endpoint = await stage.prepare("walk", "b", "tcp")
    await stage.call("a", wire.RunSource(move, "walk", 1, Mode.PRECOPY, endpoint, None), wire.SourceSealed)
    stage.peers["b"].notify(wire.SourceEnded(move))
    assert (await stage.call("b", wire.AwaitPrepared(move), Receipt)).move == move
    await stage.commit("walk", move, "b", "tcp")
    await stage.play("walk", 2)
