"""Drives one attempt at its source: the machine of `migration.source` on one side, a session, a link and a clock on
the other.

Invariants
  Only the machine decides whether the engine is held; here its words are carried out in order.
  Once the answer to `RunSource` was a seal, nothing but the controller's word or the target's refusal thaws the
  session: not a lost controller, not a lost link, not time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from worldline.clock import Clock
from worldline.errors import Internal, LinkCut, Malformed, WorldlineError, from_record
from worldline.migration import source_words as words
from worldline.migration.attempt import Attempt
from worldline.migration.grains import Step
from worldline.migration.heard import from_target
from worldline.migration.rounds import Limits
from worldline.migration.source import SourceMachine
from worldline.runtime.driver import SideWork, next_event, refuse
from worldline.runtime.host_engine import Read, Survey, Wish
from worldline.runtime.hosting import HostedSession
from worldline.runtime.messages import Endpoint, Progress, RunSource, SourceSealed
from worldline.runtime.mover_allowance import Allowance
from worldline.runtime.mover_outbox import Outbox
from worldline.schema.fault import FaultName, fault_in
from worldline.schema.ids import Epoch, MoveId, SessionId
from worldline.schema.layout import META_SEGMENT, Extent, Manifest
from worldline.schema.receipt import Mode
from worldline.schema.rows import Copy, Runs
from worldline.snapshot.rows import read_runs
from worldline.transport.protocol import ArenaBytes, Link, RecordIn, Transport
from worldline.verify.digests import root
from worldline.wire import records

CONNECT_S = 10.0
BATCH_BYTES = 2 * 1024 * 1024
"""Of rows that are read for the link at once: larger pieces are memory that the system hands out anew each time."""
MESSAGE_BYTES_MAX = 64 * 1024
"""Records up to this are messages, which need no grant; rows of a rolling cache are bytes of the arena."""
_SEALED = frozenset({words.Phase.SEALED, words.Phase.PREPARED})
"""From here on whose the session is stands in the record, and only there."""
_FROZEN = _SEALED | {words.Phase.FROZEN}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something failed here. What it means depends on the phase in which it is heard, not on the one in which it
    happened: before the seal it ends the attempt, after it only the controller's word does.
    """

    code: str
    sentence: str

    def heard_in(self, phase: words.Phase) -> words.Event:
        return words.LinkLost(self.sentence) if phase in _SEALED else words.Abort(self.code, self.sentence)


@dataclass(frozen=True, slots=True)
class SourceTools:
    """What a source needs of its host."""

    transport: Transport
    clock: Clock


class SourceRun:
    """One `RunSource`. `sealed` is its answer; `thaw` and `retire` are the controller's words after it."""

    def __init__(
        self,
        order: RunSource,
        endpoint: Endpoint,
        session: HostedSession,
        tools: SourceTools,
        report: Callable[[Progress], None],
    ) -> None:
        self.order = order
        self._endpoint = endpoint
        self._tell = report
        self._told: Progress | None = None
        self.session = session
        self.sealed: asyncio.Future[SourceSealed] = asyncio.get_running_loop().create_future()
        self._tools = tools
        self._started_at_s = tools.clock.monotonic_s()
        attempt = Attempt(MoveId(order.move), SessionId(order.session), Epoch(order.epoch), order.mode)
        self._allowance = None if order.grant_bytes is None else Allowance(tools.clock)
        limits = Limits(rolls=not tools.transport.hands_over)
        if order.grant_bytes is not None:
            # Several posts fit a grant: the line is not idle while the next grant is on its way.
            chunk_bytes = max(order.grant_bytes // 4, limits.tail_bytes_min)
            limits = replace(limits, chunk_bytes=min(chunk_bytes, limits.chunk_bytes))
        self._machine = SourceMachine(attempt, session.identity.spec.contract, self._started_at_s, limits)
        self._events: asyncio.Queue[words.Event | Trouble] = asyncio.Queue()
        self._outbox: Outbox | None = None
        self._work = SideWork(self._work_failed)
        self._survey: Survey | None = None
        self._cutting: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._drive(), name=f"source-{order.move}")

    @property
    def over(self) -> bool:
        """Thawed or retired, and nothing of it is still at work."""
        return self._task.done()

    async def thaw(self, code: str, sentence: str) -> None:
        """The attempt is off: when this returns, the session plays. Does nothing after the end."""
        if not self.over:
            self._events.put_nowait(words.Abort(code, sentence))
        await asyncio.wait([self._task])

    async def retire(self) -> bool:
        """The session is the target's: when this returns True, link and engine thread are joined and the arena is
        unmapped.

        False where the attempt had been given up here before: the caller decides by the record.
        """
        if self._machine.phase not in {*_SEALED, words.Phase.RETIRED}:
            return False
        if not self.over:
            self._events.put_nowait(words.Retire())
        await asyncio.wait([self._task])
        return self._machine.phase is words.Phase.RETIRED

    def report_to(self, report: Callable[[Progress], None]) -> None:
        """From now on, beginning with what was told last."""
        self._tell = report
        if self._told is not None and not self.over:
            report(self._told)

    def grant(self, bytes_per_s: float, for_s: float) -> None:
        """The controller lets this move send. Does nothing for one that needs no grants."""
        if self._allowance is not None:
            self._allowance.grant(bytes_per_s, for_s)

    async def drop(self) -> None:
        """For the end of the host or of the session: everything of this attempt ends, whatever its phase."""
        self._task.cancel()
        await asyncio.wait([self._task])

    # ---- the loop

    async def _drive(self) -> None:
        try:
            self._work.spawn(self._connect())
            while not self._finished():
                await self._carry_out(await self._next())
        except BaseException as error:
            refuse(self.sealed, Internal(f"the source's driver ended: {error!r}"))
            if self._machine.phase not in _SEALED:
                self.session.release(self.order.move)
            if not isinstance(error, asyncio.CancelledError):
                log.exception("move %s: the source's driver failed", self.order.move)
            raise
        finally:
            await self._wind_up()

    def _finished(self) -> bool:
        ended = self._machine.phase in (words.Phase.THAWED, words.Phase.RETIRED)
        return ended and (self._cutting is None or self._cutting.done()) and self._events.empty()

    async def _next(self) -> words.Event | Trouble:
        return await next_event(self._events, self._machine.wake_at_s, words.Deadline(), self._tools.clock)

    async def _carry_out(self, event: words.Event | Trouble) -> None:
        if isinstance(event, Trouble):
            event = event.heard_in(self._machine.phase)
        try:
            commands = self._machine.handle(event, self._tools.clock.monotonic_s())
        except WorldlineError as error:
            log.warning("move %s at its source: %s", self.order.move, error)
            if self._machine.phase in _SEALED:
                return  # whose the session is, the record says; a peer's nonsense does not
            commands = self._machine.handle(words.Abort(error.code, error.sentence), self._tools.clock.monotonic_s())
        late = fault_in(self.order.fault, FaultName.LATE_WRITE) is not None
        if late and isinstance(event, words.CutTaken) and self._machine.phase in _FROZEN:
            log.warning("planted: %s", self.order.fault)
            _write_late(event.manifest, self.session.engine.arena)
        for command in commands:
            await self._do(command)

    async def _do(self, command: words.Command) -> None:
        match command:
            case words.TakeCut():
                if command.compares and self._tools.transport.hands_over:
                    self._listen_to_block()
                self._cutting = self._work.spawn(self._take_cut(self._wish(command)))
            case words.ReadRest():
                self._cutting = self._work.spawn(self._read_rest())
            case words.Thaw():
                await self._thaw()
            case words.SendRecord(record):
                if self._outbox is not None:
                    self._outbox.put_record(records.encode(record))
            case words.Post():
                assert self._outbox is not None, "a post follows a connection"
                self._outbox.put_post(lambda link: self._post(link, command))
            case words.PostEarly(extents, deadline_s):
                assert self._outbox is not None, "a cut is asked for over a link"
                self._outbox.put_post(lambda link: _name(link, extents, deadline_s))
            case words.Report():
                self._report(command)
            case words.Sealed():
                self._answer_sealed(command)
            case words.Failed(code, sentence, facts):
                refuse(self.sealed, from_record(code, sentence, facts))
            case words.CloseLink():
                await self._close_link()
            case words.Fence():
                await self._close_link()
                # What was handed over is the target's memory now, and the target waits for the fence alone.
                await self.session.close(wait=not self._tools.transport.hands_over)
            case _:
                assert_never(command)

    async def _wind_up(self) -> None:
        for task in self._work.tasks:
            task.cancel()
        if self._work.tasks:
            await asyncio.wait(self._work.tasks)
        self.session.engine.let_go_on()
        self._survey = None
        self._machine.forget()
        await self._close_link()

    # ---- effects

    async def _connect(self) -> None:
        endpoint = self._endpoint
        try:
            link = await self._tools.transport.connect(
                endpoint.address, endpoint.key, self.session.engine.arena, CONNECT_S
            )
        except WorldlineError as error:
            self._events.put_nowait(Trouble(error.code, error.sentence))
            return
        self._outbox = Outbox(link, self._link_failed)
        self._events.put_nowait(words.Connected())
        await self._receive(link)

    async def _receive(self, link: Link) -> None:
        try:
            while True:
                event = await link.receive()
                if not isinstance(event, RecordIn):
                    raise Malformed("bytes landed at a source")
                record = records.decode_record(event.data)
                if record is not None:
                    self._events.put_nowait(from_target(record))
        except WorldlineError as error:
            self._link_failed(error)

    def _link_failed(self, error: WorldlineError) -> None:
        """A broken format or a missed deadline ends the attempt under its own name; a closed link is a closed link."""
        if isinstance(error, LinkCut):
            self._events.put_nowait(words.LinkLost(error.sentence))
        else:
            self._events.put_nowait(Trouble(error.code, error.sentence))

    def _wish(self, order: words.TakeCut) -> Wish:
        """What is handed over is not sent: reading a leaf costs as much as having it read again. Over a wire it pays to
        know what need not be sent.
        """
        hands_over = self._tools.transport.hands_over
        if order.compares:
            read = Read.DOUBTFUL if hands_over else Read.ALL
        else:
            read = Read.ROLLING if order.remembers else Read.NOTHING
        may_be_last = order.compares or self.order.mode is not Mode.PRECOPY
        return Wish(read, withdraw=may_be_last, rows=order.remembers)

    def _listen_to_block(self) -> None:
        """Until the cut: what the block in the making leaves final, the target can read beside this side."""
        loop, events = asyncio.get_running_loop(), self._events

        def tell(extents: tuple[Extent, ...]) -> None:
            loop.call_soon_threadsafe(events.put_nowait, words.Announced(extents))

        self.session.engine.tell_final(tell)

    async def _take_cut(self, wish: Wish) -> None:
        move, asked_at_s = self.order.move, self._tools.clock.monotonic_s()
        try:
            await self.session.hold(move)
        except WorldlineError as error:
            self._events.put_nowait(Trouble(error.code, error.sentence))
            return
        finally:
            self.session.engine.tell_final(None)
        try:
            survey = await self.session.do(lambda engine: engine.survey(wish))
        except WorldlineError as error:
            self.session.release(move)
            self._events.put_nowait(Trouble(error.code, error.sentence))
            return
        except BaseException:
            self.session.release(move)
            raise
        self._survey = survey
        self._events.put_nowait(self._cut_taken(survey, asked_at_s))

    def _cut_taken(self, survey: Survey, asked_at_s: float) -> words.CutTaken:
        # A session that stood idle was held from when the cut was asked for, not since its last block long ago.
        held_at_s = max(survey.at_s, asked_at_s)
        # The tree's text was written by the capture just now, through the mapping that the watch sees; a target that
        # shares the memory is asked to read it after every freeze, so that no freeze goes without a reading there.
        doubted = frozenset(range(survey.text_leaves)) if self._tools.transport.hands_over else frozenset()
        return words.CutTaken(
            survey.manifest,
            survey.digests,
            survey.root,
            survey.layout,
            survey.number,
            held_at_s,
            survey.rows,
            doubted,
        )

    async def _read_rest(self) -> None:
        begun = self._survey
        assert begun is not None, "the rest is that of a survey"
        try:
            survey = await self.session.do(lambda engine: engine.finish(begun))
        except WorldlineError as error:
            self._events.put_nowait(Trouble(error.code, error.sentence))
            return
        digests = tuple(digest for digest in survey.digests if digest is not None)
        self._events.put_nowait(words.RestRead(digests, root(survey.layout, digests)))

    async def _thaw(self) -> None:
        survey, goes_on = self._survey, self._machine.phase is not words.Phase.THAWED
        if goes_on and survey is not None and self.session.held_by == self.order.move:
            await self.session.do(lambda engine: engine.keep_quiet(survey.manifest))
        self.session.release(self.order.move)

    async def _post(self, link: Link, post: words.Post) -> None:
        allowance = self._allowance
        ends_at_s, idle_before_s = self._tools.clock.monotonic_s() + post.deadline_s, self._idle_s
        for batch in _batches(post.steps):
            for record in await asyncio.to_thread(_records_of, batch, self.session.engine.arena):
                if allowance is None or len(record) <= MESSAGE_BYTES_MAX:
                    await link.send(record)
                else:
                    await allowance.send(link, record, ends_at_s - self._tools.clock.monotonic_s())
        crossed_bytes = sum(step.nbytes for step in post.steps if isinstance(step, Runs))
        if post.extents:
            left_s = ends_at_s - self._tools.clock.monotonic_s()
            send = link.post if allowance is None else partial(allowance.post, link)
            crossed_bytes += await send(post.extents, max(left_s, 0.001))
        self._events.put_nowait(words.Posted(crossed_bytes, self._idle_s - idle_before_s))

    @property
    def _idle_s(self) -> float:
        return 0.0 if self._allowance is None else self._allowance.idle_s

    async def _close_link(self) -> None:
        if self._outbox is not None:
            await self._outbox.close()

    def _report(self, step: words.Report) -> None:
        who = self.session.identity
        log.info("session %s epoch %d move %s: %s", who.session, who.epoch, self.order.move, step.note)
        self._told = Progress(
            self.order.move, step.round, step.bytes_moved, step.dirty_bytes, step.frozen, step.note,
            None if self._allowance is None else self._allowance.bytes_per_s,
        )  # fmt: skip
        self._tell(self._told)

    def _answer_sealed(self, seal: words.Sealed) -> None:
        if not self.sealed.done():
            self.sealed.set_result(
                SourceSealed(
                    root=seal.root.hex(),
                    block=seal.block,
                    number=seal.number,
                    frozen_at_s=seal.frozen_at_s,
                    bytes_moved=seal.bytes_moved,
                    rounds=seal.rounds,
                )
            )

    def _work_failed(self, error: BaseException) -> None:
        log.error("move %s at its source: %r", self.order.move, error, exc_info=error)
        self._events.put_nowait(Trouble(Internal.code, repr(error)[:1000]))


async def _name(link: Link, extents: tuple[Extent, ...], deadline_s: float) -> None:
    await link.post(extents, deadline_s)


def _batches(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """In order; as many together as are read in one visit of a thread."""
    batch: list[Step] = []
    nbytes = 0
    for step in steps:
        batch.append(step)
        nbytes += step.nbytes if isinstance(step, Runs) else 0
        if nbytes >= BATCH_BYTES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _records_of(steps: list[Step], arena: ArenaBytes) -> list[bytes]:
    return [_record_of(step, arena) for step in steps]


def _record_of(step: Step, arena: ArenaBytes) -> bytes:
    """A step as it crosses the link: rows with their bytes, as they are now."""
    match step:
        case Copy():
            return records.encode(records.CopyRecord(step))
        case Runs():
            return records.encode(records.RowsRecord(step, read_runs(arena, step)))
        case _:
            assert_never(step)


def _write_late(manifest: Manifest, arena: ArenaBytes) -> None:
    """Fault 18: a writer that the freeze does not stop. Spoils the tree's text, which the next capture writes anew,
    so that the demonstration does not harm the source.
    """
    names = [segment.name for segment in manifest.layout.segments]
    placement = manifest.placements[names.index(META_SEGMENT)]
    assert not placement.resident, "the tree's text is gathered"
    octets = arena.bytes_at(Extent(placement.offset, 1))
    octets[0] ^= 1
