"""What a source may send now: its grant, and the wait for the next one.

Invariant: no byte of an arena is posted outside a grant, and none has room for more than its rate times its length: a
link that takes bytes sooner than it sends them gets no more for it. Records of the protocol are a class of their own
and wait for none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from worldline.clock import Clock
from worldline.errors import TimedOut
from worldline.schema.layout import Extent
from worldline.transport.protocol import Link


class Allowance:
    """Grants come from the controller, a chunk at a time, and each ends by itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bytes_per_s = 0.0
        self._until_s = 0.0
        self._sent_until_s = 0.0
        """When what was posted so far is through, at the granted rates."""
        self._granted = asyncio.Event()
        self.idle_s = 0.0
        """In all: something was to be sent, all before it was through, and no grant had room."""
        self._busy_s, self._sent_bytes = 0.0, 0

    @property
    def bytes_per_s(self) -> float | None:
        """Of all that was sent, in the time in which it was sent; None before the first byte."""
        return self._sent_bytes / self._busy_s if self._busy_s > 0 else None

    def grant(self, bytes_per_s: float, for_s: float) -> None:
        """From now on, in the place of what was granted before."""
        self._bytes_per_s = bytes_per_s
        self._until_s = self._clock.monotonic_s() + for_s
        self._granted.set()

    async def post(self, link: Link, extents: Sequence[Extent], deadline_s: float) -> int:
        """As `Link.post`, an extent at a time, each under a grant that has room for it.

        Raises what that raises; `TimedOut` also where no grant came before the deadline.
        """
        ends_at_s = self._clock.monotonic_s() + deadline_s
        crossed = 0
        for extent in extents:
            began_s = await self._turn(link, extent.nbytes, ends_at_s)
            crossed += await link.post((extent,), max(ends_at_s - self._clock.monotonic_s(), 0.001))
            self._sent(extent.nbytes, began_s)
        return crossed

    async def send(self, link: Link, record: bytes, deadline_s: float) -> None:
        """As `Link.send`, under a grant."""
        began_s = await self._turn(link, len(record), self._clock.monotonic_s() + deadline_s)
        await link.send(record)
        self._sent(len(record), began_s)

    def _sent(self, nbytes: int, began_s: float) -> None:
        self._sent_bytes += nbytes
        self._busy_s += self._clock.monotonic_s() - began_s

    async def _turn(self, link: Link, nbytes: int, ends_at_s: float) -> float:
        """Waits for a grant that has room. Returns since when the link was to carry it: what waited for the end of what
        was posted before had the link all the time.
        """
        asked_at_s, idle_before_s = self._clock.monotonic_s(), self.idle_s
        await self._wait_for(nbytes, asked_at_s, ends_at_s)
        link.pace(self._bytes_per_s)
        return asked_at_s + self.idle_s - idle_before_s

    async def _wait_for(self, nbytes: int, asked_at_s: float, ends_at_s: float) -> None:
        while True:
            now_s = self._clock.monotonic_s()
            begin_s = max(now_s, self._sent_until_s)
            if self._bytes_per_s > 0 and begin_s + nbytes / self._bytes_per_s <= self._until_s:
                self.idle_s += max(0.0, now_s - max(asked_at_s, self._sent_until_s))
                self._sent_until_s = begin_s + nbytes / self._bytes_per_s
                return
            self._granted.clear()
            try:
                async with asyncio.timeout(ends_at_s - now_s):
                    await self._granted.wait()
            except TimeoutError as error:
                raise TimedOut("no grant to send came before the deadline") from error
