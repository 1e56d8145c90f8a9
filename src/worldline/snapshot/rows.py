"""Rows of an arena: copied from place to place, read out for the wire and written from it. No torch here.

Every function stays within the segment (or the stretches) it was given: numpy refuses strides that leave the buffer,
whatever a peer's manifest said.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from worldline.schema.layout import Extent, Manifest
from worldline.schema.rows import Copy, Runs
from worldline.snapshot.dtypes import ITEM_BYTES

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


class Memory(Protocol):
    """Memory that can be written in place: an arena."""

    def bytes_at(self, extent: Extent) -> memoryview: ...


def copy_rows(memory: Memory, manifest: Manifest, copy: Copy) -> None:
    """Carries out a checked copy. Takes a second buffer of at most the view's own size for as long as it runs."""
    view = manifest.layout.views[copy.view]
    segment, place = manifest.layout.segments[view.segment], manifest.placements[view.segment]
    item = ITEM_BYTES[view.dtype]
    elements = np.ndarray(
        view.shape,
        _UNSIGNED[item],
        buffer=memory.bytes_at(Extent(place.offset, segment.nbytes)),
        offset=view.offset_bytes,
        strides=tuple(stride * item for stride in view.strides),
    )
    rows = np.moveaxis(elements, copy.dim, 0)
    if len(copy.shifts) == 1:
        (shift,) = copy.shifts
        rows[shift.to : shift.to + shift.rows] = rows[shift.source : shift.source + shift.rows]  # overlap is seen to
        return
    read = [rows[shift.source : shift.source + shift.rows].copy() for shift in copy.shifts]
    for shift, values in zip(copy.shifts, read, strict=True):
        rows[shift.to : shift.to + shift.rows] = values


def read_runs(memory: Memory, runs: Runs) -> bytes:
    """The bytes of the stretches, one after the other."""
    return _stretches(memory, runs).tobytes()


def write_runs(memory: Memory, runs: Runs, data: bytes | memoryview) -> None:
    """Writes what `read_runs` read elsewhere."""
    _stretches(memory, runs)[...] = np.frombuffer(data, np.uint8).reshape(runs.count, runs.run_bytes)


def _stretches(memory: Memory, runs: Runs) -> np.ndarray:
    """[count, run_bytes], over the memory itself."""
    octets = memory.bytes_at(runs.span)
    return np.ndarray((runs.count, runs.run_bytes), np.uint8, buffer=octets, strides=(runs.stride_bytes, 1))
