"""Sessions in the record and at their hosts: opened, closed, declared lost, and brought into agreement.

The record is the truth. A host that holds a session which the record does not give it (a stray: its caller had given
up, or the host could not be told) is told to close it, whenever it says what it holds; a session that the record gives
to a process which has ended, or which does not know it, is declared lost, with the reason, and is never replaced by a
fresh one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass

import msgspec

from worldline.errors import (
    AlreadyThere,
    BadValue,
    HostCordoned,
    HostGone,
    Internal,
    MoveInProgress,
    NoCapacity,
    RecordFailed,
    SessionClosed,
    WorldlineError,
)
from worldline.runtime.controller_book import Book
from worldline.runtime.controller_hosts import PLAN_WAIT_S, HostLink, Hosts
from worldline.runtime.messages import (
    CloseRequest,
    CloseSession,
    OpenRequest,
    OpenSession,
    RemoveImage,
    Session,
    SessionFacts,
    SessionSpec,
)
from worldline.runtime.store import Change, Owner
from worldline.schema.ids import check_name

SESSIONS_MAX = 256
"""Sessions that are not closed."""
CLOSE_WAIT_S = 10.0
TWIN_SUFFIX = "-twin"

replace = msgspec.structs.replace
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loss:
    """A session that must be declared lost once nothing holds it, if its owner is still this one."""

    owner: Owner
    why: str


class Sessions:
    """`hosts` is set before anything is asked of it."""

    def __init__(self, book: Book, spawn: Callable[[Coroutine[object, object, None]], None]) -> None:
        self._book = book
        self._spawn = spawn
        self._strays: set[tuple[str, str]] = set()
        """Host and session: those that are being closed."""
        self._losses: dict[str, Loss] = {}
        self._opening: dict[str, str | None] = {}
        """Sessions that come into being, and where."""
        self.hosts: Hosts

    @contextlib.asynccontextmanager
    async def holding(self, session: str, holder: str) -> AsyncIterator[None]:
        """No other verb touches the session inside; what was learnt of its loss meanwhile is settled at the end."""
        self._book.row(session)
        try:
            with self._book.hold(session, holder):
                yield
        finally:
            await self._settle(session)

    # ---- open

    async def open(self, request: OpenRequest, session: str) -> Session:
        """After success the session is at block 0 of one host, and its twin, if asked for, at block 0 of another host
        of equal plan. After failure neither exists.
        """
        spec = SessionSpec(request.world, request.seed, request.options, request.contract)
        twin_name = check_name(f"{session}{TWIN_SUFFIX}", "the session")
        twin = twin_name if request.twin else None
        with self._new_names({session} if twin is None else {session, twin}):
            try:
                host, facts = await self._open_somewhere(session, spec, request.host, witness=request.twin)
                row = _first_row(session, host.id, facts)
                if twin is not None:
                    await self._open_twin(twin, row, host, facts)
                await self._insert(replace(row, twin=twin), host)
            except BaseException:
                if twin is not None and twin in {held.id for held in self._book.rows()}:
                    await self._close_row(self._book.row(twin))
                raise
        return self._book.view(session)

    @contextlib.contextmanager
    def _new_names(self, names: set[str]) -> Iterator[None]:
        """Keeps the names of sessions while they come into being: what fails to, closes nobody else's session.

        Raises `BadValue` for a name that is taken, and `NoCapacity`.
        """
        taken = names & ({row.id for row in self._book.rows()} | self._opening.keys())
        if taken:
            raise BadValue(f"a session {min(taken)} was opened before", session=min(taken))
        living = {row.id for row in self._book.rows() if row.status != "closed"}
        if len(living | self._opening.keys() | names) > SESSIONS_MAX:
            raise NoCapacity(f"the fleet takes {SESSIONS_MAX} open sessions, which is its limit", limit=SESSIONS_MAX)
        self._opening.update(dict.fromkeys(names))
        try:
            yield
        finally:
            for name in names:
                del self._opening[name]

    def opens_at(self, host: str) -> bool:
        """Whether a session comes into being there that is not in the record yet."""
        return host in self._opening.values()

    async def _open_somewhere(
        self, session: str, spec: SessionSpec, wish: str | None, witness: bool
    ) -> tuple[HostLink, SessionFacts]:
        refusal: WorldlineError | None = None
        for host in self.hosts.candidates(wish):
            try:
                return host, await self._open_at(host, session, spec, witness)
            except (NoCapacity, HostGone, HostCordoned, AlreadyThere, MoveInProgress) as error:
                refusal = error  # there or on its way there already: opened for somebody who has given up
        assert refusal is not None
        raise refusal

    async def _open_at(self, host: HostLink, session: str, spec: SessionSpec, witness: bool) -> SessionFacts:
        self.hosts.check_takes(host.id)
        if not host.alive:  # since the candidates were named
            raise host.not_alive()
        self._opening[session] = host.id
        order = OpenSession(session, 1, spec, witness)
        return await host.call_while_it_answers(order, SessionFacts, PLAN_WAIT_S)  # what it opens later is a stray

    async def _open_twin(self, twin: str, row: Session, host: HostLink, facts: SessionFacts) -> None:
        """Opens and records the twin; on failure the first session is closed too."""
        try:
            other = await self.hosts.equal(facts.spec, facts.plan.digest, not_on=host.id)
            await self._open_at(other, twin, facts.spec, witness=True)
            await self._insert(replace(row, id=twin, host=other.id, twin_of=row.id), other)
        except BaseException:
            await self._close_at(host, row.id, 1)
            raise

    async def _insert(self, row: Session, host: HostLink) -> None:
        try:
            await self.hosts.take_back(host.id)
            if not await self._book.commit(Change(row, expected=None)):
                raise Internal(f"session {row.id} was in the record already", session=row.id)
        except BaseException:
            await self._close_at(host, row.id, row.epoch)
            raise

    # ---- close

    async def close(self, request: CloseRequest) -> Session:
        """After success nobody owns the session, and its host frees it as soon as it can be reached. Its twin goes
        with it.
        """
        async with contextlib.AsyncExitStack() as held:
            await held.enter_async_context(self.holding(request.session, "close"))
            row = self._book.row(request.session)
            if row.twin_of is not None and self._book.row(row.twin_of).status != "closed":
                raise BadValue(f"session {row.id} is a twin and is closed with {row.twin_of}", session=row.id)
            if row.status == "closed":
                raise SessionClosed(f"session {row.id} was closed before", session=row.id)
            twin = None if row.twin is None else self._book.row(row.twin)
            if twin is not None:
                await held.enter_async_context(self.holding(twin.id, "close"))
            await self._close_row(row)
            if twin is not None and twin.status != "closed":
                await self._close_row(twin)
        return self._book.view(request.session)

    async def _close_row(self, row: Session) -> None:
        after = replace(row, status="closed", host=None, epoch=row.epoch + 1, image=None)
        if not await self._book.commit(Change(after, Owner.of(row))):
            raise Internal(f"the owner of session {row.id} changed while it was held", session=row.id)
        if row.host is not None:
            await self._close_at(self.hosts.get(row.host), row.id, row.epoch)
        if row.image is not None:
            self.drop_image(row.image)

    def drop_image(self, image: str) -> None:
        """The record names it no more. Returns at once; any host has the folder in which it lies."""
        self._spawn(self._remove_image(image))

    async def _remove_image(self, image: str) -> None:
        for host in self.hosts.all():
            if not host.alive:
                continue
            try:
                await host.call(RemoveImage(image), None, CLOSE_WAIT_S)
            except WorldlineError as error:
                log.info("image %s is not removed by host %s: %s", image, host.id, error)
            else:
                return
        log.warning("image %s is of no use any more and is left: no host has removed it", image)

    async def _close_at(self, host: HostLink, session: str, epoch: int) -> None:
        """Tells the host once; if that fails, the session is a stray of it, and closed as one."""
        if not host.alive:
            return
        try:
            await host.call(CloseSession(session, epoch), None, CLOSE_WAIT_S)
        except WorldlineError as error:
            log.info("session %s epoch %d is not closed at host %s yet: %s", session, epoch, host.id, error)

    # ---- loss and agreement

    def doom(self, session: str, why: str) -> None:
        """The present owner has lost the session's state. Settled at once, or when the verb that holds the session
        ends.
        """
        row = self._book.row(session)
        if row.host is not None:
            self._losses.setdefault(session, Loss(Owner.of(row), why))

    async def settle(self) -> None:
        """Declares what is lost and held by nobody."""
        for session in tuple(self._losses):
            await self._settle(session)

    async def _settle(self, session: str) -> None:
        if self._book.holder(session) is not None or session not in self._losses:
            return
        loss = self._losses.pop(session)
        row = self._book.row(session)
        if Owner.of(row) != loss.owner:
            return
        log.warning("session %s epoch %d is lost: %s", session, row.epoch, loss.why)
        after = replace(row, status="lost", host=None, epoch=row.epoch + 1, why=loss.why)
        try:
            await self._book.commit(Change(after, Owner.of(row)))
        except RecordFailed as error:  # it is as lost as before, and is declared so when something is settled next
            log.warning("session %s can't be declared lost yet: %s", session, error)
            self._losses.setdefault(session, loss)

    def host_gone(self, host: str, generation: str) -> None:
        """The process has ended, and every session's memory with it."""
        link = self.hosts.get(host)
        for row in self._book.rows():
            if row.host == host and link.generation == generation:
                self.doom(row.id, f"host {host} ended, and the session's memory with it")

    async def reconcile(self, link: HostLink) -> None:
        """What the record gives to a host that has just connected, and it does not hold, is lost."""
        assert link.facts is not None
        held = {facts.session: facts for facts in link.facts.sessions}
        for row in self._book.rows():
            if row.host != link.id or self._book.holder(row.id) is not None:
                continue
            here = held.get(row.id)
            if here is None or here.epoch != row.epoch:
                self.doom(row.id, f"host {link.id} was started again and no longer has the session")
            elif here.poisoned is not None:
                self.doom(row.id, here.poisoned)
        await self.settle()

    def close_strays(self, link: HostLink) -> None:
        """To be called whenever a host has said what it holds. Returns at once."""
        assert link.facts is not None
        for facts in link.facts.sessions:
            if (link.id, facts.session) not in self._strays and self._is_stray(facts, link.id):
                self._strays.add((link.id, facts.session))
                self._spawn(self._close_stray(link, facts))

    async def _close_stray(self, link: HostLink, facts: SessionFacts) -> None:
        try:
            if self._is_stray(facts, link.id):  # it was told a moment ago: a verb may have begun since
                log.warning("host %s holds session %s, which the record does not give it", link.id, facts.session)
                await self._close_at(link, facts.session, facts.epoch)
        finally:
            self._strays.discard((link.id, facts.session))

    def _is_stray(self, facts: SessionFacts, host: str) -> bool:
        """Whether nothing under way nor the record gives the session to this host, under the epoch that it has there.
        Epochs only grow, so what is one once stays one, and its host refuses to close a later one.
        """
        session = facts.session
        if session in self._opening or self._book.holder(session) is not None:
            return False
        row = self._book.find(session)
        return row is None or row.host != host or row.epoch != facts.epoch


def _first_row(session: str, host: str, facts: SessionFacts) -> Session:
    spec = facts.spec
    return Session(
        id=session,
        world=spec.world,
        seed=spec.seed,
        options=spec.options,
        contract=spec.contract,
        status="running",
        host=host,
        epoch=1,
        cut_block=0,
        readout=facts.readout,
        actions=facts.actions,
        plan=facts.plan.digest,
        image=None,
        twin=None,
        twin_of=None,
        move=None,
        receipts=[],
        why=None,
        arena_bytes=facts.arena_bytes,
    )
