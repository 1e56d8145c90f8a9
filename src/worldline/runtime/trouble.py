"""Faults planted in one order where its controller can plant them: processes that end or stand still, answers that are
not heard, and a record that fails. Each happens once, at its step; a controller that begins anew plants none again.

Hosts and controller are processes of one machine and one user, so that a signal reaches them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import signal
from collections.abc import Callable

from worldline.control import order as words
from worldline.control.order import Call, Command
from worldline.schema.fault import FAULTS, SEED, Fault, FaultName, Step

STEP_OF: dict[type[Command], Step] = {
    words.PrepareTarget: Step.PREPARE,
    words.LoadImage: Step.PREPARE,
    words.RunSource: Step.RUN,
    words.WriteImage: Step.RUN,
    words.SwapOwner: Step.SWAP,
    words.Activate: Step.ACTIVATE,
    words.Retire: Step.RETIRE,
}
STEP_OF_CALL = {
    Call.PREPARE_TARGET: Step.PREPARE,
    Call.RUN_SOURCE: Step.RUN,
    Call.WRITE_IMAGE: Step.RUN,
    Call.ACTIVATE: Step.ACTIVATE,
    Call.RETIRE: Step.RETIRE,
}
"""Whose answer can be lost."""
STOPPED_S = 1.0
WAIT_S_MAX = 0.05
"""A seed other than the usual one chooses how long after its step a signal is sent."""
SILENT_TRIES = 2
"""Writes, and reads of a record that can't be reached, that fail one after the other."""
_STOPS = frozenset({FaultName.STOP_SOURCE, FaultName.STOP_TARGET})
_KILLS = frozenset({FaultName.KILL_SOURCE, FaultName.KILL_TARGET, FaultName.KILL_CONTROLLER})
_ERRNO = {FaultName.ENOSPC: errno.ENOSPC, FaultName.EIO: errno.EIO}

log = logging.getLogger(__name__)


class Trouble:
    """What was planted in one order; nothing, where `fault` is None. `pids`: of its source, target and controller."""

    def __init__(self, fault: Fault | None, pids: Callable[[FaultName], int | None]) -> None:
        self._fault = fault
        self._pids = pids
        self._left = 0 if fault is None else 1
        self._tries = SILENT_TRIES
        self._helpers: set[asyncio.Task[int]] = set()

    async def reach(self, step: Step) -> None:
        """To be called just before a step is done."""
        fault = self._due(step, _STOPS | _KILLS)
        if fault is None:
            return
        pid = self._pids(fault.name)
        if pid is None:
            return
        log.warning("planted: %s, process %d", fault, pid)
        wait_s = 0.0 if fault.seed == SEED else random.Random(fault.seed).uniform(0.0, WAIT_S_MAX)
        if fault.name in _KILLS:
            await _later(wait_s, lambda: os.kill(pid, signal.SIGKILL))
            return
        await _later(wait_s, lambda: os.kill(pid, signal.SIGSTOP))
        # A process of its own wakes it, whatever becomes of this one.
        wake = ("/bin/sh", "-c", f"sleep {wait_s + STOPPED_S}; kill -CONT {pid}")
        helper = asyncio.create_task((await asyncio.create_subprocess_exec(*wake, start_new_session=True)).wait())
        self._helpers.add(helper)
        helper.add_done_callback(self._helpers.discard)

    def loses_answer(self, step: Step) -> bool:
        """Whether what a host answers to this step's call is not heard."""
        return self._due(step, {FaultName.LOSE_ANSWER}) is not None

    def write(self, step: Step) -> None:
        """To be called before a line is written. Raises `OSError` where the record's disk fails."""
        fault = self._fault
        if fault is None or fault.name not in _ERRNO or _step_of(fault) is not step or not self._tries:
            return
        self._tries -= 1
        raise OSError(_ERRNO[fault.name], f"planted: {os.strerror(_ERRNO[fault.name])}")

    def written(self) -> None:
        """To be called after the commit. Raises `OSError` where its answer is lost."""
        if self._due(None, {FaultName.STORE_UNREACHABLE}) is not None:
            raise OSError(errno.EHOSTUNREACH, "planted: the record can't be reached")

    def read(self) -> None:
        """To be called before the record is read. Raises `OSError` while it can't be reached."""
        if self._fault is not None and self._fault.name is FaultName.STORE_UNREACHABLE and self._tries:
            self._tries -= 1
            raise OSError(errno.EHOSTUNREACH, "planted: the record can't be reached")

    def _due(self, step: Step | None, names: set[FaultName] | frozenset[FaultName]) -> Fault | None:
        fault = self._fault
        if fault is None or fault.name not in names or not self._left or _step_of(fault) is not step:
            return None
        self._left = 0
        return fault


def _step_of(fault: Fault) -> Step | None:
    """None where the fault has no step, or happens in a host while bytes arrive."""
    if fault.step is not None or fault.name is FaultName.KILL_TARGET:
        return fault.step
    steps = FAULTS[fault.name].steps
    return steps[0] if steps else None


async def _later(wait_s: float, act: Callable[[], None]) -> None:
    """At once, or while the step is under way."""
    if wait_s == 0:
        act()
    else:
        asyncio.get_running_loop().call_later(wait_s, act)
