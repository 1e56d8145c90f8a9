"""What those who drive a machine share: its next event, the work beside its loop, an answer that is an error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from worldline.clock import Clock
from worldline.errors import WorldlineError

E = TypeVar("E")


async def next_event(events: asyncio.Queue[E], wake_at_s: float | None, late: E, clock: Clock) -> E:
    """The next event; `late` when the machine's `wake_at_s` has come before one."""
    if not events.empty():  # hundreds of stretches land within a pause: no timer is set for each
        return events.get_nowait()
    wait_s = None if wake_at_s is None else max(wake_at_s - clock.monotonic_s(), 0.0)
    try:
        async with asyncio.timeout(wait_s):
            return await events.get()
    except TimeoutError:
        return late


def refuse(answer: asyncio.Future[Any], error: WorldlineError) -> None:
    """Answers with an error, if nothing was answered yet; it counts as seen where nobody asks any more."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()


class SideWork:
    """Tasks beside a driver's loop. Whoever ends the driver ends or awaits `tasks`."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._on_failure = on_failure

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)


class Batches(Generic[E]):
    """Work of one kind, in the order in which it was asked for, one batch at a time: what comes while `do` is at work
    is its next batch.
    """

    def __init__(self, side: SideWork, do: Callable[[list[E]], Awaitable[None]]) -> None:
        self._side = side
        self._do = do
        self._waiting: list[E] = []
        self._busy = False

    def add(self, item: E) -> None:
        self._waiting.append(item)
        if not self._busy:
            self._busy = True
            self._side.spawn(self._run())

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            await self._do(batch)
        self._busy = False
