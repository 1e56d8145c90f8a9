"""The thread on which a link does its blocking sends and copies, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from worldline.errors import LinkCut

_T = TypeVar("_T")


class Sender:
    """Runs one job at a time, in the order of the calls, off the event loop. The thread starts with the first job.

    A job that is cancelled half done has left half a record on the link, so `abandon` is called: it must make the
    running job end soon and the link unusable.
    """

    def __init__(self, name: str, abandon: Callable[[], None]) -> None:
        self._threads = ThreadPoolExecutor(1, name)
        self._abandon = abandon
        self._turn = asyncio.Lock()
        self._job: asyncio.Future[Any] | None = None
        self._closed = False

    async def run(self, job: Callable[[], _T]) -> _T:
        """The job's result. Raises what it raises, and `LinkCut` after `close`."""
        async with self._turn:
            if self._closed:
                raise LinkCut("the link is closed on this side")
            running = asyncio.get_running_loop().run_in_executor(self._threads, job)
            self._job = running
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                self._abandon()
                await asyncio.wait([running])
                if not running.cancelled():
                    running.exception()  # looked at: the cancellation is what the caller hears of
                raise

    async def close(self) -> None:
        """Joins the thread. The caller has made a running job end. Idempotent."""
        self._closed = True
        if self._job is not None:
            await asyncio.wait([self._job])
        self._threads.shutdown(wait=True)
