"""The controller over real hosts of this process: what its verbs promise, what its record says after trouble."""

import asyncio
import contextlib

import msgspec
import pytest

from hall import CONTRACT, TINY, WAIT_S, Hall
from worldline.errors import (
    AlreadyThere,
    BadValue,
    ControllerGone,
    Corrupt,
    HostGone,
    KeyReused,
    MoveInProgress,
    NoCapacity,
    NotParked,
    PlanMismatch,
    RecordFailed,
    SessionClosed,
    SessionParked,
    StateLost,
    TimedOut,
    UnknownHost,
    UnknownMove,
    UnknownReceipt,
    UnknownSession,
    WorldlineError,
)
from worldline.runtime import messages as wire
from worldline.runtime.controller_book import RECEIPTS_MAX
from worldline.runtime.fleet_messages import PrewarmRequest
from worldline.runtime.messages import Move, Session, Snapshot
from worldline.runtime.rpc import connect
from worldline.runtime.run_dir import host_socket
from worldline.runtime.store import Change, Owner
from worldline.schema.contract import Contract, Tier
from worldline.schema.fault import FaultName
from worldline.schema.plan import Qualification
from worldline.schema.receipt import Mode, Receipt
from worldline.testing.memory_store import MemoryStore
from worldline.testing.stores import LostReplyStore
from worldline.verify.reader import verify_receipt
from worldline.verify.receipts import write_receipt


@pytest.fixture
async def hall(tmp_path):
    hall = Hall(tmp_path / "run", LostReplyStore(MemoryStore()))
    for name in ("a", "b", "c"):
        await hall.start_host(name)
    await hall.start_controller()
    yield hall
    await hall.close()


# ---- open and close


async def test_a_session_opens_where_it_is_asked_for(hall):
    row = await hall.open(host="b")
    assert (row.host, row.epoch, row.status) == ("b", 1, "running")
    assert row.actions[0] == "stay"
    assert hall.holders(row.id) == ["b"]


async def test_without_a_wish_the_emptiest_host_is_chosen(hall):
    first = await hall.open(host="a", width=1024)
    await hall.until(lambda found: next(h for h in found if h.id == "a").facts.sessions != [])
    assert first.host == "a"
    assert (await hall.open()).host != "a"


async def test_a_twin_opens_on_another_host_and_is_closed_with_its_session(hall):
    row = await hall.open(twin=True)
    twin = await hall.describe(row.twin)
    assert twin.twin_of == row.id
    assert twin.host != row.host
    with pytest.raises(BadValue, match="twin"):
        await hall.move(twin.id, "c")
    with pytest.raises(BadValue, match="twin"):
        await hall.ask(wire.CloseRequest(twin.id), Session)
    await hall.ask(wire.CloseRequest(row.id), Session)
    assert (await hall.describe(twin.id)).status == "closed"
    assert hall.holders(row.id) == hall.holders(twin.id) == []


async def test_a_twin_without_another_host_leaves_nothing_open(hall):
    await hall.stop_host("b")
    await hall.stop_host("c")
    await hall.until(lambda hosts: [h.alive for h in hosts] == [True, False, False])
    with pytest.raises(PlanMismatch):
        await hall.open(twin=True)
    assert hall.hosts["a"][0].sessions == {}
    assert await hall.ask(wire.ListSessions(), list[Session]) == []


async def test_too_large_a_world_is_refused_and_nothing_is_left(hall):
    with pytest.raises(NoCapacity):
        await hall.open(width=1 << 18)
    assert await hall.ask(wire.ListSessions(), list[Session]) == []


async def test_an_id_can_be_wished_for_once(hall):
    assert (await hall.open(session="mine")).id == "mine"
    with pytest.raises(BadValue, match="before"):
        await hall.open(session="mine")
    with pytest.raises(BadValue):
        await hall.open(session="../etc")


async def test_an_open_that_finds_its_name_or_its_twins_taken_harms_nobody(hall):
    innocent = await hall.open(session="mine-twin")
    with pytest.raises(BadValue, match="before"):
        await hall.open(session="mine", twin=True)
    assert await hall.describe(innocent.id) == innocent
    opens = [hall.open(session="once", twin=True) for _ in range(4)]
    row, *others = sorted(await asyncio.gather(*opens, return_exceptions=True), key=lambda done: type(done) is BadValue)
    assert [type(other) for other in others] == [BadValue] * 3
    assert [(await hall.describe(name)).status for name in (row.id, row.twin)] == ["running", "running"]
    assert len(hall.holders(row.id)) == len(hall.holders(row.twin)) == 1


async def test_of_two_closes_at_once_one_closes_session_and_twin_and_the_other_is_told(hall):
    row = await hall.open(twin=True)
    closes = [hall.ask(wire.CloseRequest(row.id), Session) for _ in range(2)]
    ends = await asyncio.gather(*closes, return_exceptions=True)
    (told,) = [end for end in ends if isinstance(end, Exception)]
    assert isinstance(told, MoveInProgress | SessionClosed)
    assert [(await hall.describe(name)).status for name in (row.id, row.twin)] == ["closed", "closed"]


async def test_a_closed_session_takes_no_verb(hall):
    row = await hall.open()
    closed = await hall.ask(wire.CloseRequest(row.id), Session)
    assert (closed.status, closed.host) == ("closed", None)
    for verb in (wire.CloseRequest(row.id), wire.ParkRequest(row.id), wire.ResumeRequest(row.id, None)):
        with pytest.raises(SessionClosed):
            await hall.ask(verb, Session)
    with pytest.raises(SessionClosed):
        await hall.move(row.id, "b")


# ---- move, park, resume


@pytest.mark.parametrize(("transport", "mode"), [("tcp", Mode.FREEZE), ("tcp", Mode.PRECOPY), ("shm", Mode.FREEZE)])
async def test_a_move_gives_the_target_the_session_and_a_receipt(hall, transport, mode):
    row = await hall.open(host="a")
    move = await hall.move(row.id, "b", transport, mode)
    assert (move.outcome, move.error) == ("done", None)
    after = await hall.describe(row.id)
    assert (after.host, after.epoch, after.status, after.receipts) == ("b", 2, "running", [move.receipt.id])
    assert move.receipt.source_root == move.receipt.target_root
    assert await hall.ask(wire.GetReceipt(move.receipt.id), Receipt) == move.receipt
    assert await hall.ask(wire.GetMove(move.id), Move) == move
    assert hall.holders(row.id) == ["b"]


async def test_receipts_are_signed_with_keys_that_the_record_has(hall, tmp_path):
    row = await hall.open(host="a")
    move = await hall.move(row.id, "b")
    parked = await hall.ask(wire.ParkRequest(row.id), Session)
    resumed = await hall.ask(wire.ResumeRequest(row.id, "a"), Session)
    keys = {signer.host: signer.key for signer in await hall.ask(wire.ListSigners(), list[wire.Signer])}
    receipts = [await hall.ask(wire.GetReceipt(receipt), Receipt) for receipt in resumed.receipts]
    assert [receipt.id for receipt in receipts[:2]] == parked.receipts
    assert [receipt.made_by for receipt in receipts] == ["b", "b", "a"]
    for receipt in receipts:
        write_receipt(tmp_path / "r.json", receipt)
        assert verify_receipt(tmp_path / "r.json", signers={keys[receipt.made_by]}).signer == receipt.signer
    assert move.receipt == receipts[0]


async def test_a_host_that_comes_back_with_another_key_keeps_the_old_one_in_the_record(hall):
    (before,) = [signer for signer in await hall.ask(wire.ListSigners(), list[wire.Signer]) if signer.host == "b"]
    await hall.stop_host("b")
    await hall.start_host("b")
    await hall.until(lambda hosts: any(host.id == "b" and host.facts.signer != before.key for host in hosts))
    signers = [signer for signer in await hall.ask(wire.ListSigners(), list[wire.Signer]) if signer.host == "b"]
    assert signers[0] == before
    assert len(signers) == 2


async def test_a_refused_move_leaves_the_session_where_it_was_with_the_reason_in_the_journal(hall):
    row = await hall.open(host="a")
    move = await hall.move(row.id, "b", fault="flip")
    assert (move.outcome, move.error.code) == ("refused", Corrupt.code)
    assert await hall.describe(row.id) == row
    assert hall.holders(row.id) == ["a"]
    assert (await hall.move(row.id, "b")).outcome == "done"


async def test_a_parked_session_is_on_no_host_and_resumes_on_any(hall):
    row = await hall.open(host="a")
    parked = await hall.ask(wire.ParkRequest(row.id), Session)
    assert (parked.status, parked.host, parked.epoch) == ("parked", None, 2)
    assert (hall.run_dir / "images" / parked.image).is_file()
    assert hall.holders(row.id) == []
    with pytest.raises(SessionParked):
        await hall.move(row.id, "b")
    resumed = await hall.ask(wire.ResumeRequest(row.id, "c"), Session)
    assert (resumed.status, resumed.host, resumed.epoch, resumed.image) == ("running", "c", 3, None)
    await no_images(hall)
    with pytest.raises(NotParked):
        await hall.ask(wire.ResumeRequest(row.id, "c"), Session)


async def no_images(hall):
    await hall.soon(lambda: not any((hall.run_dir / "images").iterdir()))


async def test_a_session_that_is_closed_while_it_is_parked_leaves_no_image(hall):
    row = await hall.open(host="a")
    other = await hall.ask(wire.ParkRequest((await hall.open(host="a")).id), Session)
    parked = await hall.ask(wire.ParkRequest(row.id), Session)
    assert (await hall.ask(wire.CloseRequest(row.id), Session)).status == "closed"
    images = hall.run_dir / "images"
    await hall.soon(lambda: not (images / parked.image).exists())
    assert [image.name for image in images.iterdir()] == [other.image]


async def test_a_damaged_image_is_refused_and_the_session_stays_parked(hall):
    row = await hall.open(host="a")
    parked = await hall.ask(wire.ParkRequest(row.id), Session)
    image = hall.run_dir / "images" / parked.image
    whole = image.read_bytes()
    image.write_bytes(whole[:-4096] + bytes([whole[-4096] ^ 1]) + whole[-4095:])
    with pytest.raises(WorldlineError) as refused:
        await hall.ask(wire.ResumeRequest(row.id, "b"), Session)
    assert refused.value.code in {"CORRUPT", "MALFORMED"}
    assert (await hall.describe(row.id)).status == "parked"
    image.write_bytes(whole)
    assert (await hall.ask(wire.ResumeRequest(row.id, "b"), Session)).status == "running"


async def test_a_target_that_ends_before_it_plays_is_never_told_of_and_the_source_plays_on(hall):
    await hall.start_host("z", reborn=True)
    await hall.until(lambda hosts: any(h.id == "z" and h.alive for h in hosts))
    row = await hall.open(host="a")
    await hall.ask(wire.Subscribe(), Snapshot)
    move = await hall.move(row.id, "z")
    assert (move.outcome, move.error.code, move.receipt.epoch) == ("returned", HostGone.code, 2)
    after = await hall.describe(row.id)
    assert (after.status, after.host, after.epoch, after.plan) == ("running", "a", 3, row.plan)
    assert hall.epochs_told(row.id) == {1, 3}
    assert hall.holders(row.id) == ["a"]
    assert not hall.hosts["a"][0].sessions[row.id].facts().frozen
    assert (await hall.move(row.id, "b")).outcome == "done"
    assert (await hall.describe(row.id)).epoch == 4


async def test_a_resume_whose_host_ends_before_it_plays_leaves_the_session_in_its_image(hall):
    for name in ("y", "z"):
        await hall.start_host(name, reborn=True)
    await hall.until(lambda hosts: {"y", "z"} <= {h.id for h in hosts if h.alive})
    row = await hall.open(host="a")
    parked = await hall.ask(wire.ParkRequest(row.id), Session)
    await hall.ask(wire.Subscribe(), Snapshot)
    for host, epoch in (("y", 4), ("z", 6)):
        with pytest.raises(HostGone, match="back at its image"):
            await hall.ask(wire.ResumeRequest(row.id, host), Session)
        again = await hall.describe(row.id)
        assert (again.status, again.host, again.epoch, again.image) == ("parked", None, epoch, parked.image)
    assert hall.epochs_told(row.id) == {2, 4, 6}
    assert (hall.run_dir / "images" / parked.image).is_file()
    resumed = await hall.ask(wire.ResumeRequest(row.id, "b"), Session)
    assert (resumed.status, resumed.host, resumed.epoch) == ("running", "b", 7)
    await no_images(hall)


async def test_a_parked_session_is_resumed_by_the_receipt_of_its_park_however_many_others_it_lists(hall):
    row = await hall.open(host="a")
    parked = await hall.ask(wire.ParkRequest(row.id), Session)
    await hall.stop_controller()
    others = msgspec.structs.replace(parked, receipts=["r-of-a-resume-that-was-taken-back"] * RECEIPTS_MAX)
    assert await hall.store.commit(Change(others, Owner.of(parked)))
    await hall.start_controller()
    assert (await hall.ask(wire.ResumeRequest(row.id, None), Session)).status == "running"


async def test_who_was_asleep_sleeps_on_when_its_resume_is_taken_back_even_by_another_controller(hall):
    """1 the resume is committed  2 the controller ends, and the host is another one  3 its successor takes it back"""
    for name in ("y", "z"):
        await hall.start_host(name, reborn=name == "y")
    await hall.until(lambda hosts: {"y", "z"} <= {h.id for h in hosts if h.alive})
    row = await hall.open(host="a")
    await hall.ask(wire.ParkRequest(row.id, asleep=True), Session)
    with pytest.raises(HostGone, match="back at its image") as taken_back:
        await hall.ask(wire.ResumeRequest(row.id, "y"), Session)
    parked, begun = await hall.describe(row.id), await hall.store.move(taken_back.value.facts["move"])
    assert parked.asleep
    await hall.stop_controller()
    begun = msgspec.structs.replace(begun, id="m-later", target="z", phase="begun", outcome=None, error=None)
    await hall.store.journal(msgspec.structs.replace(begun, receipt=None))
    resumed = msgspec.structs.replace(
        parked, status="running", host="z", epoch=parked.epoch + 1, image=None, asleep=False
    )
    committed = msgspec.structs.replace(begun, phase="committed")
    assert await hall.store.commit(Change(resumed, Owner.of(parked), committed, "begun", committed.receipt))
    await hall.stop_host("z")
    await hall.start_host("z")
    await hall.start_controller()
    after = await hall.until_status(row.id, "parked")
    assert (after.epoch, after.asleep) == (parked.epoch + 2, True)


@pytest.mark.parametrize("host", ["s", None])
async def test_a_parked_session_comes_back_into_a_warm_slot_of_a_host_that_is_full_of_them(hall, host):
    row = await hall.open(host="a")
    await hall.ask(wire.ParkRequest(row.id), Session)
    await hall.start_host("s", memory_bytes=row.arena_bytes)
    await hall.until(lambda hosts: any(h.id == "s" and h.alive for h in hosts))
    await hall.ask(PrewarmRequest("s", TINY, {}, 1), wire.Prewarmed)
    await hall.until(lambda hosts: any(h.id == "s" and h.facts.slot_bytes for h in hosts))
    for other in "abc":
        await hall.stop_host(other)
    await hall.until(lambda hosts: {h.id for h in hosts if h.alive} == {"s"})
    assert (await hall.ask(wire.ResumeRequest(row.id, host), Session)).host == "s"


async def test_a_move_that_can_not_begin_is_told_by_its_typed_error(hall):
    row = await hall.open(host="a")
    with pytest.raises(AlreadyThere):
        await hall.move(row.id, "a")
    with pytest.raises(UnknownHost):
        await hall.move(row.id, "nowhere")
    with pytest.raises(UnknownSession):
        await hall.move("s-nobody", "b")
    with pytest.raises(BadValue):
        await hall.move(row.id, "b", transport="pigeon")
    with pytest.raises(BadValue):
        await hall.move(row.id, "b", mode=Mode.PARK)
    with pytest.raises(UnknownMove):
        await hall.ask(wire.GetMove("m-none"), Move)
    with pytest.raises(UnknownReceipt):
        await hall.ask(wire.GetReceipt("none"), Receipt)
    assert await hall.describe(row.id) == row


async def test_a_target_with_too_little_memory_is_refused(hall):
    await hall.start_host("small", memory_bytes=1 << 12)
    await hall.until(lambda hosts: any(h.id == "small" and h.alive for h in hosts))
    row = await hall.open(host="a")
    with pytest.raises(NoCapacity):
        await hall.move(row.id, "small")
    assert await hall.describe(row.id) == row


async def test_of_two_moves_at_once_one_is_told_that_the_other_is_in_progress(hall):
    row = await hall.open(host="a", width=4096)
    both = await asyncio.gather(hall.move(row.id, "b"), hall.move(row.id, "c"), return_exceptions=True)
    done = [move for move in both if isinstance(move, Move)]
    assert [move.outcome for move in done] == ["done"]
    assert [type(error) for error in both if isinstance(error, WorldlineError)] == [MoveInProgress]
    assert (await hall.describe(row.id)).epoch == 2


async def test_faults_are_planted_only_where_they_are_allowed(hall):
    row = await hall.open(host="a")
    await hall.stop_controller()
    await hall.start_controller(faults=False)
    with pytest.raises(BadValue, match="faults"):
        await hall.move(row.id, "b", fault="flip")
    with pytest.raises(BadValue, match="faults"):
        await hall.ask(wire.SabotageRequest(row.id, 5))


async def test_a_qualified_pair_is_looked_up_for_t1_and_never_for_t0(hall):
    qualification = Qualification("q", "p1", "p2", TINY, 60, 61.0, 48.0, None)
    await hall.ask(wire.Qualify(qualification))
    assert await hall.store.qualification("p1", "p2") == qualification
    row = await hall.open(contract=Contract(Tier.T1, 1.0, 30.0, 40.0))
    assert row.contract.tier is Tier.T1


# ---- the record


async def test_a_commit_whose_reply_is_lost_is_read_and_completed(hall):
    row = await hall.open(host="a")
    hall.store.lose_reply = True
    move = await hall.move(row.id, "b")
    assert move.outcome == "done"
    assert move.receipt is not None
    assert ((await hall.describe(row.id)).host, hall.holders(row.id)) == ("b", ["b"])


async def test_a_commit_that_was_never_written_leaves_the_source_playing(hall):
    row = await hall.open(host="a")
    hall.store.lose_write = True
    move = await hall.move(row.id, "b")
    assert move.outcome == "refused"
    assert ((await hall.describe(row.id)).host, hall.holders(row.id)) == ("a", ["a"])
    assert (await hall.move(row.id, "b")).outcome == "done"


async def test_nobody_is_told_of_a_target_before_it_is_durable_that_it_plays_even_by_another_controller(hall):
    """1 the target plays, and the line that says so can't be written  2 the controller ends  3 its successor tells"""
    row = await hall.open(host="a")
    hall.store.full_phases = ["activated"] * 1000
    moving = asyncio.create_task(hall.move(row.id, "b"))
    async with asyncio.timeout(WAIT_S):
        while "b" not in hall.holders(row.id):  # noqa: ASYNC110 - as a person would look
            await asyncio.sleep(0.01)
    seen = await hall.describe(row.id)
    assert (seen.status, seen.host, seen.epoch) == ("moving", "a", 1)
    await hall.stop_controller()
    with pytest.raises(ControllerGone):
        await moving
    await hall.start_controller()
    snapshot = await hall.ask(wire.Subscribe(), Snapshot)
    assert [(seen.host, seen.epoch) for seen in snapshot.sessions] == [("a", 1)]
    hall.store.full_phases = []
    after = await hall.until_status(row.id, "running")
    assert (after.host, after.epoch, hall.holders(row.id)) == ("b", 2, ["b"])


@pytest.mark.parametrize("phase", ["begun", "aborted", "done"])
async def test_a_disk_that_is_full_for_a_while_leaves_no_session_frozen_and_no_order_unfinished(hall, phase):
    """A fault of the data plane makes the order end with the line ABORTED; DONE follows a commit."""
    row = await hall.open("a")
    hall.store.full_phases = [phase, phase]
    with contextlib.suppress(WorldlineError):
        await hall.move(row.id, "b", fault="flip" if phase == "aborted" else None)
    hall.store.full_phases = []
    found = await hall.describe(row.id)
    assert (found.status, found.host) == ("running", "b" if phase == "done" else "a")
    (held,) = hall.holders(row.id)
    assert not hall.hosts[held][0].sessions[row.id].facts().frozen
    assert (await hall.move(row.id, "c")).outcome == "done"
    assert await hall.store.open_moves() == []


async def test_an_open_that_could_not_be_recorded_leaves_nothing_at_the_host(hall):
    hall.store.lose_write = True
    with pytest.raises(RecordFailed):
        await hall.open(host="a")
    assert hall.hosts["a"][0].sessions == {}
    hall.store.lose_reply = True
    assert (await hall.open(host="a")).status == "running"


async def test_a_key_is_answered_once_and_the_same_ever_after(hall):
    keyed = wire.Keyed("k1", wire.OpenRequest(TINY, 7, {}, CONTRACT, None, False))
    first = await hall.ask(keyed, Session)
    assert await hall.ask(keyed, Session) == first
    assert len(await hall.ask(wire.ListSessions(), list[Session])) == 1
    with pytest.raises(KeyReused):
        await hall.ask(wire.Keyed("k1", wire.OpenRequest(TINY, 8, {}, CONTRACT, None, False)), Session)
    move = wire.Keyed("k2", wire.MoveRequest(first.id, "b" if first.host != "b" else "c", Mode.FREEZE, "tcp"))
    both = await asyncio.gather(hall.ask(move, Move), hall.ask(move, Move))
    assert both[0] == both[1]
    assert (await hall.describe(first.id)).epoch == 2


async def test_the_key_of_a_verb_that_changed_nothing_is_free_again(hall):
    with pytest.raises(UnknownSession):
        await hall.ask(wire.Keyed("k", wire.ParkRequest("s-nobody")), Session)
    row = await hall.open()
    assert (await hall.ask(wire.Keyed("k", wire.ParkRequest(row.id)), Session)).status == "parked"


# ---- restarts and ends


async def test_a_controller_that_starts_again_knows_its_sessions(hall):
    row, parked = await hall.open(host="a"), await hall.open(host="b")
    await hall.ask(wire.ParkRequest(parked.id), Session)
    keyed = wire.Keyed("k", wire.MoveRequest(row.id, "c", Mode.FREEZE, "tcp"))
    move = await hall.ask(keyed, Move)
    await hall.stop_controller()
    await hall.start_controller()
    assert (await hall.describe(row.id)).host == "c"
    assert (await hall.ask(wire.ResumeRequest(parked.id, None), Session)).status == "running"
    assert await hall.ask(keyed, Move) == move
    assert hall.holders(row.id) == ["c"]


@pytest.mark.parametrize("lag_s", [0.0, 0.01, 0.02, 0.04, 0.06, 0.1])
async def test_a_controller_that_ends_in_a_move_finishes_or_undoes_it_when_it_is_back(hall, lag_s):
    row = await hall.open(host="a")
    request = wire.Keyed("k", wire.MoveRequest(row.id, "b", Mode.FREEZE, "tcp"))
    moving = asyncio.create_task(hall.ask(request, Move))
    await asyncio.sleep(lag_s)
    await hall.stop_controller()
    with contextlib.suppress(WorldlineError):
        await moving
    await hall.start_controller()
    after = await hall.until_status(row.id, "running")
    assert hall.holders(row.id) == [after.host]
    move = await hall.ask(request, Move)
    assert move.outcome in {"done", "refused"}
    assert hall.holders(row.id) == [(await hall.describe(row.id)).host]


async def test_a_host_of_another_generation_has_lost_its_sessions_and_they_are_never_made_anew(hall):
    row, other = await hall.open(host="a"), await hall.open(host="b")
    await hall.stop_host("a")
    await hall.until(lambda hosts: not next(h for h in hosts if h.id == "a").alive)
    assert (await hall.describe(row.id)).status == "running"  # out of reach is not gone
    await hall.start_host("a")
    lost = await hall.until_status(row.id, "lost")
    assert lost.host is None
    assert "started again" in lost.why or "ended" in lost.why
    assert hall.holders(row.id) == []
    with pytest.raises(StateLost):
        await hall.move(row.id, "b")
    assert (await hall.describe(other.id)).status == "running"
    assert (await hall.ask(wire.CloseRequest(row.id), Session)).status == "closed"


async def test_a_session_that_the_record_does_not_know_is_closed_at_its_host(hall):
    host = hall.hosts["a"][0]
    stray = wire.OpenSession("s-stray", 1, wire.SessionSpec(TINY, 1, {}, CONTRACT), False)
    await host.handle(None, stray)
    host._peers.discard(None)
    await hall.until(lambda _: host.sessions == {})


async def test_an_engine_that_fails_makes_its_session_lost_with_the_reason(hall):
    row = await hall.open(host="a", fail_at=9)
    peer = await connect(host_socket(hall.run_dir, "a"), wire.Block | wire.SessionFailed, _ignore, ControllerGone("x"))
    await peer.call(wire.Attach(row.id, 1), wire.SessionFacts, WAIT_S)
    for number in range(1, 10):
        peer.notify(wire.Act(row.id, 1, number, 0))
    lost = await hall.until_status(row.id, "lost")
    assert "block" in lost.why
    await peer.close()


async def _ignore(_peer, _message):
    pass


async def test_a_subscriber_is_told_of_the_whole_and_then_of_each_change(hall):
    snapshot = await hall.ask(wire.Subscribe(), Snapshot)
    assert [host.id for host in snapshot.hosts] == ["a", "b", "c"]
    row = await hall.open(host="a")
    move = await hall.move(row.id, "b")
    statuses = [told.session.status for told in hall.told if isinstance(told, wire.SessionChanged)]
    assert statuses[0] == "running"
    assert "moving" in statuses
    moves = [told.move for told in hall.told if isinstance(told, wire.MoveChanged)]
    assert moves[-1] == move
    assert {found.phase for found in moves} >= {"begun", "committed", "done"}


@pytest.mark.parametrize("how", ["enospc", "eio", "short-write"])
async def test_a_record_that_takes_no_line_refuses_by_name_and_asks_nobody(hall, how):
    opened = await hall.open(host="a")
    hall.store.spoil_next(FaultName(how))
    with pytest.raises(RecordFailed):
        await hall.move(opened.id, "b")
    assert hall.holders(opened.id) == ["a"]
    assert (await hall.move(opened.id, "b")).outcome == "done"


async def test_an_answer_that_can_not_be_kept_is_answered_and_found_again_by_its_key(hall):
    opened = await hall.open(host="a")
    keyed = wire.Keyed("k", wire.MoveRequest(opened.id, "b", Mode.FREEZE, "tcp", "enospc@answer"))
    first = await hall.ask(keyed, Move)
    assert (await hall.ask(keyed, Move)).id == first.id
    assert hall.holders(opened.id) == ["b"]


@pytest.mark.parametrize(
    ("fault", "code"), [("enospc@claim", RecordFailed), ("lose-call@prepare", TimedOut), ("lose-call@thaw", TimedOut)]
)
async def test_what_is_refused_under_a_key_may_be_asked_again_under_it(hall, fault, code):
    opened = await hall.open(host="a")
    keyed = wire.Keyed("k", wire.MoveRequest(opened.id, "b", Mode.FREEZE, "tcp", fault))
    if code is RecordFailed:
        with pytest.raises(code):
            await hall.ask(keyed, Move)
    else:
        assert (await hall.ask(keyed, Move)).error.code == code.code
    assert hall.holders(opened.id) == ["a"]
    assert (await hall.move(opened.id, "b")).outcome == "done"
