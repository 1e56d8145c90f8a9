"""Blocks of one session that were delivered and can be sent again.

Invariant: at most `BLOCKS_KEPT` of them and `KEPT_BYTES_MAX` in all, but always the newest; older ones go first.
"""

from __future__ import annotations

from collections import OrderedDict

from worldline.runtime.gateway_told import Shown

BLOCKS_KEPT = 256
KEPT_BYTES_MAX = 256 * 1024 * 1024


class Kept:
    """By the number of the action that each applied; each is added once."""

    def __init__(self) -> None:
        self._shown: OrderedDict[int, Shown] = OrderedDict()
        self._nbytes = 0

    def add(self, shown: Shown) -> None:
        self._shown[shown.block.number] = shown
        self._nbytes += _size(shown)
        while len(self._shown) > BLOCKS_KEPT or (self._nbytes > KEPT_BYTES_MAX and len(self._shown) > 1):
            self._nbytes -= _size(self._shown.popitem(last=False)[1])

    def get(self, number: int) -> Shown | None:
        return self._shown.get(number)

    def after(self, number: int) -> list[Shown]:
        """In order."""
        return [shown for at, shown in self._shown.items() if at > number]


def _size(shown: Shown) -> int:
    block = shown.block
    return len(block.payload) + (0 if block.raw is None else len(block.raw))
