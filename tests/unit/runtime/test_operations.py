"""Operations beside whatever else happens: verbs under way, records that fail, hosts that do not answer."""

import asyncio

import pytest

from hall import TINY, Hall
from worldline.control.placement import Kind
from worldline.errors import BadValue, OperationInProgress, RecordFailed, TimedOut
from worldline.runtime import messages as wire
from worldline.runtime.fleet_messages import (
    CancelOperation,
    CordonRequest,
    Operation,
    OperationChanged,
    PrewarmRequest,
)
from worldline.runtime.messages import Host, Prewarmed, Session, Snapshot, ToHost
from worldline.runtime.rpc import serve
from worldline.runtime.run_dir import host_socket
from worldline.schema.contract import Contract
from worldline.testing.memory_store import MemoryStore
from worldline.testing.stores import LostReplyStore


class SlowStore(LostReplyStore):
    """A record whose swaps wait for `gate`, and which takes no line about operations or cordons for a while."""

    def __init__(self):
        super().__init__(MemoryStore())
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.full_operations = 0
        self.full_cordons = 0

    async def commit(self, change):
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return await super().commit(change)

    async def keep_operation(self, operation):
        if operation.outcome is not None and self.full_operations:
            self.full_operations -= 1
            raise RecordFailed("planted")
        await self._inner.keep_operation(operation)

    async def keep_cordon(self, host, cordon):
        if self.full_cordons:
            self.full_cordons -= 1
            raise RecordFailed("planted")
        await self._inner.keep_cordon(host, cordon)


@pytest.fixture
async def hall(tmp_path):
    hall = Hall(tmp_path / "run", SlowStore())
    for name in ("a", "b", "c"):
        await hall.start_host(name)
    await hall.start_controller()
    yield hall
    hall.store.gate.set()
    await hall.close()


async def swap_asked_for(hall):
    await hall.soon(lambda: hall.store.waiting)


async def cordon(hall, host, cordoned=True):
    return await hall.ask(CordonRequest(host, cordoned), Host)


async def test_a_host_is_not_told_to_be_empty_while_a_session_is_on_its_way_to_it(hall):
    """1 a move to the host is about to commit  2 a drain finds nothing there  3 the move commits"""
    row = await hall.open(host="b")
    hall.store.gate.clear()
    moving = asyncio.create_task(hall.move(row.id, "a"))
    await swap_asked_for(hall)
    begun = await hall.operate(Kind.DRAIN, "a")
    asyncio.get_running_loop().call_later(0.3, hall.store.gate.set)
    done = await hall.ended(begun.id)
    await moving
    assert (done.outcome, done.emptied) == ("done", ["a"])
    assert hall.holders(row.id) not in ([], ["a"])


async def test_a_host_to_which_a_session_is_on_its_way_is_not_given_back(hall):
    for host in "bc":
        await hall.open(host=host)
    row = await hall.open(host="b")
    hall.store.gate.clear()
    moving = asyncio.create_task(hall.move(row.id, "a"))
    await swap_asked_for(hall)
    begun = await hall.operate(Kind.CONSOLIDATE, idle_s=999.0, warm_slots=0, hosts_min=2)
    done = await hall.ended(begun.id)
    assert "a" not in done.emptied
    hall.store.gate.set()
    assert (await moving).outcome == "done"


async def test_of_two_drains_of_one_host_at_once_one_is_begun(hall):
    found = await asyncio.gather(*(hall.operate(Kind.DRAIN, "a") for _ in range(2)), return_exceptions=True)
    assert {type(one) for one in found} == {Operation, OperationInProgress}


async def test_who_is_tried_again_is_told_why_beside_those_that_are_done(hall):
    await hall.ask(wire.Subscribe(), Snapshot)
    hurried = await hall.open(host="a", contract=Contract.horizon(1e-6))
    moved = await hall.open(host="a")
    done = await hall.ended((await hall.operate(Kind.DRAIN, "a")).id)
    assert (done.outcome, {step.session: step.state for step in done.steps}) == (
        "partial",
        {hurried.id: "refused", moved.id: "done"},
    )
    steps = [step for one in hall.told if isinstance(one, OperationChanged) for step in one.operation.steps]
    waited = {step.sentence for step in steps if step.state in {"waiting", "running"}} - {None}
    assert waited
    assert waited == {f"tried again: {step.sentence}" for step in steps if step.state == "refused"}


async def test_an_operation_whose_end_can_not_be_written_for_a_while_ends_and_its_host_can_be_uncordoned(hall):
    hall.store.full_operations = 2
    begun = await hall.operate(Kind.DRAIN, "a")
    assert (await hall.ended(begun.id)).outcome == "done"
    assert (await cordon(hall, "a", False)).cordon is None


async def test_what_was_cancelled_is_not_taken_up_again_by_another_controller(hall):
    """1 the drain's move is about to commit  2 the drain is cancelled  3 the controller ends"""
    rows = [await hall.open(host="a") for _ in range(2)]
    hall.store.gate.clear()
    begun = await hall.operate(Kind.DRAIN, "a")
    await swap_asked_for(hall)
    assert (await hall.ask(CancelOperation(begun.id), Operation)).cancelled
    await hall.stop_controller()
    hall.store.gate.set()
    await hall.start_controller()
    assert (await hall.ended(begun.id)).outcome == "cancelled"
    assert "a" in {(await hall.describe(row.id)).host for row in rows}


async def test_an_operation_that_waits_for_its_hosts_after_a_restart_can_be_cancelled(hall):
    begun = await hall.operate(Kind.CONSOLIDATE, idle_s=999.0, every_s=1000.0)
    await hall.stop_controller()
    await hall.start_controller()
    await hall.ask(CancelOperation(begun.id), Operation)
    assert (await hall.ended(begun.id)).outcome == "cancelled"


async def test_a_session_is_asleep_from_the_commit_of_its_park(hall):
    row = await hall.open(host="a")
    await hall.ask(wire.Subscribe(), Snapshot)
    await hall.ask(wire.ParkRequest(row.id, asleep=True), Session)
    told = [told.session for told in hall.told if isinstance(told, wire.SessionChanged)]
    assert {row.asleep for row in told if row.epoch == 2} == {True}


async def test_an_open_for_which_a_host_can_not_be_taken_into_use_again_leaves_nothing(hall):
    done = await hall.ended((await hall.operate(Kind.CONSOLIDATE, idle_s=999.0, warm_slots=0)).id)
    (used,) = {"a", "b", "c"} - set(done.emptied)
    await cordon(hall, used)
    hall.store.full_cordons = 1
    with pytest.raises(RecordFailed):
        await hall.open()
    assert await hall.ask(wire.ListSessions(), list[Session]) == []
    assert all(not host.sessions for host, _ in hall.hosts.values())
    assert (await hall.open()).host in done.emptied


async def test_a_sleeper_is_woken_at_a_host_that_was_given_back_when_the_others_are_full(hall):
    row = await hall.open(host="a", width=1 << 16)
    await hall.ask(wire.ParkRequest(row.id, asleep=True), Session)
    done = await hall.ended((await hall.operate(Kind.CONSOLIDATE, idle_s=999.0, warm_slots=0)).id)
    (used,) = {"a", "b", "c"} - set(done.emptied)
    warm = await hall.ask(PrewarmRequest(used, "load", {"bytes": "60MB"}, 1), Prewarmed)
    assert warm.slots == 1
    await hall.until(lambda hosts: any(h.facts and h.facts.memory_used_bytes >= warm.arena_bytes for h in hosts))
    resumed = await hall.ask(wire.ResumeRequest(row.id, None), Session)
    assert resumed.host in done.emptied


class Mute:
    """A host that stops telling what it has as soon as `silent` is set."""

    def __init__(self, host):
        self._host = host
        self.silent = False

    async def handle(self, peer, message):
        if self.silent and isinstance(message, wire.Describe):
            raise TimedOut("planted")
        return await self._host.handle(peer, message)


async def test_a_host_that_does_not_answer_keeps_no_other_from_being_emptied(hall):
    row = await hall.open(host="a")
    host, server = hall.hosts.pop("c")
    await server.close()
    mute = Mute(host)
    hall.hosts["c"] = (host, await serve(host_socket(hall.run_dir, "c"), ToHost, mute.handle, host.closed))
    await hall.until(lambda hosts: all(one.alive for one in hosts))
    mute.silent = True
    assert (await hall.ended((await hall.operate(Kind.DRAIN, "a")).id)).outcome == "done"
    assert hall.holders(row.id) == ["b"]
    assert "c" not in (await hall.ended((await hall.operate(Kind.CONSOLIDATE, warm_slots=0)).id)).emptied


async def test_a_host_whose_memory_is_all_slots_takes_a_session_into_one(hall):
    row = await hall.open(host="a", width=1 << 16)
    warm = await hall.ask(PrewarmRequest("b", TINY, {"width": 1 << 16}, 3), Prewarmed)
    await hall.until(lambda hosts: any(h.facts and h.facts.slot_bytes == 3 * [warm.arena_bytes] for h in hosts))
    (facts,) = [host.facts for host in await hall.ask(wire.ListHosts(), list[Host]) if host.id == "b"]
    assert facts.memory_bytes - facts.memory_used_bytes < warm.arena_bytes // 2
    assert (await hall.move(row.id, "b")).outcome == "done"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"transport": "udp"}, "shm or tcp, not 'udp'"),
        ({"at_once": 0}, "at_once is 1 to 16, and is 0"),
        ({"hosts_min": 0}, "hosts_min is at least 1"),
        ({"idle_s": -1.0}, "idle_s is at least 0"),
    ],
)
async def test_a_word_that_makes_no_sense_is_the_one_that_is_named(hall, words, sentence):
    with pytest.raises(BadValue, match=sentence):
        await hall.operate(Kind.DRAIN, "a", **words)
