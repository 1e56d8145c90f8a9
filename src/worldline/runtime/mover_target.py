"""Drives one attempt at its target: the machine of `migration.target` on one side, an arena, lanes and a link on the
other.

Invariants
  Bytes land in memory that belongs to this attempt alone, and no engine sees them before they are verified.
  What was installed is captured again *before* the proof is answered: an importer that drops state refuses the move
  while the source still has it. A handed-over arena is installed into through private pages, and not written before
  the commit. After `discard`, or a failure, nothing of the attempt is left: link fenced, arena zeroed and closed,
  memory given back.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, assert_never

from worldline.clock import Clock
from worldline.errors import HostGone, Internal, LinkCut, WorldlineError, from_record
from worldline.migration import target_words as words
from worldline.migration.attempt import Attempt
from worldline.migration.heard import from_source
from worldline.migration.target import TargetMachine
from worldline.runtime.driver import Batches, SideWork, next_event, refuse
from worldline.runtime.host_engine import Engine, Proven
from worldline.runtime.host_handover import HandedOver
from worldline.runtime.host_worlds import Built
from worldline.runtime.hosting import EngineThread, HostedSession, Identity
from worldline.runtime.messages import PrepareTarget, SessionFailed
from worldline.runtime.mover_outbox import Outbox
from worldline.schema.fault import FaultName, fault_in
from worldline.schema.ids import Epoch, HostId, MoveId, SessionId
from worldline.schema.layout import Extent
from worldline.schema.receipt import Mode, Receipt
from worldline.snapshot.arena import Arena
from worldline.snapshot.checks import check_layout
from worldline.snapshot.rows import copy_rows, write_runs
from worldline.transport.protocol import Link, Listener, RecordIn
from worldline.verify.budget import Budget, Meter
from worldline.verify.digests import layout_digest, root
from worldline.verify.lanes import Lanes
from worldline.verify.receipts import UNSEALED, make_receipt
from worldline.verify.signing import SigningKey
from worldline.wire import records

KILLED_BY_FAULT = 70
ROWS_WAITING_MAX = 16
"""Records of rows in memory that are not yet in their place."""
TOUCHED_BYTES = 16 * 1024 * 1024
"""At once."""
BACKLOG_S = 0.5
"""How long the link of a source that has ended may still wait to be accepted."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TargetTools:
    """What a target needs of its host."""

    host: str
    lanes: Lanes
    clock: Clock
    on_failed: Callable[[SessionFailed], None]
    on_gone: Callable[[str], None]
    """Called with the move once nothing of its attempt holds memory any more."""
    signing: SigningKey
    budget: Budget


@dataclass(frozen=True, slots=True)
class Landing:
    """Where an attempt's bytes come in. `arena` is None where the transport brings the source's own."""

    listener: Listener
    arena: Arena | None
    capacity: int
    early_bytes: int = 0
    """Of a new arena, to be put in place while nothing has come yet."""


class TargetAttempt:
    """One `PrepareTarget`. `receipt` is the answer to `AwaitPrepared`."""

    def __init__(self, order: PrepareTarget, built: Built, landing: Landing, tools: TargetTools) -> None:
        self.order = order
        self.receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._built = built
        self._landing = landing
        self._tools = tools
        self._arena = landing.arena
        self._began_at_s = tools.clock.monotonic_s()
        self._deadline_at_s = self._began_at_s + order.spec.contract.completion_deadline_s
        self._frozen_at_s = self._began_at_s
        attempt = Attempt(MoveId(order.move), SessionId(order.session), Epoch(order.epoch), order.mode)
        self._machine = TargetMachine(
            attempt, landing.capacity, self._began_at_s, self._deadline_at_s, hands_over=landing.arena is None
        )
        self._events: asyncio.Queue[words.Event] = asyncio.Queue()
        self._outbox: Outbox | None = None
        self._thread = EngineThread(order.session)
        self._engine: Engine | None = None
        self._handed_over: HandedOver | None = None
        self._proof: words.Prepared | None = None
        self._hosted: asyncio.Future[HostedSession] = asyncio.get_running_loop().create_future()
        self._work = SideWork(self._work_failed)
        self._receiving: asyncio.Task[None] | None = None
        self._mapping: asyncio.Task[None] | None = None
        self._reads = Batches(self._work, self._read)
        self._puts = Batches(self._work, self._put_in_place)
        self._rows_room = asyncio.Semaphore(ROWS_WAITING_MAX)
        self._task = asyncio.create_task(self._drive(), name=f"target-{order.move}")

    @property
    def over(self) -> bool:
        """Activated or discarded."""
        return self._task.done()

    @property
    def awaited(self) -> bool:
        """See `Arrival`. In a pre-copy the seal is the first that a target hears of the freeze."""
        waits = {words.Phase.VERIFYING, words.Phase.PREPARED}
        return self._machine.phase in (waits if self.order.mode is Mode.PRECOPY else {*waits, words.Phase.RECEIVING})

    async def activate(self, epoch: int) -> HostedSession:
        """The session, ready to `start`, as owner of `epoch`. The caller has checked that the attempt is PREPARED."""
        await asyncio.shield(self.receipt)
        hosted = self._hosted
        self._events.put_nowait(words.ActivateIn(Epoch(epoch)))
        ends: list[asyncio.Future[Any]] = [self._task, hosted]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not hosted.done():
            raise Internal(f"move {self.order.move} ended at its target without a session")
        return hosted.result()

    async def discard(self) -> None:
        """Forgets the attempt; when this returns nothing of it is left. Does nothing after the end."""
        if not self.over and self._machine.phase is not words.Phase.ACTIVE:
            self._events.put_nowait(words.DiscardIn())
        await asyncio.wait([self._task])

    def source_ended(self) -> None:
        """The source's process is over. Where it has not connected, it will not."""
        if self._outbox is None and not self.over:
            self._work.spawn(self._expect_nobody())

    async def drop(self) -> None:
        """For the end of the host."""
        self._task.cancel()
        await asyncio.wait([self._task])

    # ---- the loop

    async def _drive(self) -> None:
        try:
            self._receiving = self._work.spawn(self._receive())
            self._work.spawn(self._touch())
            while self._machine.phase not in (words.Phase.ACTIVE, words.Phase.DISCARDED):
                await self._carry_out(await self._next())
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                log.exception("move %s: the target's driver failed", self.order.move)
            await self._discard(zero=self._landing.arena is not None)
            refuse(self.receipt, Internal(f"the target's driver ended: {error!r}"))
            raise
        finally:
            await self._end_work()
            await self._landing.listener.close()
            self._proof = None
            self._machine.forget()

    async def _next(self) -> words.Event:
        return await next_event(self._events, self._machine.wake_at_s, words.Deadline(), self._tools.clock)

    async def _carry_out(self, event: words.Event) -> None:
        try:
            commands = self._machine.handle(event, self._tools.clock.monotonic_s())
        except WorldlineError as error:
            log.warning("move %s at its target: %s", self.order.move, error)
            if isinstance(event, words.ActivateIn):
                self._refuse_activation(error)
                return
            commands = self._machine.handle(words.Abort(error.code, error.sentence), self._tools.clock.monotonic_s())
        for command in commands:
            await self._do(command)

    async def _do(self, command: words.Command) -> None:
        match command:
            case words.Digest():
                self._reads.add(command)
            case words.Put():
                self._puts.add(command)
            case words.SendRecord(record):
                if self._outbox is not None:
                    self._outbox.put_record(records.encode(record))
            case words.ComputeRoot(manifest, digests):
                layout = layout_digest(manifest.layout)
                self._events.put_nowait(words.RootComputed(root(layout, digests), layout))
            case words.Prepared():
                self._proof = command
                self._work.spawn(self._answer(command))
            case words.Failed(code, sentence, facts):
                refuse(self.receipt, from_record(code, sentence, facts))
            case words.Install(epoch=epoch):
                await self._come_into_force(epoch)
            case words.Discard(zero):
                await self._discard(zero)
            case words.StopReceiving():
                await self._stop_receiving()
            case words.CloseLink():
                await self._close_link()
            case _:
                assert_never(command)

    async def _expect_nobody(self) -> None:
        await asyncio.sleep(BACKLOG_S)
        if self._outbox is None:
            self._events.put_nowait(words.Abort(HostGone.code, "the source ended before it connected"))

    async def _touch(self) -> None:
        """Faults the pages in. Within a freeze that costs more than it costs the bytes to cross."""
        for at in range(0, self._landing.early_bytes, TOUCHED_BYTES):
            if self._arena is None or self._machine.phase is words.Phase.DISCARDED:
                return
            await self._tools.budget.turn()
            part = Extent(at, min(TOUCHED_BYTES, self._landing.early_bytes - at))
            await asyncio.to_thread(_fault_in, self._arena, part, self._tools.budget)

    async def _map_early(self, arena: Arena, handed_over: HandedOver) -> None:
        """The same for both mappings of what is handed over, while the source still plays."""
        await self._tools.budget.turn()
        watched = self.order.mode is Mode.PRECOPY  # a freeze reads nothing before the fence
        await asyncio.to_thread(_map_both, arena, handed_over, watched, self._tools.budget)

    # ---- receiving

    async def _receive(self) -> None:
        try:
            left_s = self._deadline_at_s - self._tools.clock.monotonic_s()
            link = await self._landing.listener.accept(left_s)
            if self._arena is None:
                assert isinstance(link.arena, Arena), "a handed-over arena is mapped by snapshot.arena"
                self._arena = link.arena
                self._handed_over = HandedOver.take(link.arena)
                self._mapping = self._work.spawn(self._map_early(self._arena, self._handed_over))
            self._outbox = Outbox(link, self._link_failed)
            self._events.put_nowait(words.LinkUp())
            while True:
                await self._take(link)
        except WorldlineError as error:
            self._link_failed(error)

    async def _take(self, link: Link) -> None:
        event = await link.receive()
        if not isinstance(event, RecordIn):
            fault = fault_in(self.order.fault, FaultName.KILL_TARGET)
            if fault is not None and fault.step is None:
                log.warning("planted: %s: this process ends now", fault)
                os._exit(KILLED_BY_FAULT)
            self._events.put_nowait(words.LandedIn(event.extent))
            return
        record = records.decode_record(event.data)
        if isinstance(record, records.RowsRecord | records.CopyRecord):
            await self._rows_room.acquire()  # what waits to be put in place is bounded, and holds the source back
        if isinstance(record, records.ManifestRecord):
            # Found while the session still plays, and remembered for the frozen cut of the same layout.
            check_layout(record.manifest.layout)
            layout_digest(record.manifest.layout)
        if isinstance(record, records.Seal):
            self._frozen_at_s = max(self._tools.clock.monotonic_s() - record.held_us / 1e6, self._began_at_s)
        if record is not None:
            self._events.put_nowait(from_source(record))

    def _link_failed(self, error: WorldlineError) -> None:
        if isinstance(error, LinkCut):
            self._events.put_nowait(words.LinkLost(error.sentence))
        else:
            self._events.put_nowait(words.Abort(error.code, error.sentence))

    async def _read(self, batch: list[words.Digest]) -> None:
        """What was asked for meanwhile is the next reading: a job a leaf would cost more than the leaf."""
        arena, lanes = self._arena, self._tools.lanes
        assert arena is not None, "leaves lie in an arena"
        extents = tuple(extent for command in batch for extent in command.extents)
        if any(command.hurry for command in batch):
            digests = await self._thread.do(partial(lanes.read, arena, extents))
        else:
            digests = await lanes.digests(arena, extents)
        found = zip(extents, digests, strict=True)
        for command in batch:
            self._events.put_nowait(words.LaneDone(command.ticket, tuple(islice(found, len(command.extents)))))

    async def _put_in_place(self, batch: list[words.Put]) -> None:
        """On one thread, in the order of the tickets."""
        arena = self._arena
        assert arena is not None, "rows lie in an arena"
        if self._machine.phase is not words.Phase.DISCARDED:
            await asyncio.to_thread(_put_rows, arena, batch)
        for put in batch:
            self._rows_room.release()
            self._events.put_nowait(words.PutDone(put.ticket))

    async def _stop_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait([self._receiving])

    # ---- proven

    async def _answer(self, proof: words.Prepared) -> None:
        """Installs, and answers with the receipt once nothing but the controller's word is missing."""
        try:
            await self._install(proof)
            receipt = self._make_receipt(proof)
        except WorldlineError as error:
            log.warning("move %s: proven, but not installed: %s", self.order.move, error)
            refuse(self.receipt, error)
            self._events.put_nowait(words.DiscardIn())
            return
        except Exception as error:  # the world's own code runs here, and its failure is the move's, not this host's
            log.exception("move %s: the world did not take the state over", self.order.move)
            refuse(self.receipt, Internal(f"the world did not take the state over: {error!r}"[:1000]))
            self._events.put_nowait(words.DiscardIn())
            return
        if not self.receipt.done():
            self.receipt.set_result(receipt)

    async def _install(self, proof: words.Prepared) -> None:
        arena = self._arena
        assert arena is not None, "proven bytes lie in an arena"
        if self._handed_over is not None:
            arena = self._handed_over
        self._engine = await self._thread.do(
            lambda: Engine.install(
                self._built.world,
                _proven(proof),
                arena,
                self._tools.clock,
                self._tools.lanes,
            )
        )

    async def _come_into_force(self, epoch: int) -> None:
        """After the commit, and, for a handed-over arena, after the source was fenced."""
        engine, order = self._engine, self.order
        assert engine is not None, "the answer was given after the installation"
        if self._handed_over is not None:
            assert self._mapping is not None, "it began when the arena came"
            await asyncio.wait([self._mapping])
            self._handed_over.own()
            if self._arena is not None:  # the read-only mapping through which it was verified
                self._arena.close(wait=False)
            proof = self._proof
            assert proof is not None, "the proof came before the commit"
            await self._thread.do(lambda: engine.read_again(_proven(proof), proof.early))
        identity = Identity(order.session, epoch, order.spec, order.witness, order.move)
        self._hosted.set_result(HostedSession(identity, self._built, engine, self._thread, self._tools.on_failed))

    def _refuse_activation(self, error: WorldlineError) -> None:
        if not self._hosted.done():
            self._hosted.set_exception(error)
        self._hosted = asyncio.get_running_loop().create_future()

    def _make_receipt(self, proof: words.Prepared) -> Receipt:
        order, now_s = self.order, self._tools.clock.monotonic_s()
        return make_receipt(
            Receipt(
                id=UNSEALED,
                move=MoveId(order.move),
                session=SessionId(order.session),
                epoch=Epoch(order.epoch + 1),
                mode=order.mode,
                transport=order.transport,
                source=order.source,
                target=order.target,
                tier=order.spec.contract.tier,
                source_plan=order.source_plan.digest,
                target_plan=self._built.plan.digest,
                qualification=None if order.qualification is None else order.qualification.id,
                block=proof.manifest.block,
                layout=proof.layout.hex(),
                source_root=proof.source_root.hex(),
                target_root=proof.target_root.hex(),
                leaf_count=proof.leaf_count,
                state_bytes=proof.manifest.layout.nbytes,
                bytes_moved=proof.bytes_landed if self._landing.arena is not None else 0,
                rounds=proof.rounds,
                pause_s=now_s - self._frozen_at_s,
                duration_s=now_s - self._began_at_s,
                made_at_s=self._tools.clock.wall_s(),
                made_by=HostId(self._tools.host),
            ),
            self._tools.signing,
        )

    # ---- the end

    async def _close_link(self) -> None:
        if self._outbox is not None:
            await self._outbox.close()

    async def _discard(self, zero: bool) -> None:
        """Order matters: first nothing writes, then nothing reads, then the memory goes."""
        await self._stop_receiving()
        await self._close_link()
        await self._landing.listener.close()
        await self._end_work()
        engine, self._engine = self._engine, None
        arena, self._arena = self._arena, None
        if engine is not None:
            await self._thread.do(engine.let_go)
        self._thread.join()
        if self._handed_over is not None:
            self._handed_over.close()
        if arena is not None and not arena.closed:
            if zero:
                arena.zero(Extent(0, arena.capacity))
            arena.close()
        self._tools.on_gone(self.order.move)

    async def _end_work(self) -> None:
        """Waits for digests and installations at work, and for nothing else."""
        mine = asyncio.current_task()
        waiting = [task for task in self._work.tasks if task is not mine]
        if self._receiving is not None:
            self._receiving.cancel()
        if waiting:
            await asyncio.wait(waiting)

    def _work_failed(self, error: BaseException) -> None:
        log.error("move %s at its target: %r", self.order.move, error, exc_info=error)
        self._events.put_nowait(words.Abort(Internal.code, repr(error)[:1000]))


def _proven(proof: words.Prepared) -> Proven:
    return Proven(proof.manifest, proof.leaves, proof.digests, proof.target_root)


def _fault_in(arena: Arena, extent: Extent, budget: Budget) -> None:
    meter = Meter(budget)
    arena.touch(extent)
    meter.count()


def _map_both(arena: Arena, handed_over: HandedOver, watched: bool, budget: Budget) -> None:
    meter = Meter(budget)
    occupied = arena.occupied()
    for extent in occupied:
        arena.touch(extent)
    handed_over.make_ready(occupied, watched)
    meter.count()


def _put_rows(arena: Arena, puts: list[words.Put]) -> None:
    for put in puts:
        match put.step:
            case words.CopyIn(copy):
                copy_rows(arena, put.manifest, copy)
            case words.RowsIn(runs, data):
                write_runs(arena, runs, data)
            case _:
                assert_never(put.step)
