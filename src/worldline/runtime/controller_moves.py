"""Moves, parks and resumes: what must hold before one begins, and running its machine to the end.

What holds after each verb is in its docstring. What stands against one is raised before it begins, without a journal
line. After a restart `recover` takes up every order that the journal does not show as ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine

import msgspec

from worldline.clock import Clock
from worldline.control import order as words
from worldline.control.admission import HostSide, Image, Load, Wish, admit
from worldline.control.grants import MEMORY_MAX_BYTES
from worldline.control.lifecycle import Status, Verb, begin, check_elsewhere
from worldline.control.order import Begin, Event, JournalPhase, Order, Outcome, Recovered
from worldline.errors import BadValue, HostGone, Internal, RecordFailed, WorldlineError
from worldline.runtime.controller_book import Book
from worldline.runtime.controller_ends import Cargo, Ends
from worldline.runtime.controller_grants import Grants
from worldline.runtime.controller_hosts import DESCRIBE_WAIT_S, HostLink, Hosts, Room
from worldline.runtime.controller_orders import OrderRun
from worldline.runtime.controller_sessions import Sessions
from worldline.runtime.messages import (
    Discard,
    Move,
    MoveRequest,
    ParkRequest,
    Progress,
    ResumeRequest,
    Session,
    SessionFacts,
    SessionSpec,
)
from worldline.runtime.refusal import raise_refusal
from worldline.schema.fault import Fault, parse_fault
from worldline.schema.fault import Verb as Struck
from worldline.schema.ids import Epoch, HostId, MoveId, SessionId
from worldline.schema.plan import Plan
from worldline.schema.receipt import Mode, Receipt
from worldline.transport.coding import check_choice
from worldline.transport.registry import FLEET, open_transport

HANDS_OVER = frozenset(name for name in FLEET if open_transport(name).hands_over)
"""Transports that hand the source's arena over."""
IMAGE_TRANSPORT = "image"
"""What the record calls the way of a park or a resume."""
REJOIN_WAIT_S = 5.0
"""For the hosts of a move that an earlier controller had begun; then it is given up."""
EPOCHS_GROWN = {JournalPhase.COMMITTED: 1, JournalPhase.ACTIVATED: 1, JournalPhase.RETURNED: 2}
"""By how much an unfinished order has grown its session's epoch when its newest line is of this phase."""
_STRUCK: dict[type, Struck] = {MoveRequest: Struck.MOVE, ParkRequest: Struck.PARK, ResumeRequest: Struck.RESUME}

log = logging.getLogger(__name__)


class Moves:
    """Orders in progress, by move."""

    def __init__(
        self,
        sessions: Sessions,
        book: Book,
        clock: Clock,
        faults: bool,
        gateway_pid: Callable[[], int | None],
        grants: Grants,
    ) -> None:
        self._sessions = sessions
        self._book = book
        self._clock = clock
        self._faults = faults
        self._gateway_pid = gateway_pid
        self._grants = grants
        self._runs: dict[str, OrderRun] = {}
        self._strays: set[tuple[str, str]] = set()
        """Host and move: those that are being discarded."""
        self._ended: dict[str, asyncio.Event] = {}
        self._booked_again: dict[str, asyncio.Event] = {}
        """Of moves that an earlier controller had begun: set once they have their ports again, or won't."""

    @property
    def _hosts(self) -> Hosts:
        return self._sessions.hosts

    async def move(self, request: MoveRequest, move: str) -> Move:
        """After success the target owns the session and the source has forgotten it. After a refusal the source plays
        on and the target holds no byte of it. Raises what stands against the move before it begins.
        """
        async with self._sessions.holding(request.session, move):
            row = self._allowed(request.session, Verb.MOVE)
            order, cargo, ends = await self._plan_move(request, row, move)
            for event in tuple(self._booked_again.values()):
                await event.wait()  # what an earlier controller had promised goes first
            async with self._grants.booked(order, cargo, ends):
                ended = await self._carry_out(order, cargo, ends, self._first_line(order, cargo, row), Begin())
                self._grants.learn(ended)
            return ended

    async def park(self, request: ParkRequest, move: str) -> Session:
        """After success the session is a verified image on disk and on no host. After failure it plays on."""
        async with self._sessions.holding(request.session, move):
            row = self._allowed(request.session, Verb.PARK)
            fault = self.planted(request)
            source = self._hosts.living(owner_of(row))
            order = Order(
                MoveId(move), SessionId(row.id), Mode.PARK, HostId(source.id), None, Epoch(row.epoch), row.contract,
                image=image_name(row.id, move),
            )  # fmt: skip
            cargo = Cargo(
                spec_of(row), has_witness(row), IMAGE_TRANSPORT, 0, None, None, fault, asleep=request.asleep
            )  # fmt: skip
            ended = await self._carry_out(
                order, cargo, self._ends(source, None), self._first_line(order, cargo, row), Begin()
            )
        raise_refusal(ended)
        return self._book.view(request.session)

    async def resume(self, request: ResumeRequest, move: str) -> Session:
        """After success a host of an allowed plan owns the session at the block of its image. After failure it is
        parked as before.
        """
        async with self._sessions.holding(request.session, move):
            row = self._allowed(request.session, Verb.RESUME)
            fault = self.planted(request)
            receipt = await self._receipt_of_park(row)
            spec = spec_of(row)
            if request.host is None:
                room = Room(receipt.state_bytes, row.arena_bytes)
                target = await self._hosts.equal(spec, receipt.source_plan, None, room)
            else:
                target = self._hosts.receiving(request.host)
            plan = await target.plan_of(spec)
            source_plan = self._hosts.known_plan(receipt.source_plan) or Plan(row.world, (), "", receipt.source_plan)
            load = Load(receipt.state_bytes, receipt.state_bytes)
            known = await self._book.store.qualification(source_plan.digest, plan.digest)
            wish = Wish(Mode.RESUME, IMAGE_TRANSPORT, row.contract, load, known)
            room_bytes = target.room_bytes(row.arena_bytes)
            admission = admit(wish, Image(sys.byteorder, source_plan), _side(target, plan, room_bytes))
            order = Order(
                MoveId(move),
                SessionId(row.id),
                Mode.RESUME,
                None,
                HostId(target.id),
                Epoch(row.epoch),
                row.contract,
                image=row.image,
            )
            cargo = Cargo(
                spec,
                has_witness(row),
                IMAGE_TRANSPORT,
                receipt.state_bytes,
                None,
                admission.qualification,
                fault,
                written_under=receipt.epoch - 1,
            )
            ended = await self._carry_out(
                order, cargo, self._ends(None, target), self._first_line(order, cargo, row), Begin()
            )
        raise_refusal(ended)
        return self._book.view(request.session)

    async def _receipt_of_park(self, row: Session) -> Receipt:
        """Of the park that wrote the session's image, however many resumes were taken back since."""
        assert row.image is not None, f"session {row.id} is parked without an image"
        park = await self._book.move(park_of(row.id, row.image))
        if park.receipt is None:
            raise Internal(f"session {row.id} is parked, and no receipt of it is kept", session=row.id)
        return park.receipt

    async def _plan_move(self, request: MoveRequest, row: Session, move: str) -> tuple[Order, Cargo, Ends]:
        fault = self._check_words(request, row)
        source, target = self._hosts.living(owner_of(row)), self._hosts.receiving(request.host)
        here = await _facts_of(source, row)
        plan = await target.plan_of(here.spec)
        hands_over = request.transport in HANDS_OVER
        load = Load(here.state_bytes, 0 if hands_over else here.state_bytes)
        known = await self._book.store.qualification(here.plan.digest, plan.digest)
        wish = Wish(request.mode, request.transport, row.contract, load, known)
        arena_bytes = here.arena_bytes or here.state_bytes
        promised = self._grants.books(hands_over)
        room_bytes = MEMORY_MAX_BYTES if promised else target.room_bytes(arena_bytes)  # booked with the ports, and told
        admission = admit(wish, _side(source, here.plan, source.free_bytes), _side(target, plan, room_bytes))
        order = Order(
            MoveId(move),
            SessionId(row.id),
            request.mode,
            HostId(source.id),
            HostId(target.id),
            Epoch(row.epoch),
            row.contract,
            hands_over,
        )
        cargo = Cargo(
            here.spec,
            has_witness(row),
            request.transport,
            here.state_bytes,
            here.plan,
            admission.qualification,
            fault,
            grant_bytes=self._grants.grant_bytes if promised else None,
            codec=request.codec,
            arena_bytes=arena_bytes,
        )
        return order, cargo, self._ends(source, target)

    def _ends(self, source: HostLink | None, target: HostLink | None) -> Ends:
        return Ends(source, target, self._gateway_pid)

    def _check_words(self, request: MoveRequest, row: Session) -> Fault | None:
        """The fault to plant. Raises what is wrong with the request by itself."""
        self._hosts.get(request.host)
        owner = None if row.host is None else HostId(row.host)
        check_elsewhere(SessionId(row.id), owner, HostId(request.host))
        if request.mode not in {Mode.FREEZE, Mode.PRECOPY}:
            raise BadValue(f"a move's mode is freeze or precopy, not {request.mode}", mode=str(request.mode))
        check_choice(request.codec, request.transport)
        return self.planted(request)

    def planted(self, request: MoveRequest | ParkRequest | ResumeRequest) -> Fault | None:
        """The fault to plant. Raises `BadValue` for one that is none, and for any where the fleet allows none."""
        if request.fault is None:
            return None
        if not self._faults:
            raise BadValue("faults are planted only in a fleet that was started with them allowed", fault=request.fault)
        return parse_fault(request.fault, _STRUCK[type(request)])

    def _first_line(self, order: Order, cargo: Cargo, row: Session) -> Move:
        return Move(
            id=order.move,
            session=order.session,
            mode=order.mode,
            transport=cargo.transport,
            source=order.source if order.source is not None else order.image,
            target=order.target if order.target is not None else order.image,
            phase="preflight",
            outcome=None,
            error=None,
            receipt=None,
            story=[],
            started_at_s=self._clock.wall_s(),
            ended_at_s=None,
            asleep=row.asleep,
        )

    async def _carry_out(self, order: Order, cargo: Cargo, ends: Ends, move: Move, first: Event) -> Move:
        """Runs the order's machine to its end; if this process ends before that, `recover` goes on from the journal."""
        if order.target is not None and isinstance(first, Begin):
            await self._hosts.take_back(order.target)
            self._hosts.check_takes(order.target)
        run = OrderRun(order, cargo, ends, move, self._book, self._clock)
        self._runs[move.id] = run
        try:
            finish = await run.run(first)
        finally:
            del self._runs[move.id]
        if finish.lost or finish.outcome is Outcome.LOST:
            why = "its state was lost with its host" if finish.error is None else finish.error.sentence
            self._sessions.doom(order.session, why)
        elif order.target is not None and finish.outcome is Outcome.DONE:
            await self._take_back(order.target)
            if order.image is not None:  # until now the session could have been given back to it
                self._sessions.drop_image(order.image)
        return run.move

    async def _take_back(self, host: str) -> None:
        """Where it was given back while the order was under way. What was done is done, whatever can be written."""
        try:
            await self._hosts.take_back(host)
        except RecordFailed as error:
            log.warning("host %s has a session and is still marked as given back: %s", host, error)

    def come_to(self, host: str) -> bool:
        """Whether a session is on its way to this host that the record does not give it yet."""
        return self._sessions.opens_at(host) or any(run.order.target == host for run in self._runs.values())

    # ---- what hosts tell

    def on_progress(self, notice: Progress) -> None:
        """A line for the story of a move in progress."""
        self._grants.on_progress(notice)
        run = self._runs.get(notice.move)
        if run is not None:
            run.tell_progress(
                words.SourceProgress(notice.round, notice.bytes_moved, notice.dirty_bytes, notice.frozen, notice.note)
            )

    def check_hosts(self) -> None:
        """To be called when a host's process has ended."""
        for run in self._runs.values():
            run.check_hosts()

    def discard_strays(self, link: HostLink, spawn: Callable[[Coroutine[object, object, None]], None]) -> None:
        """To be called whenever a host has said what it waits for. Returns at once."""
        assert link.facts is not None
        for move in link.facts.arrivals:
            if move not in self._runs and (link.id, move) not in self._strays:
                self._strays.add((link.id, move))
                spawn(self._discard_stray(link, move))

    async def _discard_stray(self, link: HostLink, move: str) -> None:
        """Of a move that ended without it: it did not answer when it was told so."""
        try:
            known = await self._book.move(move)
            if known.outcome is not None and known.outcome != "done":
                log.warning("host %s waits for move %s, which is over: %s", link.id, move, known.outcome)
                await link.call(Discard(move), None, DESCRIBE_WAIT_S)
        except WorldlineError as error:
            log.info("host %s can't be told yet that move %s is over: %s", link.id, move, error)
        finally:
            self._strays.discard((link.id, move))

    # ---- after a restart

    async def ended(self, move: str) -> Move:
        """The move once it is over; at once if it is. Raises `UnknownMove`."""
        found = await self._book.move(move)
        if found.outcome is None and move in self._ended:
            await self._ended[move].wait()
            found = await self._book.move(move)
        return found

    async def recover(self, spawn: Callable[[Coroutine[object, object, None]], None]) -> None:
        """Takes up what the journal shows as unfinished. Its sessions are held when this returns, and freed as each
        ends.
        """
        for move in await self._book.store.open_moves():
            self._ended[move.id], self._booked_again[move.id] = asyncio.Event(), asyncio.Event()
            held = asyncio.Event()
            spawn(self._go_on(move, held))
            await held.wait()

    async def _go_on(self, move: Move, held: asyncio.Event) -> None:
        try:
            async with self._sessions.holding(move.session, move.id):
                held.set()
                row = self._book.row(move.session)
                phase = JournalPhase(move.phase)
                owner = words.Owner(None if row.host is None else HostId(row.host), Epoch(row.epoch))
                order, ends = self._order_of(move, row, phase)
                cargo = Cargo(spec_of(row), has_witness(row), move.transport, 0, None)
                if phase is JournalPhase.COMMITTED and order.target is not None:
                    self._book.veil(_before(row, order, move))
                log.info("move %s of session %s is taken up in phase %s", move.id, row.id, phase)
                async with contextlib.AsyncExitStack() as booking:
                    goes_on = phase is JournalPhase.BEGUN and await self._book_again(order, move, row, ends, booking)
                    self._booked_again[move.id].set()
                    await self._carry_out(order, cargo, ends, move, Recovered(phase, owner, move.receipt, goes_on))
        finally:
            held.set()
            self._booked_again.pop(move.id).set()
            self._ended.pop(move.id).set()

    async def _book_again(
        self, order: Order, move: Move, row: Session, ends: Ends, booking: contextlib.AsyncExitStack
    ) -> bool:
        """Whether a booked move that was begun goes on: its hosts are reached, and its ports promised to it again."""
        if ends.source is None or ends.target is None or not self._grants.books(order.hands_over):
            return False
        try:
            for link in (ends.source, ends.target):
                await link.reached(REJOIN_WAIT_S)
            here = await _facts_of(ends.source, row)
            cargo = Cargo(here.spec, has_witness(row), move.transport, here.state_bytes, None)
            await booking.enter_async_context(self._grants.booked(order, cargo, ends, move.started_at_s))
        except WorldlineError as error:
            log.warning("move %s of session %s can't go on: %s", move.id, row.id, error)
            return False
        return True

    def _order_of(self, move: Move, row: Session, phase: JournalPhase) -> tuple[Order, Ends]:
        """The order as it was given: the commit, if it was made, has grown the epoch since."""
        parks, resumes = move.mode is Mode.PARK, move.mode is Mode.RESUME
        source = None if resumes or move.source is None else self._hosts.add(move.source)
        target = None if parks or move.target is None else self._hosts.add(move.target)
        image = move.target if parks else move.source if resumes else None
        order = Order(
            MoveId(move.id),
            SessionId(move.session),
            move.mode,
            None if source is None else HostId(source.id),
            None if target is None else HostId(target.id),
            Epoch(row.epoch - EPOCHS_GROWN.get(phase, 0)),
            row.contract,
            hands_over=move.transport in HANDS_OVER,
            image=image,
        )
        return order, self._ends(source, target)

    def _allowed(self, session: str, verb: Verb) -> Session:
        """The row, if its status allows the verb; it is held for it already. Raises what stands against it."""
        row = self._book.row(session)
        begin(SessionId(session), Status(row.status), verb, row.why)
        if row.twin_of is not None:
            raise BadValue(f"session {row.id} is the twin of {row.twin_of} and stays", session=row.id)
        return row


def _before(row: Session, order: Order, move: Move) -> Session:
    """The row of a committed session as it was shown before."""
    status = "parked" if order.source is None else "running"
    return msgspec.structs.replace(
        row, host=order.source, epoch=order.epoch, status=status, image=order.image, asleep=move.asleep
    )


def image_name(session: str, move: str) -> str:
    """The file of a park: no other move of any session writes to it."""
    return f"{session}.{move}.image"


def park_of(session: str, image: str) -> str:
    """The move that wrote the file: `image_name` the other way."""
    return image.removeprefix(f"{session}.").removesuffix(".image")


def spec_of(row: Session) -> SessionSpec:
    return SessionSpec(row.world, row.seed, row.options, row.contract)


def has_witness(row: Session) -> bool:
    return row.twin is not None or row.twin_of is not None


def owner_of(row: Session) -> str:
    assert row.host is not None, f"session {row.id} is running without an owner"
    return row.host


async def _facts_of(source: HostLink, row: Session) -> SessionFacts:
    """The session as its host has it now."""
    facts = await source.describe()
    for held in facts.sessions:
        if held.session == row.id:
            return held
    raise HostGone(f"host {source.id} does not have session {row.id}", host=source.id, session=row.id)


def _side(link: HostLink, plan: Plan, room_bytes: int) -> HostSide:
    transports = () if link.facts is None else tuple(link.facts.transports)
    return HostSide(HostId(link.id), link.alive, sys.byteorder, plan, room_bytes, transports)
