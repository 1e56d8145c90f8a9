"""The only reader of time. Everything else is given a time or a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: `monotonic_s` for spans, `wall_s` for records that people and other machines read."""

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall_s(self) -> float:
        """Seconds since 1970-01-01 UTC; may jump."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()


def thread_cpu_s() -> float:
    """Processor time that the calling thread has used. For measurements: no deadline is kept by it."""
    return time.thread_time()


class ManualClock:
    """A clock that moves when it is told to."""

    def __init__(self, start_s: float = 0.0, wall_start_s: float = 1_700_000_000.0) -> None:
        self._now_s = start_s
        self._wall_offset_s = wall_start_s - start_s

    def monotonic_s(self) -> float:
        return self._now_s

    def wall_s(self) -> float:
        return self._now_s + self._wall_offset_s

    def advance(self, seconds: float) -> None:
        """Moves both readings on; `seconds` must not be negative."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self._now_s += seconds
