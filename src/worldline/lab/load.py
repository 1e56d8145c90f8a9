"""How busy a machine is: what a measurement had to share it with."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
COUNTED = 8
"""user nice system idle iowait irq softirq steal, in ticks since boot (proc_stat(5)); guest time is in user's."""
IDLE, IOWAIT, STEAL = 3, 4, 7


@dataclass(frozen=True, slots=True)
class Load:
    """Since the reading before: shares of all cores' time, 0 to 1. `steal`: another guest of the same machine ran."""

    busy: float
    steal: float
    load_1m: float
    memory_available_bytes: int


class LoadMeter:
    """Readings in a row. `proc` is where the kernel tells."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._before = self._ticks()

    def read(self) -> Load:
        """Raises `OSError`, `ValueError` where the kernel does not tell."""
        now = self._ticks()
        spent = [after - before for after, before in zip(now, self._before, strict=True)]
        self._before = now
        whole = max(sum(spent), 1)
        available = re.search(r"^MemAvailable:\s*([0-9]+) kB$", (self._proc / "meminfo").read_text(), re.MULTILINE)
        if available is None:
            raise ValueError("the kernel does not tell how much memory is available")
        return Load(
            busy=1 - (spent[IDLE] + spent[IOWAIT]) / whole,
            steal=spent[STEAL] / whole,
            load_1m=os.getloadavg()[0],
            memory_available_bytes=int(available[1]) * 1024,
        )

    def _ticks(self) -> list[int]:
        with (self._proc / "stat").open() as file:
            words = file.readline().split()
        if words[:1] != ["cpu"] or len(words) <= COUNTED:
            raise ValueError("the kernel does not tell how its cores spend their time")
        return [int(word) for word in words[1 : COUNTED + 1]]
