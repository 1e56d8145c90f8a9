"""Drives one hand-over machine: its commands become calls, journal lines and the swap; what comes of them, its events.

Nothing is decided here. A call that a host answers late, after the order is over, is cancelled and its answer dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

import msgspec

from worldline.clock import Clock
from worldline.control import order as words
from worldline.control.handoff import Handoff
from worldline.control.order import SIDE_OF, Call, Command, Event, JournalPhase, Order, Side
from worldline.errors import (
    HostGone,
    RecordFailed,
    TimedOut,
    Unauthenticated,
    UnknownMove,
    UnknownSession,
    WorldlineError,
)
from worldline.runtime import messages as wire
from worldline.runtime.controller_book import Book, with_receipt
from worldline.runtime.controller_ends import Cargo, Ends
from worldline.runtime.controller_hosts import HostLink
from worldline.runtime.controller_requests import Request, request_of
from worldline.runtime.driver import next_event
from worldline.runtime.error_record import ErrorRecord
from worldline.runtime.messages import Move
from worldline.runtime.store import Change, Owner
from worldline.runtime.trouble import LATE_S, STEP_OF, STEP_OF_CALL, STEP_OF_LINE, Trouble
from worldline.schema.fault import FaultName, Step
from worldline.schema.ids import Epoch, HostId
from worldline.schema.receipt import Mode, Receipt

CALL_WAIT_S = 20.0
"""For calls that do no bulk work; the machine asks again where it matters."""
BULK_MARGIN_S = 30.0
"""Beyond the contract's completion deadline, which the machine itself keeps."""
RECORD_PAUSE_S = 0.25
"""Between two tries to write a line."""

replace = msgspec.structs.replace
log = logging.getLogger(__name__)


class OrderRun:
    """One order from its first event to its end."""

    def __init__(self, order: Order, cargo: Cargo, ends: Ends, move: Move, book: Book, clock: Clock) -> None:
        """The contract's times count from when `move` was begun, also if that was by a controller before this one."""
        self.order = order
        self.move = move
        self._cargo = cargo
        self._ends = ends
        self._book = book
        self._clock = clock
        self._machine = Handoff(order, clock.monotonic_s() - max(0.0, clock.wall_s() - move.started_at_s))
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._calls: set[asyncio.Task[None]] = set()
        self._told_gone: set[Side] = set()
        self._finish: words.Finish | None = None
        self._trouble = Trouble(cargo.fault, ends.pid)
        self._refusal: RecordFailed | None = None

    def feed(self, event: Event) -> None:
        self._events.put_nowait(event)

    def tell_progress(self, event: words.SourceProgress) -> None:
        """From outside. It decides nothing, so it may come late, twice or never."""
        befallen = self._trouble.notice(Step.PROGRESS)
        if befallen is FaultName.LOSE_NOTICE:
            return
        if befallen in {FaultName.LATE_NOTICE, FaultName.REORDER_NOTICE}:
            asyncio.get_running_loop().call_later(LATE_S, self.feed, event)
            return
        self.feed(event)
        if befallen is FaultName.REPEAT_NOTICE:
            self.feed(event)

    def check_hosts(self) -> None:
        """To be called when a host's process has ended."""
        for side in self._ends.gone():
            if side not in self._told_gone:
                self._told_gone.add(side)
                self.feed(words.HostGone(side))
                if side is Side.SOURCE and self._ends.target is not None:
                    self._ends.target.tell(wire.SourceEnded(self.order.move))

    async def run(self, first: Event) -> words.Finish:
        """Returns when the order is over and its last line is durable. Raises `RecordFailed` where its first line
        could not be written: then nothing was asked of anybody.
        """
        with self._book.telling(self.order.session, self._trouble):
            return await self._run(first)

    async def _run(self, first: Event) -> words.Finish:
        self.feed(first)
        self.check_hosts()
        try:
            async with asyncio.TaskGroup() as calls:
                while self._finish is None:
                    event = await self._next()
                    if isinstance(event, words.TargetPrepared | words.ImageWritten):
                        event = await self._proof(event)
                    for command in self._machine.handle(event, self._clock.monotonic_s()):
                        await self._execute(command, calls)
                    self._show()
                for call in self._calls:
                    call.cancel()
        except BaseExceptionGroup:
            if self._refusal is not None:
                raise self._refusal from None
            raise
        finally:
            self._calls.clear()
        await self._end(self._finish)
        return self._finish

    async def _next(self) -> Event:
        return await next_event(self._events, self._machine.wake_at_s, words.DeadlinePassed(), self._clock)

    async def _proof(self, event: words.TargetPrepared | words.ImageWritten) -> Event:
        await self._trouble.reach(Step.PREPARED)
        if not self._trouble.denies_proof:
            return event
        return words.PeerFailed(
            _PROOF_OF[self.order.mode], TimedOut.code, "planted: the proof is turned down, so that there is an undoing"
        )

    async def _execute(self, command: Command, calls: asyncio.TaskGroup) -> None:
        step = STEP_OF.get(type(command))
        if step is not None:
            await self._trouble.reach(step)
        match command:
            case words.Journal():
                await self._journal(command)
            case words.SwapOwner():
                self.feed(await self._swap(command))
            case words.ReturnOwner():
                self.feed(await self._give_back(command))
            case words.PublishOwner():
                self._book.unveil(self.order.session)
            case words.Finish():
                self._finish = command
            case words.ReadOwner():
                self._spawn(calls, self._read_owner(command.delay_s))
            case _:
                self._spawn(calls, self._call(request_of(command, self.order, self._cargo)))

    async def _call(self, request: Request) -> None:
        call = request.call
        side = SIDE_OF[call]
        await asyncio.sleep(request.delay_s)
        try:
            if not self._ends.same_process(side):
                raise HostGone(f"host {self._ends.link(side).id} is another process now", call=str(call))
            wait_s = CALL_WAIT_S if call in SHORT else self.order.contract.completion_deadline_s + BULK_MARGIN_S
            link = self._ends.link(side)
            ask = link.call_while_it_answers if call in GIVEN_UP_IN_SILENCE else link.call
            result = await self._trouble.carry(
                STEP_OF_CALL[call], lambda: ask(request.message, request.answered_by, wait_s)
            )
            _check_signer(result, link)
            event = request.event(result)
        except (UnknownSession, UnknownMove) as error:
            # The process that had it is over, and this one answers in its name: see `Hosts`.
            log.warning("move %s: %s answered %s", self.order.move, side, error)
            event = words.HostGone(side) if call in NEEDS_MEMORY else _failed(call, error)
        except WorldlineError as error:
            event = _failed(call, error)
        await self._trouble.hear(STEP_OF_CALL[call], lambda: self.feed(event))

    async def _read_owner(self, delay_s: float) -> None:
        while True:
            await asyncio.sleep(delay_s)
            try:
                self._trouble.read()
                row = await self._book.refresh(self.order.session)
                held = await self._book.store.move(self.order.move)
            except Exception:
                log.exception("the owner of session %s can't be read", self.order.session)
                await asyncio.sleep(RECORD_PAUSE_S)
                continue
            if held is not None:
                self.move = replace(held, story=self._story())  # it has the receipt, if the swap was made
            host = None if row.host is None else HostId(row.host)
            self.feed(words.OwnerRead(words.Owner(host, Epoch(row.epoch))))
            return

    # ---- the record

    async def _journal(self, command: words.Journal) -> None:
        """A line of the journal. Its facts are the reason (ABORTED) or the outcome (DONE), so that a restart finds
        them.
        """
        facts = command.facts
        move = replace(self.move, phase=str(command.phase), story=self._story())
        if command.phase is JournalPhase.ABORTED:
            move = replace(move, error=ErrorRecord(str(facts["code"]), str(facts["sentence"]), {}))
        if command.phase is JournalPhase.DONE:
            move = replace(move, outcome=str(facts["outcome"]), ended_at_s=self._clock.wall_s())
        self.move = move
        step = STEP_OF_LINE[command.phase]
        await self._trouble.reach(step)
        if command.phase is not JournalPhase.BEGUN:
            return await self._write(move, step)
        self._trouble.spoil(step, self._book.store)
        try:
            await self._book.journal(move)
        except RecordFailed as error:
            self._refusal = error
            raise

    async def _write(self, move: Move, step: Step) -> None:
        """Durable when it returns: a disk that is full for a while holds up an order that was begun, and never leaves
        it unfinished.
        """
        while True:
            try:
                self._trouble.spoil(step, self._book.store)
                return await self._book.journal(move)
            except Exception:
                log.exception("move %s: its line %s can't be written yet", move.id, move.phase)
            await asyncio.sleep(RECORD_PAUSE_S)

    async def _swap(self, command: words.SwapOwner) -> Event:
        """THE COMMIT."""
        row = self._book.row(self.order.session)
        after = replace(
            row,
            host=command.after.host,
            epoch=command.after.epoch,
            cut_block=command.receipt.block,
            plan=command.receipt.target_plan,
            status="parked" if command.after.host is None else "running",
            image=self.order.image if command.after.host is None else None,
            receipts=with_receipt(row, command.receipt),
            why=None,
            asleep=self._cargo.asleep,
        )
        move = replace(self.move, phase=str(JournalPhase.COMMITTED), receipt=command.receipt, story=self._story())
        before = Owner(command.before.host, command.before.epoch)
        if command.after.host is not None:
            self._book.veil(row)
        try:
            self._trouble.spoil(Step.SWAP, self._book.store)
            ok = await self._book.swap(Change(after, before, move, str(JournalPhase.BEGUN), command.receipt))
            self._trouble.written()
        except Exception as error:
            log.exception("the commit of move %s has an unknown outcome", self.order.move)
            return words.SwapUnknown(f"{type(error).__name__}: {error}")
        if ok:
            self.move = move
        return words.Swapped(ok)

    async def _give_back(self, command: words.ReturnOwner) -> Event:
        """The second swap: the session is where it was, at the cut of the commit."""
        receipt = self.move.receipt
        assert receipt is not None, "what is given back was committed"
        after = replace(
            self._book.row(self.order.session),
            host=command.after.host,
            epoch=command.after.epoch,
            plan=receipt.source_plan,
            status="parked" if command.after.host is None else "running",
            image=self.order.image,
            why=command.why.sentence,
            asleep=self.move.asleep,
        )
        why = ErrorRecord(command.why.code, command.why.sentence, dict(command.why.facts))
        move = replace(self.move, phase=str(JournalPhase.RETURNED), error=why, story=self._story())
        before = Owner(command.before.host, command.before.epoch)
        try:
            self._trouble.spoil(Step.RETURN, self._book.store)
            ok = await self._book.swap(Change(after, before, move, str(JournalPhase.COMMITTED)))
        except Exception as error:
            log.exception("whether move %s was taken back is unknown", self.order.move)
            return words.SwapUnknown(f"{type(error).__name__}: {error}")
        if ok:
            self.move = move
        return words.Swapped(ok)

    async def _end(self, finish: words.Finish) -> None:
        error = finish.error
        self.move = replace(
            self.move,
            outcome=str(finish.outcome),
            error=self.move.error if error is None else ErrorRecord(error.code, error.sentence, dict(error.facts)),
            story=self._story() + ([] if finish.note is None else [finish.note]),
            ended_at_s=self._clock.wall_s(),
        )
        await self._write(self.move, Step.END)

    def _show(self) -> None:
        story = self._story()
        if story != self.move.story:
            self.move = replace(self.move, story=story)
            self._book.show_move(self.move)

    def _story(self) -> list[str]:
        return list(self._machine.story)

    def _spawn(self, calls: asyncio.TaskGroup, work: Coroutine[object, object, None]) -> None:
        task = calls.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)


_PROOF_OF = {
    Mode.FREEZE: Call.AWAIT_PREPARED,
    Mode.PRECOPY: Call.AWAIT_PREPARED,
    Mode.PARK: Call.WRITE_IMAGE,
    Mode.RESUME: Call.LOAD_IMAGE,
}
"""The call that is answered with a proof."""
SHORT = frozenset({Call.ACTIVATE, Call.RETIRE, Call.DISCARD, Call.THAW})
"""Calls that do no bulk work."""
GIVEN_UP_IN_SILENCE = frozenset({Call.PREPARE_TARGET, Call.LOAD_IMAGE, Call.AWAIT_PREPARED, Call.DISCARD, Call.RETIRE})
"""Calls to a host that owns nothing of the session: once it is silent they have failed, and the order goes on. What it
does of them later is what it was to do.
"""
NEEDS_MEMORY = frozenset({Call.ACTIVATE, Call.THAW})
"""Calls about state in a host's memory that are repeated until they succeed: a process that does not know it is not the
one that had it."""


def _failed(call: Call, error: WorldlineError) -> Event:
    return words.PeerFailed(call, error.code, error.sentence, dict(error.facts))


def _check_signer(answer: object, link: HostLink) -> None:
    """Raises `Unauthenticated` for a receipt that does not name the key under which its host is recorded."""
    if isinstance(answer, Receipt) and link.facts is not None and answer.signer != link.facts.signer:
        raise Unauthenticated(f"host {link.id} answered with a receipt under a key that is not its own", host=link.id)
