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
from worldline.transport.protocol import Landed, LinkEvent, RecordIn
from worldline.wire.framing import RECORD_BYTES_MAX

EVENTS_MAX = 1024
ANNOUNCED_BYTES = 4 * 1024 * 1024
ANNOUNCED_EVENTS = 64
"""The reader is woken for so much at once."""


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
        self._awaited = False
        self._unannounced = 0

    def put(self, event: LinkEvent, deadline: Deadline | None = None) -> None:
        """Adds an event; blocks while there is no room. Raises `LinkCut` after `end`, `TimedOut` after the deadline.

        The reader may sleep on over small landings until `announce`: waking it costs more than they do.
        """
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
            self._unannounced += event.extent.nbytes if isinstance(event, Landed) else ANNOUNCED_BYTES
            if self._unannounced >= ANNOUNCED_BYTES or len(self._events) >= ANNOUNCED_EVENTS:
                self._wake()

    def announce(self) -> None:
        """Wakes the reader if anything was put. The filling thread calls it before it waits for more."""
        with self._room:
            if self._unannounced:
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
                    was_full = self._is_full(0)
                    event = self._events.popleft()
                    self._nbytes -= _size(event)
                    if was_full or isinstance(event, RecordIn):
                        self._room.notify_all()
                    return event
                if self._end is not None:
                    raise type(self._end)(self._end.sentence, **self._end.facts)
                self._arrived.clear()
                self._awaited = True
            await self._arrived.wait()

    def _is_full(self, nbytes: int) -> bool:
        return len(self._events) >= self._events_max or self._nbytes + nbytes > self._bytes_max

    def _wake(self) -> None:
        self._unannounced = 0
        if not self._awaited:
            return
        self._awaited = False
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:  # the loop is closed, so nobody reads any more
            return


def _size(event: LinkEvent) -> int:
    return len(event.data) if isinstance(event, RecordIn) else 0
