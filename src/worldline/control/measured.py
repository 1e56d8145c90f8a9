"""What moves have measured, as the calendar reserves by it: the least of the last few."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from worldline.capacity.domain import positive

WINDOW = 12
"""Measurements that count: a mean, or the last one alone, is too hopeful on a machine that others use too."""
KEYS_MAX = 100_000
HELD_SHARE = 0.9
"""Of the granted rate: who reached it was held by the grant, and says nothing about the line."""

Key = TypeVar("Key", bound=Hashable)


class Least(Generic[Key]):
    """The least of the last `WINDOW` values of each key."""

    def __init__(self) -> None:
        self._values: dict[Key, deque[float]] = {}

    def add(self, key: Key, value: float) -> None:
        values = self._values.get(key)
        if values is None:
            if len(self._values) >= KEYS_MAX:
                del self._values[next(iter(self._values))]
            values = self._values[key] = deque(maxlen=WINDOW)
        values.append(positive(value, "a measured value"))

    def of(self, key: Key) -> float | None:
        """None: never measured."""
        values = self._values.get(key)
        return min(values) if values else None


def line_rate(measured_bytes_per_s: float, granted_bytes_per_s: float, line_bytes_per_s: float) -> float:
    """What a paced transfer says about the line: its own rate if it fell short of its grant, else what was believed.

    Without this the reserve would shrink with every move, as a paced transfer is never faster than its pace.
    """
    held = measured_bytes_per_s >= HELD_SHARE * granted_bytes_per_s
    return line_bytes_per_s if held else min(measured_bytes_per_s, line_bytes_per_s)
