"""What every record must do. Derive a test class from `StoreSuite` and give it a fixture `store`.

class TestMyStore(StoreSuite):
    @pytest.fixture
    async def store(self, tmp_path): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from worldline.control.placement import Kind
from worldline.errors import RecordFailed
from worldline.runtime.error_record import ErrorRecord
from worldline.runtime.fleet_messages import Operation, OperationRequest
from worldline.runtime.messages import Cordon, Move, Session, Signer
from worldline.runtime.store import Change, Claim, Incarnation, Owner, Store
from worldline.schema.contract import Contract, Tier
from worldline.schema.fault import FaultName
from worldline.schema.ids import Epoch, HostId, MoveId, ReceiptId, SessionId
from worldline.schema.plan import Qualification
from worldline.schema.receipt import Mode, Receipt
from worldline.worlds.protocol import Readout

T = TypeVar("T")
replace = msgspec.structs.replace


def a_session(id: str = "s1", host: str | None = "a", epoch: int = 1) -> Session:  # noqa: A002
    """A running session's row."""
    return Session(
        id=id,
        world="tiny",
        seed=7,
        options={"scale": 1.5, "name": "x"},
        contract=Contract(),
        status="running",
        host=host,
        epoch=epoch,
        cut_block=0,
        readout=Readout("image", 1, 8, 8),
        actions=["up", "down"],
        plan="p",
        image=None,
        twin=None,
        twin_of=None,
        move=None,
        receipts=[],
        why=None,
    )


def an_operation(id: str) -> Operation:  # noqa: A002
    """One that has not ended."""
    return Operation(
        id=id,
        request=OperationRequest(Kind.DRAIN, "a"),
        steps=[],
        left=[],
        emptied=[],
        passes=0,
        outcome=None,
        started_at_s=1.5,
        ended_at_s=None,
        arena_bytes_total=0,
        arena_bytes_done=0,
        eta_s=None,
    )


def a_move(id: str = "m1", session: str = "s1", phase: str = "BEGUN", outcome: str | None = None) -> Move:  # noqa: A002
    """A journal's line."""
    return Move(
        id=id,
        session=session,
        mode=Mode.FREEZE,
        transport="tcp",
        source="a",
        target="b",
        phase=phase,
        outcome=outcome,
        error=None,
        receipt=None,
        story=["begun"],
        started_at_s=1.0,
        ended_at_s=None,
    )


def a_receipt(id: str = "r1", move: str = "m1", session: str = "s1") -> Receipt:  # noqa: A002
    """A receipt of a move from a to b."""
    return Receipt(
        id=ReceiptId(id),
        move=MoveId(move),
        session=SessionId(session),
        epoch=Epoch(2),
        mode=Mode.FREEZE,
        transport="tcp",
        source="a",
        target="b",
        tier=Tier.T0,
        source_plan="p",
        target_plan="p",
        qualification=None,
        block=12,
        layout="l",
        source_root="root",
        target_root="root",
        leaf_count=1,
        state_bytes=100,
        bytes_moved=100,
        rounds=1,
        pause_s=0.01,
        duration_s=0.1,
        made_at_s=2.0,
        made_by=HostId("b"),
    )


def a_qualification(id: str = "q1") -> Qualification:  # noqa: A002
    """A measured pair of plans p1, p2."""
    return Qualification(id, "p1", "p2", "tiny", 60, 61.5, 48.25, 3)


class StoreSuite:
    """Each method is a test and a sentence about a record."""

    async def test_a_session_is_inserted_once(self, store: Store) -> None:
        assert await store.commit(Change(a_session(), expected=None))
        assert not await store.commit(Change(replace(a_session(), seed=8), expected=None))
        assert await store.session("s1") == a_session()

    async def test_the_owner_changes_only_from_the_expected_one(self, store: Store) -> None:
        await store.commit(Change(a_session(), expected=None))
        moved = a_session(host="b", epoch=2)
        for wrong in (Owner("b", 1), Owner("a", 2), Owner(None, 1)):
            assert not await store.commit(Change(moved, wrong, a_move(), None, a_receipt()))
        assert await store.session("s1") == a_session()
        assert await store.commit(Change(moved, Owner("a", 1)))
        assert not await store.commit(Change(moved, Owner("a", 1)))
        assert await store.session("s1") == moved

    async def test_a_lost_swap_writes_neither_journal_nor_receipt(self, store: Store) -> None:
        await store.commit(Change(a_session(), expected=None))
        await store.commit(
            Change(a_session(host="b", epoch=2), Owner("a", 9), a_move(phase="COMMITTED"), None, a_receipt())
        )
        assert await store.move("m1") is None
        assert await store.receipt("r1") is None

    async def test_a_swap_can_ask_for_the_phase_of_its_move(self, store: Store) -> None:
        await store.commit(Change(a_session(), expected=None))
        change = Change(a_session(host="b", epoch=2), Owner("a", 1), a_move(phase="COMMITTED"), "BEGUN", a_receipt())
        assert not await store.commit(change)
        await store.journal(a_move(phase="BEGUN"))
        await store.journal(a_move(phase="ABORTED"))
        assert not await store.commit(change)
        assert await store.session("s1") == a_session()
        await store.journal(a_move(phase="BEGUN"))
        assert await store.commit(change)

    async def test_a_commit_writes_owner_journal_and_receipt_together(self, store: Store) -> None:
        await store.commit(Change(a_session(), expected=None))
        committed = a_move(phase="COMMITTED")
        assert await store.commit(Change(a_session(host="b", epoch=2), Owner("a", 1), committed, None, a_receipt()))
        assert await store.session("s1") == a_session(host="b", epoch=2)
        assert await store.move("m1") == committed
        assert await store.receipt("r1") == a_receipt()

    async def test_a_parked_session_is_swapped_from_no_owner(self, store: Store) -> None:
        await store.commit(Change(a_session(host=None), expected=None))
        assert await store.commit(Change(a_session(host="c", epoch=2), Owner(None, 1)))

    async def test_two_swaps_from_one_owner_have_one_winner(self, store: Store) -> None:
        await store.commit(Change(a_session(), expected=None))
        swaps = [store.commit(Change(a_session(host=host, epoch=2), Owner("a", 1))) for host in ("b", "c", "d")]
        assert sorted(await asyncio.gather(*swaps)) == [False, False, True]

    async def test_the_newest_line_of_a_move_is_the_move(self, store: Store) -> None:
        for phase in ("BEGUN", "PREPARED"):
            await store.journal(a_move(phase=phase))
        await store.journal(a_move("m2", phase="BEGUN"))
        last = replace(a_move(phase="ABORTED", outcome="refused"), error=ErrorRecord("CORRUPT", "x", {}))
        await store.journal(last)
        assert await store.move("m1") == last
        assert [move.id for move in await store.open_moves()] == ["m2"]
        assert [move.id for move in await store.moves(9)] == ["m1", "m2"]
        assert [move.id for move in await store.moves(1)] == ["m2"]

    async def test_sessions_are_listed_in_the_order_of_opening(self, store: Store) -> None:
        for name in ("s2", "s1", "s3"):
            await store.commit(Change(a_session(name), expected=None))
        await store.commit(Change(a_session("s2", host="b", epoch=2), Owner("a", 1)))
        assert [session.id for session in await store.sessions()] == ["s2", "s1", "s3"]

    async def test_unknown_names_are_none(self, store: Store) -> None:
        assert await store.session("x") is None
        assert await store.move("x") is None
        assert await store.receipt("x") is None
        assert await store.qualification("x", "y") is None

    async def test_the_first_claim_of_a_key_stays(self, store: Store) -> None:
        first = Claim("k", b"verb", "m1", None)
        assert await store.claim(first) is None
        assert await store.claim(first) == first
        assert await store.claim(Claim("k", b"other", "m2", None)) == first
        await store.answer("k", b"done")
        assert await store.claim(Claim("k", b"verb", "m3", None)) == Claim("k", b"verb", "m1", b"done")

    async def test_a_released_key_is_free_again(self, store: Store) -> None:
        await store.claim(Claim("k", b"verb", "m1", None))
        await store.release("k")
        assert await store.claim(Claim("k", b"verb", "m2", None)) is None

    async def test_a_qualification_is_of_an_ordered_pair_and_the_newest_counts(self, store: Store) -> None:
        await store.qualify(a_qualification("old"))
        await store.qualify(a_qualification("new"))
        assert await store.qualification("p1", "p2") == a_qualification("new")
        assert await store.qualification("p2", "p1") is None

    async def test_a_host_has_one_incarnation(self, store: Store) -> None:
        for generation in ("g1", "g2"):
            await store.remember(Incarnation("a", generation, 11, 12))
        await store.remember(Incarnation("b", "g3", 21, 22))
        assert await store.incarnations() == [Incarnation("a", "g2", 11, 12), Incarnation("b", "g3", 21, 22)]

    async def test_a_host_keeps_every_key_that_it_ever_had(self, store: Store) -> None:
        first, second, third = Signer("a", "k1", 1.5), Signer("a", "k2", 2.5), Signer("b", "k1", 3.5)
        for signer in (first, second, third):
            assert await store.add_signer(signer)
        assert not await store.add_signer(Signer("a", "k1", 9.5))
        assert await store.signers() == [first, second, third]

    async def test_a_cordon_stays_until_it_is_lifted(self, store: Store) -> None:
        await store.keep_cordon("b", Cordon(1.5, False))
        await store.keep_cordon("a", Cordon(2.5, True))
        await store.keep_cordon("b", Cordon(3.5, True))
        assert await store.cordons() == {"a": Cordon(2.5, True), "b": Cordon(3.5, True)}
        await store.keep_cordon("b", None)
        await store.keep_cordon("c", None)
        assert await store.cordons() == {"a": Cordon(2.5, True)}

    async def test_operations_that_have_not_ended_are_kept_whatever_their_age(self, store: Store) -> None:
        for name in ("o1", "o2", "o3"):
            await store.keep_operation(an_operation(name))
        await store.keep_operation(replace(an_operation("o2"), outcome="done", ended_at_s=3.0))
        await store.keep_operation(replace(an_operation("o3"), outcome="cancelled"))
        assert [one.id for one in await store.operations(1)] == ["o1", "o3"]
        assert [(one.id, one.outcome) for one in await store.operations(9)] == [
            ("o1", None),
            ("o2", "done"),
            ("o3", "cancelled"),
        ]

    async def test_a_write_that_the_disk_does_not_take_is_told_and_changes_nothing(self, store: Store) -> None:
        """Full, failing, and taking a part: nothing of the write is kept, and the next one succeeds."""
        await store.commit(Change(a_session(), None))
        for how in (FaultName.ENOSPC, FaultName.EIO, FaultName.SHORT_WRITE):
            epoch = (await self._row(store)).epoch
            change = Change(a_session(epoch=epoch + 1), Owner("a", epoch), a_move(f"m-{how}"))
            store.spoil_next(how)
            try:
                await store.commit(change)
            except RecordFailed:
                pass
            else:
                raise AssertionError(f"{how} was not told")
            assert (await self._row(store)).epoch == epoch
            assert await store.move(f"m-{how}") is None
            assert await store.commit(change)
        assert (await self._row(store)).epoch == 4

    async def _row(self, store: Store) -> Session:
        row = await store.session("s1")
        assert row is not None
        return row


class LostReplyStore:
    """A store whose next commit happens, or does not, and then fails to say so: the caller can not know the outcome.

    `full_phases` are journal phases whose next line finds the disk full, once for each time they are in it.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.lose_reply = False
        self.lose_write = False
        self.full_phases: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method: Callable[..., Awaitable[object]] = getattr(self._inner, name)
        return method

    async def journal(self, move: Move) -> None:
        if move.phase in self.full_phases:
            self.full_phases.remove(move.phase)
            raise OSError("planted: no space left on device")
        await self._inner.journal(move)

    async def commit(self, change: Change) -> bool:
        """Raises `OSError` before or after the write, once for each flag set; else as the inner store."""
        if self.lose_write:
            self.lose_write = False
            raise OSError("planted: the write never reached the disk")
        done = await self._inner.commit(change)
        if self.lose_reply:
            self.lose_reply = False
            raise OSError("planted: the write was done and the answer lost")
        return done
