"""Verification lanes: threads that digest arenas, so that the path on which bytes arrive never does.

The queue is bounded: whoever digests more than the lanes take waits (`digests`) or is refused (`submit`). The lanes
measure themselves, because moves are admitted against what they can take.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from worldline.clock import Clock, SystemClock
from worldline.errors import LaneFull
from worldline.schema.layout import Extent
from worldline.verify.budget import Budget, Meter
from worldline.verify.digests import BytesAt, leaf_digests

JOB_BYTES = 32 * 1024 * 1024
"""A job is a batch of whole leaves of about this much, so that a leaf costs no task of its own."""
RATE_BYTES_PER_S_UNMEASURED = 1e9
"""What a lane is taken to digest until it has shown what it does."""
NICENESS = 5
"""A lane's above its process's, where they want the same core: a thread that receives and waits for a lane leaves its
link idle, and an engine leaves its player waiting. What lanes leave, an engine reads at its boundary.
"""
_MEASURED_BYTES_MIN = 1024 * 1024
STRETCH_BYTES = 16 * 1024 * 1024
"""What is digested between two measurements: a leaf alone says more about the scheduler than about the lane."""
STRETCHES = 12
"""Measurements that count."""


class Lanes:
    """`threads` lanes behind a queue of at most `jobs_max` jobs, waiting and running ones together."""

    def __init__(
        self, threads: int = 1, jobs_max: int = 64, clock: Clock | None = None, budget: Budget | None = None
    ) -> None:
        """The threads start when first needed. All that they do is spent of `budget`."""
        if threads < 1 or jobs_max < 1:
            raise ValueError("lanes need a thread and room for a job")
        self.threads = threads
        self._clock = clock or SystemClock()
        self._budget = budget
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lane", initializer=_give_way)
        self._room = threading.BoundedSemaphore(jobs_max)
        self._jobs_max = jobs_max
        self._lock = threading.Lock()
        self._freed: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._queued_bytes = 0
        self._digested_bytes = 0
        self._busy_s = 0.0
        self._stretch_bytes, self._stretch_s = 0, 0.0
        self._rates: deque[float] = deque(maxlen=STRETCHES)
        self._closed = False

    async def digests(self, arena: BytesAt, extents: Sequence[Extent]) -> list[bytes]:
        """The digests of all extents, in order. Waits for room in the queue and in the budget; the event loop goes on.

        Cancelled, it leaves no job behind that was not yet running. Whatever bytes were where the extents lie when a
        lane came to them have been digested: after this returns, not before, the arena may be closed or rewritten.
        """
        futures: list[asyncio.Future[list[bytes]]] = []
        try:
            for batch in batches(extents):
                if self._budget is not None:
                    await self._budget.turn()
                while not self._room.acquire(blocking=False):
                    await self._wait_for_room()
                futures.append(asyncio.wrap_future(self._start(arena, batch)))
            return [digest for part in await asyncio.gather(*futures) for digest in part]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def submit(self, arena: BytesAt, extents: Sequence[Extent]) -> list[Future[list[bytes]]]:
        """One future for each job, in order; all jobs are queued, or none. Raises `LaneFull` where they don't fit.

        Waits for nothing: an engine that needs these digests at its next boundary would have to read by itself.
        """
        jobs = list(batches(extents))
        held = 0
        while held < len(jobs) and self._room.acquire(blocking=False):
            held += 1
        if held < len(jobs):
            for _ in range(held):
                self._release()
            raise LaneFull("the verification lanes are full", jobs=len(jobs), jobs_max=self._jobs_max)
        return [self._start(arena, batch) for batch in jobs]

    def read(self, arena: BytesAt, extents: Sequence[Extent]) -> list[bytes]:
        """The digests of all extents, in order, by the lanes and the calling thread together: the lanes from the front,
        as far as the queue has room, and the caller from the back. Never refused.
        """
        jobs = batches(extents)
        lent: list[Future[list[bytes]]] = []
        mine: deque[list[bytes]] = deque()
        end = len(jobs)  # from here on the caller has read
        try:
            while True:
                while len(lent) < end and self._room.acquire(blocking=False):
                    lent.append(self._start(arena, jobs[len(lent)]))
                if len(lent) == end:
                    if not lent or not lent[-1].cancel():
                        break
                    lent.pop()
                end -= 1
                mine.appendleft(leaf_digests(arena, jobs[end]))
            return [digest for part in (*(future.result() for future in lent), *mine) for digest in part]
        finally:
            for future in lent:
                future.cancel()

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting or being digested."""
        return self._queued_bytes

    @property
    def digested_bytes(self) -> int:
        """Bytes digested since the start."""
        return self._digested_bytes

    @property
    def busy_s(self) -> float:
        """Seconds of lane time spent on them, all lanes together."""
        return self._busy_s

    @property
    def rate_bytes_per_s(self) -> float:
        """What all lanes together digest a second, by their own measurement: the least of the last stretches; before
        the first one ends what was digested so far, and a cautious figure before the first MiB.
        """
        with self._lock:
            if self._rates:
                return min(self._rates) * self.threads
            if self._digested_bytes < _MEASURED_BYTES_MIN or self._busy_s <= 0:
                return RATE_BYTES_PER_S_UNMEASURED * self.threads
            return self._digested_bytes / self._busy_s * self.threads

    def close(self) -> None:
        """Drops what waits, and returns when no lane reads an arena any more. Idempotent."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self, arena: BytesAt, batch: list[Extent]) -> Future[list[bytes]]:
        nbytes = sum(extent.nbytes for extent in batch)
        with self._lock:
            self._queued_bytes += nbytes
        try:
            future = self._pool.submit(self._digest, arena, batch, nbytes)
        except RuntimeError:
            self._done(nbytes)
            raise
        future.add_done_callback(lambda _: self._done(nbytes))
        return future

    def _digest(self, arena: BytesAt, batch: list[Extent], nbytes: int) -> list[bytes]:
        began_s, meter = self._clock.monotonic_s(), Meter(self._budget)
        digests = leaf_digests(arena, batch)
        meter.count()
        spent_s = self._clock.monotonic_s() - began_s
        with self._lock:
            self._digested_bytes += nbytes
            self._busy_s += spent_s
            self._stretch_bytes += nbytes
            self._stretch_s += spent_s
            if self._stretch_bytes >= STRETCH_BYTES and self._stretch_s > 0:
                self._rates.append(self._stretch_bytes / self._stretch_s)
                self._stretch_bytes, self._stretch_s = 0, 0.0
        return digests

    def _done(self, nbytes: int) -> None:
        with self._lock:
            self._queued_bytes -= nbytes
        self._release()

    def _release(self) -> None:
        self._room.release()
        with self._lock:
            waiting, self._freed = self._freed, set()
        for loop, event in waiting:
            # A loop may have been closed while its waiter was cancelled.
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def _wait_for_room(self) -> None:
        event = asyncio.Event()
        entry = (asyncio.get_running_loop(), event)
        with self._lock:
            self._freed.add(entry)
        try:
            if self._room.acquire(blocking=False):  # freed between the failed try and the registration
                self._room.release()
                return
            await event.wait()
        finally:
            with self._lock:
                self._freed.discard(entry)


def _give_way() -> None:
    """Of the calling thread alone: on Linux a thread has a niceness of its own."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)


def batches(extents: Sequence[Extent]) -> list[list[Extent]]:
    """The extents in order, in jobs of about `JOB_BYTES`."""
    jobs: list[list[Extent]] = []
    filled = JOB_BYTES
    for extent in extents:
        if filled >= JOB_BYTES:
            jobs.append([])
            filled = 0
        jobs[-1].append(extent)
        filled += extent.nbytes
    return jobs
