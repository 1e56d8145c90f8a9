"""A moment by which a blocking piece of work has to be done."""

from __future__ import annotations

from worldline.clock import Clock, SystemClock

_CLOCK = SystemClock()


class Deadline:
    """`seconds` from now, on a monotonic clock. Safe to read from any thread."""

    __slots__ = ("_at_s", "_clock")

    def __init__(self, seconds: float, clock: Clock = _CLOCK) -> None:
        self._clock = clock
        self._at_s = clock.monotonic_s() + seconds

    @property
    def left_s(self) -> float:
        """Never negative."""
        return max(0.0, self._at_s - self._clock.monotonic_s())

    @property
    def passed(self) -> bool:
        return self.left_s == 0.0
