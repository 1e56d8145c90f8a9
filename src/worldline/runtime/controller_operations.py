"""Operations: a host emptied, a fleet evened out or packed, one session after the other.

Invariants
  An operation uses the verbs that a person has, so each session has the same guarantees; it holds none between two.
  A step that is refused leaves its session where it was, playing, and is told with its reason.
  What an operation is for is in the record before its first step. A controller that begins anew takes up those that
  have not ended: it plans anew from what is, so nothing is done twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence

import msgspec

from worldline.capacity.prewarm import warm_buffer
from worldline.clock import Clock
from worldline.control.placement import Deed, Kind, Placement, Rules, SessionBudget, empty, even, pack
from worldline.errors import (
    BadValue,
    OperationInProgress,
    RecordFailed,
    Refused,
    Unavailable,
    UnknownOperation,
    WorldlineError,
)
from worldline.runtime.controller_book import Book
from worldline.runtime.controller_hosts import Hosts
from worldline.runtime.controller_moves import Moves
from worldline.runtime.controller_survey import Survey, Surveyor
from worldline.runtime.fleet_messages import (
    AT_ONCE_MAX,
    Operation,
    OperationChanged,
    OperationLeft,
    OperationRequest,
    OperationStep,
    Outcome,
    StepState,
)
from worldline.runtime.messages import Cordon, MoveRequest, ParkRequest, ResumeRequest
from worldline.runtime.refusal import raise_refusal
from worldline.schema.receipt import Mode
from worldline.transport.registry import FLEET

PASSES_MAX = 3
"""Of one emptying: what was refused is planned anew."""
PASS_PAUSE_S = 1.0
EARLIEST = "earliest_in_s"
"""The fact of a refusal for want of a port's time."""
ROOM_WAIT_S = 60.0
ROOM_PAUSE_S = 0.05
RECONNECT_WAIT_S = 10.0
RECONNECT_POLL_S = 0.1
RECORD_PAUSE_S = 0.25
"""Between two tries to write an end."""
KEPT_MAX = 64
MISS_MAX = 0.01
"""Of those who come back, how many may find no room that was kept."""
RESUME_S = 1.0
"""How long a resume takes where none was measured."""

replace = msgspec.structs.replace
log = logging.getLogger(__name__)


class Operations:
    """Those under way and the last that ended, by id."""

    def __init__(self, hosts: Hosts, moves: Moves, book: Book, clock: Clock, draw: Callable[[str], str]) -> None:
        """`draw` makes a new id that begins with the given letter."""
        self._hosts = hosts
        self._moves = moves
        self._book = book
        self._clock = clock
        self._draw = draw
        self._surveyor = Surveyor(hosts, book, clock)
        self._known: dict[str, Operation] = {}
        self._cancelled: dict[str, asyncio.Event] = {}

    # ---- what is asked

    async def begin(
        self, request: OperationRequest, spawn: Callable[[Coroutine[object, object, None]], None]
    ) -> Operation:
        """After success it runs on by itself, or, for a dry run, has told its plan. Raises what stands against it
        before anything is begun.
        """
        self._check(request)
        if request.dry_run:
            return _planned(self._new(request), await self._place(request), "planned", self._clock.wall_s())
        operation = self._known_from_now(self._new(request))
        try:
            if request.kind in {Kind.DRAIN, Kind.EVACUATE} and request.host is not None:
                await self.cordon(request.host, released=False)
            await self._keep(operation)
        except BaseException:
            del self._known[operation.id], self._cancelled[operation.id]
            raise
        spawn(self._run(operation))
        return operation

    async def load(self, spawn: Callable[[Coroutine[object, object, None]], None]) -> None:
        """The last operations; those that have not ended go on."""
        for operation in await self._book.store.operations(KEPT_MAX):
            self._known_from_now(operation)
            if operation.outcome is None:
                log.info("operation %s, a %s, is taken up again", operation.id, operation.request.kind)
                spawn(self._go_on(operation))

    def all(self) -> list[Operation]:
        return list(self._known.values())

    def get(self, operation: str) -> Operation:
        """Raises `UnknownOperation`."""
        found = self._known.get(operation)
        if found is None:
            raise UnknownOperation(f"there is no operation {operation[:80]!r}", operation=operation[:80])
        return found

    async def cancel(self, operation: str) -> Operation:
        """Nothing more is begun, by no controller after this one either. Raises `UnknownOperation`, and `RecordFailed`
        where only this one knows.
        """
        found = self.get(operation)
        if found.id in self._cancelled:
            self._cancelled[found.id].set()
            found = self._known[found.id] = replace(found, cancelled=True)
            await self._book.store.keep_operation(found)
        return found

    def _known_from_now(self, operation: Operation) -> Operation:
        """No other operation on its host is begun from here on, and it can be cancelled."""
        self._known[operation.id] = operation
        if operation.outcome is None:
            cancelled = self._cancelled[operation.id] = asyncio.Event()
            if operation.cancelled:
                cancelled.set()
        return operation

    async def cordon(self, host: str, *, released: bool) -> None:
        """The host takes no session from now on. An operator's cordon is not made weaker by a consolidation."""
        link = self._hosts.get(host)
        async with self._hosts.cordoning:
            if link.cordon is None or link.cordon.released:
                await self._hosts.set_cordon(link, Cordon(self._clock.wall_s(), released))

    async def uncordon(self, host: str) -> None:
        """It takes sessions again. Raises `OperationInProgress` while an operation empties it."""
        operation = self._emptying(host)
        if operation is not None:
            raise OperationInProgress(
                f"operation {operation.id} is emptying host {host}; cancel it first", operation=operation.id
            )
        async with self._hosts.cordoning:
            await self._hosts.set_cordon(self._hosts.get(host), None)

    def _emptying(self, host: str) -> Operation | None:
        """The operation that empties the host now."""
        running = (one for one in self._known.values() if one.outcome is None)
        return next((one for one in running if one.request.host == host), None)

    def _check(self, request: OperationRequest) -> None:
        names_host = request.kind in {Kind.DRAIN, Kind.EVACUATE}
        if names_host != (request.host is not None):
            raise BadValue(f"a {request.kind} {'names the host to empty' if names_host else 'names no host'}")
        if request.mode not in {Mode.FREEZE, Mode.PRECOPY}:
            raise BadValue(f"a move's mode is freeze or precopy, not {request.mode}", mode=str(request.mode))
        if request.every_s is not None and (names_host or not 0.1 <= request.every_s <= 86_400):
            raise BadValue("only a rebalance or a consolidation is repeated, every 0.1 s to a day")
        if request.transport not in FLEET:
            raise BadValue(
                f"an operation moves over {' or '.join(FLEET)}, not {request.transport[:80]!r}",
                transport=request.transport[:80],
            )
        if not 1 <= request.at_once <= AT_ONCE_MAX:
            raise BadValue(f"at_once is 1 to {AT_ONCE_MAX}, and is {request.at_once}")
        if request.hosts_min < 1:
            raise BadValue(f"hosts_min is at least 1, and is {request.hosts_min}")
        if not request.idle_s >= 0:
            raise BadValue(f"idle_s is at least 0, and is {request.idle_s}")
        if request.host is not None:
            self._hosts.living(request.host)
            other = None if request.dry_run else self._emptying(request.host)
            if other is not None:
                raise OperationInProgress(
                    f"operation {other.id} is emptying host {request.host} already", operation=other.id
                )

    def _new(self, request: OperationRequest) -> Operation:
        return Operation(
            id=self._draw("o"),
            request=request,
            steps=[],
            left=[],
            emptied=[],
            passes=0,
            outcome=None,
            started_at_s=self._clock.wall_s(),
            ended_at_s=None,
            arena_bytes_total=0,
            arena_bytes_done=0,
            eta_s=None,
        )

    # ---- planning

    async def _place(self, request: OperationRequest) -> Placement:
        match request.kind:
            case Kind.DRAIN | Kind.EVACUATE:
                assert request.host is not None, "checked before"
                survey = await self._surveyor.survey([request.host])
                urgent = request.kind is Kind.EVACUATE
                rules = Rules(budget=None if urgent else SessionBudget(), park=request.park or urgent)
                return empty(request.host, survey.seats, survey.sittings, rules)
            case Kind.REBALANCE:
                survey = await self._surveyor.survey(None)
                return even(survey.seats, survey.sittings, Rules())
            case Kind.CONSOLIDATE:
                survey = await self._surveyor.survey(None)
                warm_bytes = self._warm_bytes(request, survey)
                rules = Rules(idle_s=request.idle_s, hosts_min=request.hosts_min, warm_bytes=warm_bytes)
                return pack(survey.seats, survey.sittings, rules)

    def _warm_bytes(self, request: OperationRequest, survey: Survey) -> int:
        """Room for those who come back: the model's slots, each as large as the largest session.

        Until two resumes were seen, a parked session is expected back after as long as it had been idle.
        """
        largest = max((sitting.arena_bytes for sitting in survey.sittings), default=0)
        if request.warm_slots is not None:
            return request.warm_slots * largest
        parked = sum(1 for row in self._book.rows() if row.status == "parked")
        parked += sum(1 for sitting in survey.sittings if sitting.idle_s >= request.idle_s)
        resumes = [move for move in self._book.moves() if move.mode is Mode.RESUME and move.receipt is not None]
        cycle_s = 2 * max(request.idle_s, 1.0)
        holding_s = RESUME_S
        if len(resumes) > 1:
            spent_s = resumes[-1].started_at_s - resumes[0].started_at_s
            cycle_s = max(parked, 1) * max(spent_s, 1.0) / (len(resumes) - 1)
            holding_s = sum(move.receipt.duration_s for move in resumes if move.receipt is not None) / len(resumes)
        return warm_buffer(parked, cycle_s, holding_s, MISS_MAX).slots * largest

    # ---- doing

    async def _go_on(self, operation: Operation) -> None:
        """After a restart: once the hosts that may still live have answered, or have had time to."""
        waited_s = 0.0
        while waited_s < RECONNECT_WAIT_S and not all(
            link.alive or self._hosts.is_gone(link.id) for link in self._hosts.all()
        ):
            await asyncio.sleep(RECONNECT_POLL_S)
            waited_s += RECONNECT_POLL_S
        await self._run(operation)

    async def _run(self, operation: Operation) -> None:
        try:
            operation = await self._passes(operation)
        except Exception as error:  # an operation that never ended would keep its host from ever being uncordoned
            log.exception("operation %s", operation.id)
            operation = replace(self._failed(operation.id, error), outcome="partial")
        cancelled = self._cancelled.pop(operation.id).is_set()
        operation = replace(operation, cancelled=cancelled, ended_at_s=self._clock.wall_s(), eta_s=None)
        while True:
            try:
                await self._keep(operation)
                break
            except RecordFailed as error:
                log.warning("the end of operation %s can't be written yet: %s", operation.id, error)
            await asyncio.sleep(RECORD_PAUSE_S)
        log.info("operation %s, a %s, has ended: %s", operation.id, operation.request.kind, operation.outcome)

    def _failed(self, operation: str, error: Exception) -> Operation:
        known = self._known[operation]
        sentence = error.sentence if isinstance(error, WorldlineError) else f"{type(error).__name__}: {error}"
        host = known.request.host or ""
        stay: list[str | None] = [row.id for row in self._book.rows() if host and row.host == host] or [None]
        others = [left for left in known.left if left.session not in stay]
        return replace(known, left=[*others, *(OperationLeft(session, host, sentence) for session in stay)])

    async def _passes(self, operation: Operation) -> Operation:
        request, cancelled = operation.request, self._cancelled[operation.id]
        passes, undone = 0, False
        while True:
            try:
                operation, undone = await self._pass(operation)
            except WorldlineError as error:
                if request.every_s is None:
                    raise
                log.warning("operation %s: a pass failed: %s", operation.id, error)
                operation = self._known[operation.id] = self._failed(operation.id, error)
            passes += 1
            if cancelled.is_set():
                return replace(operation, outcome="cancelled")
            if request.every_s is None and (not undone or passes == PASSES_MAX):
                return replace(operation, outcome="partial" if undone else "done")
            if await _set_within(cancelled, PASS_PAUSE_S if request.every_s is None else request.every_s):
                return replace(operation, outcome="cancelled")

    async def _pass(self, operation: Operation) -> tuple[Operation, bool]:
        """Planned from what is now, and done; and whether another pass may do more."""
        request = operation.request
        placement = await self._place(request)
        operation = _planned(operation, placement, None, None)
        await self._keep(operation)
        operation = await self._steps(operation)
        if request.host is not None:
            return self._emptied(operation, request.host)
        if request.kind is Kind.CONSOLIDATE:
            operation = await self._give_back(operation, placement.emptied)
        return operation, any(step.state != "done" for step in operation.steps)

    def _emptied(self, operation: Operation, host: str) -> tuple[Operation, bool]:
        """A host is empty when the record gives it nothing and nothing is on its way to it, whatever was planned: what
        was begun before the cordon may come after the plan.
        """
        told = {left.session for left in operation.left}
        told |= {step.session for step in operation.steps if step.state != "done"}
        came = [OperationLeft(row.id, host, "it came to the host meanwhile") for row in self._book.rows()
                if row.host == host and row.id not in told]  # fmt: skip
        if self._moves.come_to(host):
            came.append(OperationLeft(None, host, "a session is on its way to it"))
        operation = replace(operation, left=[*operation.left, *came])
        if self._is_empty(host):
            return replace(operation, left=[], emptied=[host]), False
        return operation, True

    def _is_empty(self, host: str) -> bool:
        return not self._moves.come_to(host) and all(row.host != host for row in self._book.rows())

    async def _give_back(self, operation: Operation, hosts: Sequence[str]) -> Operation:
        """The hosts of a consolidation are cordoned only once nothing is left on them."""
        for host in hosts:
            if not self._is_empty(host):
                continue
            await self.cordon(host, released=True)
            if self._is_empty(host):
                operation = replace(operation, emptied=[*operation.emptied, host])
            else:  # somebody came in between
                await self._hosts.take_back(host)
        return operation

    async def _steps(self, operation: Operation) -> Operation:
        """Each step once, `at_once` of them at a time."""
        turns = asyncio.Semaphore(operation.request.at_once)
        async with asyncio.TaskGroup() as group:
            for index, step in enumerate(operation.steps):
                if step.state == "waiting":
                    group.create_task(self._turn(operation.id, index, turns))
        return self._known[operation.id]

    async def _turn(self, operation: str, index: int, turns: asyncio.Semaphore) -> None:
        async with turns:
            if self._cancelled[operation].is_set():
                self._note(operation, index, "skipped", "the operation was cancelled")
                return
            step, request = self._known[operation].steps[index], self._known[operation].request
            self._note(operation, index, "running", step.sentence)
            try:
                if await self._plays_again(request, step):
                    self._note(operation, index, "skipped", "its player has acted again")
                    return
                sentence, pause_s = await self._do_when_there_is_room(operation, index)
            except WorldlineError as error:
                self._note(operation, index, "refused", f"{error.code}: {error.sentence}")
            else:
                self._note(operation, index, "done", sentence, pause_s)

    async def _do_when_there_is_room(self, operation: str, index: int) -> tuple[str | None, float | None]:
        """As `_do`; a refusal that says when there will be room is told, waited for, and asked again."""
        step, waited_s = self._known[operation].steps[index], 0.0
        while True:
            try:
                return await self._do(self._known[operation].request, step)
            except Refused as error:
                wait_s = error.facts.get(EARLIEST)
                if not isinstance(wait_s, int | float) or waited_s + wait_s > ROOM_WAIT_S:
                    raise
                pause_s = max(float(wait_s), ROOM_PAUSE_S)
                waited_s += pause_s
                self._note(operation, index, "running", f"waits for room: {error.code}: {error.sentence}")
                if await _set_within(self._cancelled[operation], pause_s):
                    raise

    async def _plays_again(self, request: OperationRequest, step: OperationStep) -> bool:
        """Whether who was idle when the plan was made no longer is."""
        if step.deed is not Deed.PARK or request.kind is not Kind.CONSOLIDATE:
            return False
        idle_s = await self._surveyor.idle_s(step.session)
        return idle_s is not None and idle_s < request.idle_s

    async def _do(self, request: OperationRequest, step: OperationStep) -> tuple[str | None, float | None]:
        """A sentence where it went another way than planned, and the pause. Raises why it was refused."""
        if step.deed is Deed.PARK:
            idle = request.kind is Kind.CONSOLIDATE
            await self._moves.park(ParkRequest(step.session, asleep=idle), self._draw("m"))
            return None, None
        assert step.target is not None, "a move has a target"
        try:
            move = await self._moves.move(
                MoveRequest(step.session, step.target, request.mode, request.transport), self._draw("m")
            )
            raise_refusal(move)
        except (Refused, Unavailable) as error:
            if (request.kind is not Kind.EVACUATE and not request.park) or error.facts.get(EARLIEST) is not None:
                raise
            return await self._through_image(step, error), None
        return None, None if move.receipt is None else move.receipt.pause_s

    async def _through_image(self, step: OperationStep, why: WorldlineError) -> str:
        """A move that was refused goes by way of a verified image: exact, and slower than the contract's pause."""
        try:
            await self._moves.park(ParkRequest(step.session), self._draw("m"))
        except WorldlineError as error:
            sentence = f"the park: {error.sentence}; before it the move: {why.code}: {why.sentence}"
            raise type(error)(sentence, **error.facts) from error
        try:
            await self._moves.resume(ResumeRequest(step.session, step.target), self._draw("m"))
        except WorldlineError as error:
            return f"parked: the move was refused ({why.code}), and the resume as well ({error.code}: {error.sentence})"
        return f"moved by way of an image: the direct move was refused ({why.code}: {why.sentence})"

    # ---- what is told

    def _note(
        self, operation: str, index: int, state: StepState, sentence: str | None, pause_s: float | None = None
    ) -> None:
        known = self._known[operation]
        steps = list(known.steps)
        steps[index] = replace(steps[index], state=state, sentence=sentence, pause_s=pause_s)
        done = known.arena_bytes_done + (steps[index].arena_bytes if state == "done" else 0)
        spent_s = self._clock.wall_s() - known.started_at_s
        left = sum(step.arena_bytes for step in steps if step.state in {"waiting", "running"})
        eta_s = left * spent_s / done if done else None
        after = replace(known, steps=steps, arena_bytes_done=done, eta_s=eta_s)
        self._known[operation] = after
        self._book.tell_operation(OperationChanged(after))
        log.info("operation %s: session %s %s %s", operation, steps[index].session, state, sentence or "")

    async def _keep(self, operation: Operation) -> None:
        """Durable when it returns, and then told."""
        if operation.id in self._cancelled:
            operation = replace(operation, cancelled=self._cancelled[operation.id].is_set())
        await self._book.store.keep_operation(operation)
        self._known[operation.id] = operation
        ended = [known.id for known in self._known.values() if known.outcome is not None]
        for oldest in ended[: max(0, len(self._known) - KEPT_MAX)]:
            del self._known[oldest]
        self._book.tell_operation(OperationChanged(operation))


async def _set_within(event: asyncio.Event, wait_s: float) -> bool:
    try:
        async with asyncio.timeout(wait_s):
            return await event.wait()
    except TimeoutError:
        return False


def _planned(
    operation: Operation, placement: Placement, outcome: Outcome | None, ended_at_s: float | None
) -> Operation:
    refused = {step.session: f"tried again: {step.sentence}" for step in operation.steps if step.state == "refused"}
    steps = [
        OperationStep(
            step.session, step.deed, step.source, step.target, step.arena_bytes, sentence=refused.get(step.session)
        )
        for step in placement.steps
    ]
    planned = sum(step.arena_bytes for step in steps)
    anew = {step.session for step in steps}
    done = [step for step in operation.steps if step.state == "done" and step.session not in anew]
    return replace(
        operation,
        steps=steps if operation.request.every_s is not None else [*done, *steps],
        left=[OperationLeft(left.session, left.host, left.why) for left in placement.left],
        emptied=list(placement.emptied) if outcome == "planned" else operation.emptied,
        passes=operation.passes + 1,
        outcome=outcome,
        ended_at_s=ended_at_s,
        arena_bytes_total=operation.arena_bytes_done + planned,
    )
