"""How fast a run may be played on this machine, as it is now: what is left of its processor decides the dilation.

Lanes digest for a moment while others use the machine as they do. Where less than `ENOUGH_BYTES_PER_S` gets done, about
a quarter of what two quiet cores do, ports are made slower than `PORT_BYTES_PER_S` in proportion, and every time of the
run stretches with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from worldline.clock import Clock
from worldline.schema.layout import Extent
from worldline.verify.digests import leaf_digests

MIB = 1024 * 1024
MEMORY_BYTES, LEAF_BYTES = 16 * MIB, MIB
LANES, LOOK_S = 2, 1.5
PORT_BYTES_PER_S, PORT_BYTES_PER_S_MIN = 37.5e6, 8e6
ENOUGH_BYTES_PER_S = 12e9
"""Of both lanes. Two quiet cores digest 50 GB a second out of their caches, two that ten others use as well 5 GB."""


class _Memory:
    def __init__(self) -> None:
        self._octets = memoryview(bytearray(MEMORY_BYTES))

    def bytes_at(self, extent: Extent) -> memoryview:
        return self._octets[extent.offset : extent.offset + extent.nbytes]


def port_rate(work_bytes_per_s: float) -> float:
    """Of every port of the run, in bytes a second."""
    return max(PORT_BYTES_PER_S_MIN, PORT_BYTES_PER_S * min(1.0, work_bytes_per_s / ENOUGH_BYTES_PER_S))


def work_bytes_per_s(clock: Clock) -> float:
    """What the lanes digest together now."""
    leaves = [Extent(offset, LEAF_BYTES) for offset in range(0, MEMORY_BYTES, LEAF_BYTES)]
    with ThreadPoolExecutor(LANES) as pool:
        return sum(pool.map(lambda _: _digest(leaves, clock), range(LANES)))


def _digest(leaves: Sequence[Extent], clock: Clock) -> float:
    memory, began_s, done = _Memory(), clock.monotonic_s(), 0
    while (spent_s := clock.monotonic_s() - began_s) < LOOK_S:
        leaf_digests(memory, leaves)
        done += MEMORY_BYTES
    return done / spent_s
