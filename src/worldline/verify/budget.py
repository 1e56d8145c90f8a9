"""The processor time that the work of moves may take on a host while a session plays there.

    spent_s <= cores x time + BURST_S, and what one piece of work took

Whoever works within a budget says afterwards what it took, and waits before its next piece where too much was spent.
The budget is lifted while a session is frozen for a move, and where none plays: then nobody waits, and nothing that is
spent counts.

Invariant: no wait is longer than `WAIT_S_MAX`, so that whoever ends a thread that waits is not kept.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Final

from worldline.clock import Clock, SystemClock, thread_cpu_s
from worldline.errors import BadValue

BURST_S: Final = 0.02
"""Of processor time, that may be spent at once after a rest."""
LOOK_S: Final = 0.005
"""How often somebody who waits looks whether the budget was lifted: by so much it can lengthen a pause."""
WAIT_S_MAX: Final = 0.5
CORES_MIN: Final = 0.05
"""Less would let a move take hours."""
CORES_MAX: Final = 1024
SHARE: Final = 0.5
"""Of the processors that a host may use, where it is not told."""


def default_cores() -> float:
    """Half of the processors that this process may use."""
    return SHARE * len(os.sched_getaffinity(0))


def check_cores(cores: float) -> float:
    """Raises `BadValue` where that is no share of a machine."""
    if not CORES_MIN <= cores <= CORES_MAX:
        raise BadValue(f"moves may take {CORES_MIN} to {CORES_MAX} processors, not {cores}")
    return cores


class Budget:
    """Of one host, for all moves into it and out of it. Any thread may use it."""

    def __init__(self, cores: float, lifted: Callable[[], bool], clock: Clock | None = None) -> None:
        """`lifted` is asked from any thread. Raises `BadValue` as `check_cores`."""
        self.cores = check_cores(cores)
        self._lifted = lifted
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._never = threading.Event()
        """Nobody sets it: to wait for it is to sleep, which needs no `time`."""
        self._spent_s = 0.0
        self._at_s = self._clock.monotonic_s()

    def spend(self, cpu_s: float) -> None:
        """So much processor time was used. Never waits."""
        with self._lock:
            self._pay_off()
            self._spent_s = 0.0 if self._lifted() else self._spent_s + cpu_s

    @property
    def spent_s(self) -> float:
        """What was spent and is not paid off yet."""
        with self._lock:
            self._pay_off()
            return self._spent_s

    @property
    def owed_s(self) -> float:
        """How long to wait before the next piece of work; 0 where there is no need to."""
        if self._lifted():
            return 0.0
        with self._lock:
            self._pay_off()
            return min(max(0.0, self._spent_s - BURST_S) / self.cores, WAIT_S_MAX)

    def wait(self) -> None:
        """On a thread of a link: until nothing is owed."""
        ends_at_s = self._clock.monotonic_s() + WAIT_S_MAX
        while (owed_s := self.owed_s) > 0 and self._clock.monotonic_s() < ends_at_s:
            self._never.wait(min(owed_s, LOOK_S))

    async def turn(self) -> None:
        """On an event loop: as `wait`."""
        ends_at_s = self._clock.monotonic_s() + WAIT_S_MAX
        while (owed_s := self.owed_s) > 0 and self._clock.monotonic_s() < ends_at_s:  # noqa: ASYNC110 - time tells nobody
            await asyncio.sleep(min(owed_s, LOOK_S))

    def _pay_off(self) -> None:
        now_s = self._clock.monotonic_s()
        self._spent_s = max(0.0, self._spent_s - self.cores * (now_s - self._at_s))
        self._at_s = now_s


class Meter:
    """What one thread spends, from one call to the next. Made on that thread; without a budget it does nothing."""

    __slots__ = ("_before_s", "_budget")

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget
        self._before_s = 0.0 if budget is None else thread_cpu_s()

    def pay(self) -> None:
        """Counts what this thread used since the last call, and waits where too much was spent."""
        if self._budget is not None:
            self.count()
            self._budget.wait()

    def count(self) -> None:
        """As `pay`, and waits for nothing."""
        if self._budget is not None:
            now_s = thread_cpu_s()
            self._budget.spend(now_s - self._before_s)
            self._before_s = now_s
