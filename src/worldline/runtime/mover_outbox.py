"""What one side of an attempt still has to send: records and posts, one after the other, beside the machine that
orders them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from worldline.errors import LinkCut, WorldlineError
from worldline.transport.protocol import Link

FLUSH_S = 2.0
"""How long the last records of an attempt may take to leave; the other side can do without them."""

Sending: TypeAlias = Callable[[Link], Awaitable[None]]


class Outbox:
    """Carries out sendings in order until one fails or `close` ends it. A failure is told once and drops what
    follows.
    """

    def __init__(self, link: Link, on_failure: Callable[[WorldlineError], None]) -> None:
        self._link = link
        self._on_failure = on_failure
        self._queue: asyncio.Queue[Sending | None] = asyncio.Queue()
        self._posting = False
        self._task = asyncio.create_task(self._run())

    def put(self, sending: Sending) -> None:
        """Queues one sending. The machines send a bounded number in each round, and wait for an answer between
        rounds.
        """
        self._queue.put_nowait(sending)

    def put_record(self, record: bytes) -> None:
        self.put(lambda link: link.send(record))

    def put_post(self, post: Sending) -> None:
        """A sending that may take long: `close` does not wait for it."""

        async def run(link: Link) -> None:
            self._posting = True
            try:
                await post(link)
            finally:
                self._posting = False

        self.put(run)

    async def close(self) -> None:
        """Lets short sendings leave and fences the link: it writes nothing any more. Idempotent."""
        if not self._task.done():
            self._queue.put_nowait(None)
            if not self._posting:
                await asyncio.wait([self._task], timeout=FLUSH_S)
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._link.fence()

    async def _run(self) -> None:
        while (sending := await self._queue.get()) is not None:
            try:
                await sending(self._link)
            except WorldlineError as error:
                self._on_failure(error)
                return
            except OSError as error:
                self._on_failure(LinkCut(f"the link failed: {error}"))
                return
