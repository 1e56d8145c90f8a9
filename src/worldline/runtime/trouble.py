"""Faults planted in one order where its controller can plant them: processes that end or stand still, calls, answers
and notices that go astray, and a record that fails. Each happens once, at its step; a controller that begins anew
plants none again.

Hosts, controller and gateway are processes of one machine and one user, so that a signal reaches them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from worldline.control import order as words
from worldline.control.order import Call, Command, JournalPhase
from worldline.errors import TimedOut, WorldlineError
from worldline.runtime.store import Store
from worldline.schema.fault import SEED, UNDOING, Fault, FaultName, Step

STEP_OF: dict[type[Command], Step] = {
    words.PrepareTarget: Step.PREPARE,
    words.LoadImage: Step.PREPARE,
    words.RunSource: Step.RUN,
    words.WriteImage: Step.RUN,
    words.AwaitPrepared: Step.AWAIT,
    words.SwapOwner: Step.SWAP,
    words.Activate: Step.ACTIVATE,
    words.ReturnOwner: Step.RETURN,
    words.PublishOwner: Step.OWNER,
    words.Retire: Step.RETIRE,
    words.Discard: Step.DISCARD,
    words.Thaw: Step.THAW,
}
STEP_OF_CALL: dict[Call, Step] = {
    Call.PREPARE_TARGET: Step.PREPARE,
    Call.LOAD_IMAGE: Step.PREPARE,
    Call.RUN_SOURCE: Step.RUN,
    Call.WRITE_IMAGE: Step.RUN,
    Call.AWAIT_PREPARED: Step.AWAIT,
    Call.ACTIVATE: Step.ACTIVATE,
    Call.RETIRE: Step.RETIRE,
    Call.DISCARD: Step.DISCARD,
    Call.THAW: Step.THAW,
}
STEP_OF_LINE: dict[JournalPhase, Step] = {
    JournalPhase.BEGUN: Step.BEGIN,
    JournalPhase.ACTIVATED: Step.ACTIVATED,
    JournalPhase.ABORTED: Step.GIVE_UP,
    JournalPhase.DONE: Step.END,
}
STOPPED_S = 1.0
LATE_S = 0.3
"""How late what is late comes, and how long what is overtaken waits for what overtakes it."""
WAIT_S_MAX = 0.05
"""A seed other than the usual one chooses how long after its step a signal is sent."""
SILENT_TRIES = 2
"""Writes, and reads of a record that can't be reached, that fail one after the other."""
_STOPS = frozenset(
    {FaultName.STOP_SOURCE, FaultName.STOP_TARGET, FaultName.STOP_CONTROLLER, FaultName.STOP_GATEWAY},
)
_KILLS = frozenset(
    {FaultName.KILL_SOURCE, FaultName.KILL_TARGET, FaultName.KILL_CONTROLLER, FaultName.KILL_GATEWAY},
)
_CALLS = frozenset(
    {FaultName.LOSE_CALL, FaultName.LATE_CALL, FaultName.REPEAT_CALL, FaultName.REORDER_CALL, FaultName.LOSE_ANSWER},
)
_ANSWERS = frozenset({FaultName.LATE_ANSWER, FaultName.REPEAT_ANSWER, FaultName.REORDER_ANSWER})
NOTICES = frozenset(
    {FaultName.LOSE_NOTICE, FaultName.LATE_NOTICE, FaultName.REPEAT_NOTICE, FaultName.REORDER_NOTICE},
)
_DISKS = frozenset({FaultName.ENOSPC, FaultName.EIO, FaultName.SHORT_WRITE})

T = TypeVar("T")

log = logging.getLogger(__name__)


class Trouble:
    """What was planted in one order; nothing, where `fault` is None. `pids`: of the process that a fault is about."""

    def __init__(self, fault: Fault | None, pids: Callable[[FaultName], int | None]) -> None:
        self._fault = fault
        self._pids = pids
        self._left = 0 if fault is None else 1
        self._tries = SILENT_TRIES
        self._tasks: set[asyncio.Task[Any]] = set()
        self._passed = asyncio.Event()
        """Set when a call or an event came by that may overtake one which is held back."""

    async def reach(self, step: Step) -> None:
        """To be called just before a step is done."""
        if step is Step.ACTIVATE:
            self._open_the_way_back()
        fault = self._due(step, _STOPS | _KILLS)
        if fault is None:
            return
        pid = self._pids(fault.name)
        if pid is None:
            return
        log.warning("planted: %s, process %d", fault, pid)
        wait_s = 0.0 if fault.seed == SEED else random.Random(fault.seed).uniform(0.0, WAIT_S_MAX)
        if fault.name in _KILLS:
            _later(wait_s, lambda: os.kill(pid, signal.SIGKILL))
            return
        # A process of its own wakes it, whatever becomes of this one, which may be the one that stands still.
        wake = ("/bin/sh", "-c", f"sleep {wait_s + STOPPED_S}; kill -CONT {pid}")
        helper = await asyncio.create_subprocess_exec(*wake, start_new_session=True)
        self._spawn(helper.wait())
        _later(wait_s, lambda: os.kill(pid, signal.SIGSTOP))

    def _open_the_way_back(self) -> None:
        """Only a target that ends before it plays makes an order come to the step of its fault."""
        fault = self._fault
        if fault is None or fault.step is not Step.RETURN or not self._left:
            return
        pid = self._pids(FaultName.KILL_TARGET)
        if pid is not None:
            log.warning("planted before %s: process %d is killed", fault, pid)
            os.kill(pid, signal.SIGKILL)

    @property
    def denies_proof(self) -> bool:
        """Whether the proof is turned down, so that the order comes to the step of its fault."""
        return self._fault is not None and self._fault.step in UNDOING

    # ---- calls and answers

    async def carry(self, step: Step, ask: Callable[[], Awaitable[T]]) -> T:
        """A call and its answer, as far as the fault lets them through. Raises what `ask` does, and `TimedOut`."""
        fault = self._due(step, _CALLS)
        if fault is None:
            answer = await ask()
            self._passed.set()
            return answer
        log.warning("planted: %s", fault)
        silence = TimedOut(f"planted: {fault}: no answer was heard")
        match fault.name:
            case FaultName.LATE_CALL:
                await asyncio.sleep(LATE_S)
            case FaultName.REPEAT_CALL:
                self._spawn(_unheard(ask))
            case FaultName.LOSE_ANSWER:
                await ask()
                raise silence
            case FaultName.REORDER_CALL:
                self._spawn(self._overtaken(ask))
                raise silence
            case _:
                raise silence
        return await ask()

    async def hear(self, step: Step, tell: Callable[[], None]) -> None:
        """What a host answered, as often and as late as the fault has it."""
        fault = self._due(step, _ANSWERS)
        if fault is not None:
            log.warning("planted: %s", fault)
            match fault.name:
                case FaultName.LATE_ANSWER:
                    await asyncio.sleep(LATE_S)
                case FaultName.REORDER_ANSWER:
                    await self._until_passed()
                case _:
                    tell()
        tell()
        self._passed.set()

    async def _overtaken(self, ask: Callable[[], Awaitable[object]]) -> None:
        await self._until_passed()
        await _unheard(ask)

    async def _until_passed(self) -> None:
        self._passed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATE_S):
                await self._passed.wait()

    # ---- notices

    def notice(self, step: Step) -> FaultName | None:
        """What befalls a notice of this step, to be asked when it is about to be told."""
        fault = self._due(step, NOTICES)
        if fault is None:
            return None
        log.warning("planted: %s", fault)
        return fault.name

    # ---- the record

    def spoil(self, step: Step, store: Store) -> None:
        """To be called just before a write begins, with nothing awaited between."""
        fault = self._fault
        if fault is None or fault.name not in _DISKS or fault.step is not step or not self._tries:
            return
        self._tries -= 1
        log.warning("planted: %s", fault)
        store.spoil_next(fault.name)

    def written(self) -> None:
        """To be called after the commit. Raises `OSError` where its answer is lost."""
        if self._due(None, frozenset({FaultName.STORE_UNREACHABLE})) is not None:
            log.warning("planted: %s", self._fault)
            raise OSError(errno.EHOSTUNREACH, "planted: the record can't be reached")

    def read(self) -> None:
        """To be called before the record is read. Raises `OSError` while it can't be reached."""
        if self._fault is not None and self._fault.name is FaultName.STORE_UNREACHABLE and self._tries:
            self._tries -= 1
            raise OSError(errno.EHOSTUNREACH, "planted: the record can't be reached")

    def _due(self, step: Step | None, names: frozenset[FaultName]) -> Fault | None:
        fault = self._fault
        if fault is None or fault.name not in names or not self._left or fault.step is not step:
            return None
        self._left = 0
        return fault

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Beside the order, and beyond its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _unheard(ask: Callable[[], Awaitable[object]]) -> None:
    """A call whose answer nobody waits for any more."""
    try:
        await ask()
    except WorldlineError as error:
        log.info("planted: what nobody waits for was answered with %s", error)


def _later(wait_s: float, act: Callable[[], None]) -> None:
    """At once, or while the step is under way."""
    if wait_s == 0:
        act()
    else:
        asyncio.get_running_loop().call_later(wait_s, act)
