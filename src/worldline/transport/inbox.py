"""Events on their way from a link's thread to its event loop.

Invariant: what waits here is bounded in number and bytes. A receiver that does not read stops the thread that fills the
inbox, and through it the other side; nobody allocates for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from worldline.errors import LinkCut, TimedOut, WorldlineError
from worldline.transport.deadline import Deadline
from worldline.transport.protocol import RECORD_BYTES_MAX, LinkEvent, RecordIn

EVENTS_MAX = 1024


class Inbox:
    """Filled by one thread, read by one task of the loop it was made in."""

    def __init__(self, bytes_max: int = RECORD_BYTES_MAX, events_max: int = EVENTS_MAX) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._room = threading.Condition()
        self._events: deque[LinkEvent] = deque()
        self._nbytes = 0
        self._bytes_max = bytes_max
        self._events_max = events_max
        self._end: WorldlineError | None = None

    def put(self, event: LinkEvent, deadline: Deadline | None = None) -> None:
        """Adds an event; blocks while there is no room. Raises `LinkCut` after `end`, `TimedOut` after the deadline."""
        nbytes = _size(event)
        with self._room:
            while self._end is None and self._events and self._is_full(nbytes):
                if deadline is not None and deadline.passed:
                    raise TimedOut("the other side does not read")
                self._room.wait(None if deadline is None else deadline.left_s)
            if self._end is not None:
                raise LinkCut(self._end.sentence)
            self._events.append(event)
            self._nbytes += nbytes
        self._wake()

    def end(self, error: WorldlineError) -> None:
        """Nothing comes any more: `get` raises this error once the events before it are read. The first call counts."""
        with self._room:
            self._end = self._end or error
            self._room.notify_all()
        self._wake()

    def discard(self) -> None:
        """Drops what was not read."""
        with self._room:
            self._events.clear()
            self._nbytes = 0
            self._room.notify_all()

    async def get(self) -> LinkEvent:
        """The next event. Raises the error that `end` was given."""
        while True:
            with self._room:
                if self._events:
                    event = self._events.popleft()
                    self._nbytes -= _size(event)
                    self._room.notify_all()
                    return event
                if self._end is not None:
                    raise type(self._end)(self._end.sentence, **self._end.facts)
                self._arrived.clear()
            await self._arrived.wait()

    def _is_full(self, nbytes: int) -> bool:
        return len(self._events) >= self._events_max or self._nbytes + nbytes > self._bytes_max

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:  # the loop is closed, so nobody reads any more
            return


def _size(event: LinkEvent) -> int:
    return len(event.data) if isinstance(event, RecordIn) else 0
