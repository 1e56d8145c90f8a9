"""What a target checks of copies and rows before either has an effect. A peer's word, so everything is refused that is
not within the state.
"""

from __future__ import annotations

import math
from typing import assert_never

from worldline.errors import Malformed
from worldline.migration.grains import Step
from worldline.schema.layout import Extent, Manifest
from worldline.schema.rows import Copy, Runs
from worldline.snapshot.checks import check_view, span_bytes
from worldline.snapshot.dtypes import ITEM_BYTES


def written_span(step: Step, manifest: Manifest) -> Extent:
    """From the first byte that a step writes to its last. Raises `Malformed`, `LayoutRefused`.

    A copy is checked whole. Whether the span of rows lies in leaves is for who knows them.
    """
    match step:
        case Copy():
            return _copy_span(step, manifest)
        case Runs():
            return step.span
        case _:
            assert_never(step)


def _copy_span(copy: Copy, manifest: Manifest) -> Extent:
    layout = manifest.layout
    if copy.view >= len(layout.views):
        raise Malformed(f"a copy of view {copy.view}, and the state has {len(layout.views)}")
    view = layout.views[copy.view]
    if not view.segment < len(layout.segments):
        raise Malformed(f"a copy of tensor {view.path!r}, which lies in no segment")
    segment, place = layout.segments[view.segment], manifest.placements[view.segment]
    check_view(view, segment.nbytes)
    item = ITEM_BYTES[view.dtype]
    if copy.dim >= len(view.shape) or not 0 < math.prod(view.shape) * item <= segment.nbytes:
        raise Malformed(f"a copy along dimension {copy.dim} of tensor {view.path!r}, whose elements share their bytes")
    rows = view.shape[copy.dim]
    if any(max(shift.source, shift.to) + shift.rows > rows for shift in copy.shifts):
        raise Malformed(f"a copy leaves the {rows} rows of tensor {view.path!r}")
    first = min(shift.to for shift in copy.shifts)
    last = max(shift.to + shift.rows for shift in copy.shifts)
    shape = (*view.shape[: copy.dim], last - first, *view.shape[copy.dim + 1 :])
    start = place.offset + view.offset_bytes + first * view.strides[copy.dim] * item
    return Extent(start, span_bytes(shape, view.strides, item))
