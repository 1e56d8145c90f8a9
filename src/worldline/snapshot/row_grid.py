"""Tensors as rows, from nothing but their shape: where an engine says nothing of how it writes, rows are told apart by
what they hold. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from worldline.schema.inventory import Append, Free, Kind, Ring
from worldline.schema.layout import Layout, Segment, View
from worldline.snapshot.dtypes import ITEM_BYTES

ROW_BYTES_MIN = 512
"""Of a row: 8 octets are kept of each, so at most 1.6 % of the state; 0.3 % of Matrix-Game-2's."""
ROWS_MAX = 1 << 20
SEGMENT_BYTES_MIN = 1 << 20
"""A smaller segment is a few leaves, and is sent whole."""
_MOVING_KINDS = frozenset({Kind.CACHE, Kind.AUX})


@dataclass(frozen=True, slots=True)
class RowGrid:
    """A view's contiguous pieces of `row_bytes`, in a grid over the view's `dims`."""

    row_bytes: int
    start_bytes: int
    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]

    def offsets(self) -> np.ndarray:
        """Of each row within the segment, in the order of the grid."""
        offsets = np.array([self.start_bytes], np.int64)
        for size, stride in zip(self.sizes, self.strides_bytes, strict=True):
            offsets = (offsets[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
        return offsets


def row_grid(view: View) -> RowGrid | None:
    """The rows of a view; None where it has no two, or more than are worth telling apart."""
    item = ITEM_BYTES[view.dtype]
    if 0 in view.shape or 0 in (stride for size, stride in zip(view.shape, view.strides, strict=True) if size > 1):
        return None
    row_bytes = item
    outer: list[int] = []
    for dim in sorted(range(len(view.shape)), key=lambda dim: view.strides[dim]):
        if view.shape[dim] == 1:
            continue
        if not outer and row_bytes < ROW_BYTES_MIN and view.strides[dim] * item == row_bytes:
            row_bytes *= view.shape[dim]
        else:
            outer.append(dim)
    dims = tuple(sorted(outer))
    sizes = tuple(view.shape[dim] for dim in dims)
    if row_bytes < ROW_BYTES_MIN or not 2 <= math.prod(sizes) <= ROWS_MAX:
        return None
    strides = tuple(view.strides[dim] * item for dim in dims)
    return RowGrid(row_bytes, view.offset_bytes, dims, sizes, strides)


def found_by_content(layout: Layout) -> list[int]:
    """Numbers of the views whose rows are worth telling apart by what they hold."""
    return [number for number, view in enumerate(layout.views) if _is_worth_it(layout.segments[view.segment], view)]


def _is_worth_it(segment: Segment, view: View) -> bool:
    """Nothing is declared; or rows are, and they are scattered, so that one of them dirties every leaf."""
    if segment.nbytes < SEGMENT_BYTES_MIN or segment.kind not in _MOVING_KINDS:
        return False
    match segment.write:
        case Free():
            return True
        case Ring(dim=dim) | Append(dim=dim):
            if not -len(view.shape) <= dim < len(view.shape):
                return False
            stride = view.strides[dim]
            return any(s > stride for size, s in zip(view.shape, view.strides, strict=True) if size > 1)
        case _:
            return False
