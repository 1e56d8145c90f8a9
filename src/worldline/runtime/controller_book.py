"""The controller's copy of its record, and who is told when it changes.

Invariant: a row here is never newer than the one on disk. A verb that changes a session's owner holds the session; no
two do.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import msgspec

from worldline.errors import MoveInProgress, RecordFailed, UnknownMove, UnknownReceipt, UnknownSession
from worldline.runtime.controller_told import Subscribers, Telling, Told
from worldline.runtime.fleet_messages import OperationChanged
from worldline.runtime.messages import Host, HostChanged, Move, MoveChanged, Session, SessionChanged
from worldline.runtime.store import Change, Owner, Store
from worldline.runtime.trouble import Trouble
from worldline.schema.receipt import Receipt

MOVES_MAX = 256
"""Moves kept in memory; older ones are read from the record."""
RECEIPTS_MAX = 256
"""Receipts that a session lists; older ones stay in the record."""

replace = msgspec.structs.replace

log = logging.getLogger(__name__)


class Book:
    """Sessions and moves by id. `load` before anything else."""

    def __init__(self, store: Store, subscribers: Subscribers) -> None:
        self.store = store
        self._subscribers = subscribers
        self._troubles: dict[str, Telling] = {}
        self._rows: dict[str, Session] = {}
        self._moves: dict[str, Move] = {}
        self._held: dict[str, str] = {}
        self._veiled: dict[str, Session] = {}
        """Sessions whose new owner is not known to play: as they are shown until then."""

    async def load(self) -> None:
        self._rows = {row.id: row for row in await self.store.sessions()}
        self._moves = {move.id: move for move in await self.store.moves(MOVES_MAX)}

    # ---- sessions

    def row(self, session: str) -> Session:
        """The durable row. Raises `UnknownSession`."""
        row = self._rows.get(session)
        if row is None:
            raise UnknownSession(f"no session {session[:80]!r} was ever opened here", session=session[:80])
        return row

    def find(self, session: str) -> Session | None:
        """The view, or None."""
        return self.view(session) if session in self._rows else None

    def rows(self) -> list[Session]:
        return list(self._rows.values())

    def view(self, session: str) -> Session:
        """The row as others see it: with the move in progress, and with the owner before for as long as the new one is
        not known to play.
        """
        row = self._veiled.get(session) or self.row(session)
        move = self._held.get(session)
        return row if move is None or move not in self._moves else replace(row, status="moving", move=move)

    def views(self) -> list[Session]:
        return [self.view(session) for session in self._rows]

    def holder(self, session: str) -> str | None:
        """What holds the session: a move's id, or a verb's name."""
        return self._held.get(session)

    def veil(self, shown: Session) -> None:
        """Shows this row until `unveil`: nobody attaches to an owner that may yet be taken back."""
        self._veiled[shown.id] = shown

    def unveil(self, session: str) -> None:
        """Shows the record's owner, and tells of it."""
        self._veiled.pop(session, None)
        self.tell_session(session)

    @contextlib.contextmanager
    def hold(self, session: str, holder: str) -> Iterator[None]:
        """Keeps every other verb off the session. Raises `MoveInProgress`."""
        other = self._held.get(session)
        if other is not None:
            raise MoveInProgress(f"session {session} is being changed by {other}", session=session, holder=other)
        self._held[session] = holder
        try:
            yield
        finally:
            del self._held[session]
            self.unveil(session)

    async def commit(self, change: Change) -> bool:
        """The store's swap, with an unknown outcome settled by reading. Raises `RecordFailed` where nothing was
        written.
        """
        try:
            return await self.swap(change)
        except Exception as error:
            log.exception("the swap of session %s has an unknown outcome", change.session.id)
            if not await self._was_written(change):
                raise RecordFailed(f"the record could not be written: {error}", session=change.session.id) from error
            self._take(change)
            return True

    async def swap(self, change: Change) -> bool:
        """`commit` without the reading: any error but ours leaves the outcome unknown, and the caller settles it."""
        done = await self.store.commit(change)
        if done:
            self._take(change)
        return done

    async def refresh(self, session: str) -> Session:
        """The row as it is on disk now."""
        row = await self.store.session(session)
        if row is None:
            raise UnknownSession(f"no session {session!r} is in the record", session=session)
        self._rows[session] = row
        return row

    @contextlib.contextmanager
    def telling(self, session: str, trouble: Trouble) -> Iterator[None]:
        """What is told of the session inside, and at once after it, goes astray as was planted."""
        telling = self._troubles[session] = Telling(trouble, self._subscribers, self.row(session).epoch)
        try:
            yield
        finally:
            telling.end()
            del self._troubles[session]

    def tell_session(self, session: str) -> None:
        if session in self._rows:
            told = SessionChanged(self.view(session))
            telling = self._troubles.get(session)
            if telling is None:
                self._tell(told)
            else:
                telling.tell(told)

    def _tell(self, told: Told) -> None:
        self._subscribers.tell(told)

    async def _was_written(self, change: Change) -> bool:
        row = await self.store.session(change.session.id)
        if row is not None:
            self._rows[row.id] = row
        return row is not None and Owner.of(row) == Owner.of(change.session)

    def _take(self, change: Change) -> None:
        self._rows[change.session.id] = change.session
        if change.move is not None:
            self.show_move(change.move)
        self.tell_session(change.session.id)

    # ---- moves and receipts

    async def journal(self, move: Move) -> None:
        """Durable when it returns, and then told."""
        await self.store.journal(move)
        self.show_move(move)

    def show_move(self, move: Move) -> None:
        """Tells of progress that needs no durability."""
        self._moves[move.id] = move
        while len(self._moves) > MOVES_MAX:
            del self._moves[next(iter(self._moves))]
        self._tell(MoveChanged(move))

    async def move(self, move: str) -> Move:
        """Raises `UnknownMove`."""
        found = self._moves.get(move) or await self.store.move(move)
        if found is None:
            raise UnknownMove(f"there is no move {move[:80]!r}", move=move[:80])
        return found

    def moves(self) -> list[Move]:
        return list(self._moves.values())

    async def receipt(self, receipt: str) -> Receipt:
        """Raises `UnknownReceipt`."""
        found = await self.store.receipt(receipt)
        if found is None:
            raise UnknownReceipt(f"there is no receipt {receipt[:80]!r}", receipt=receipt[:80])
        return found

    def tell_host(self, host: Host) -> None:
        self._tell(HostChanged(host))

    def tell_operation(self, changed: OperationChanged) -> None:
        self._tell(changed)


def with_receipt(row: Session, receipt: Receipt | None) -> list[str]:
    """The receipts of `row` and one more."""
    return row.receipts if receipt is None else [*row.receipts, receipt.id][-RECEIPTS_MAX:]
