"""A tiny world in this process, as the hosts of a crash run compute it."""

from __future__ import annotations

from worldline.testing.tiny import TinyLive, TinyWorld
from worldline.testing.torture_runs import OPTIONS
from worldline.worlds.scratch import ScratchMemory

_WORLDS: list[TinyWorld] = []


class TinyTwin:
    """One session of it."""

    def __init__(self, seed: int) -> None:
        if not _WORLDS:
            _WORLDS.append(TinyWorld(OPTIONS | {"block_period_ms": 0.0}))
        self._live: TinyLive = _WORLDS[0].open(seed, ScratchMemory())

    def step(self, action: int) -> bytes:
        """The block's pictures."""
        return self._live.step(action).tobytes()
