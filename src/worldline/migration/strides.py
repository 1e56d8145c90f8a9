"""Many small stretches as few strided ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from worldline.schema.rows import Runs


def gathered(wanted: np.ndarray, grain_bytes: int, nbytes: int, step_bytes: int) -> tuple[Runs, ...]:
    """The grains marked in `wanted` as runs in ascending order, none longer than `step_bytes` in all.

    The last grain ends where the segment does, at `nbytes`.
    """
    edges = np.diff(np.concatenate(([0], wanted.astype(np.int8), [0])))
    starts = np.flatnonzero(edges == 1) * grain_bytes
    ends = np.minimum(np.flatnonzero(edges == -1) * grain_bytes, nbytes)
    return tuple(
        piece for group in _alike(starts.tolist(), (ends - starts).tolist()) for piece in _pieces(group, step_bytes)
    )


def _alike(starts: list[int], lengths: list[int]) -> Iterator[Runs]:
    """Neighbours of one length, evenly apart, as one."""
    first = 0
    while first < len(starts):
        last = first
        stride = starts[first + 1] - starts[first] if first + 1 < len(starts) else 0
        while (
            last + 1 < len(starts) and lengths[last + 1] == lengths[first] and starts[last + 1] - starts[last] == stride
        ):
            last += 1
        count = last - first + 1
        yield Runs(starts[first], lengths[first], stride if count > 1 else lengths[first], count)
        first = last + 1


def _pieces(runs: Runs, step_bytes: int) -> Iterator[Runs]:
    """Of at most `step_bytes` each."""
    if runs.run_bytes > step_bytes:
        for start in range(runs.offset, runs.offset + runs.stride_bytes * runs.count, runs.stride_bytes):
            for at in range(0, runs.run_bytes, step_bytes):
                length = min(step_bytes, runs.run_bytes - at)
                yield Runs(start + at, length, length, 1)
        return
    each = step_bytes // runs.run_bytes
    for first in range(0, runs.count, each):
        count = min(each, runs.count - first)
        stride = runs.stride_bytes if count > 1 else runs.run_bytes
        yield Runs(runs.offset + first * runs.stride_bytes, runs.run_bytes, stride, count)
