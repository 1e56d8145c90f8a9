"""What a manifest from elsewhere must be before anything is allocated for it. Pure.

The text of a manifest is bounded where it is decoded; here its numbers are held against each other and against the
arena.
"""

from __future__ import annotations

import math
from itertools import pairwise

from worldline.errors import LayoutRefused
from worldline.schema.layout import (
    ALIGN_BYTES,
    DIMS_MAX,
    LEAF_BYTES_MAX,
    LEAF_BYTES_MIN,
    META_SEGMENT,
    SEGMENTS_MAX,
    VIEWS_MAX,
    Layout,
    Manifest,
    View,
)
from worldline.schema.remembered import remembered
from worldline.snapshot.dtypes import ITEM_BYTES, RNG

NAME_BYTES_MAX = 1024
ELEMENTS_MAX = 1 << 48
STATE_BYTES_MAX = 1 << 46
META_BYTES_MAX = 16 * 1024 * 1024


def check_manifest(manifest: Manifest, capacity: int) -> None:
    """Holds a manifest against an arena of `capacity` bytes. Raises `LayoutRefused` with the first thing that is
    wrong.
    """
    check_layout(manifest.layout)
    segments = manifest.layout.segments
    if len(manifest.placements) != len(segments):
        raise LayoutRefused(f"{len(segments)} segments have {len(manifest.placements)} places")
    if manifest.block < 0:
        raise LayoutRefused("a block count below zero")
    for segment, place in zip(segments, manifest.placements, strict=True):
        if place.capacity < segment.nbytes or place.offset < 0 or place.offset + place.capacity > capacity:
            raise LayoutRefused(
                f"segment {segment.name!r} does not fit where it is placed",
                nbytes=segment.nbytes,
                offset=place.offset,
                place_bytes=place.capacity,
                arena_bytes=capacity,
            )
        if not place.resident and place.offset % ALIGN_BYTES:
            raise LayoutRefused(f"segment {segment.name!r} is placed at {place.offset}, which is not aligned")
    if manifest.placements[0].resident:
        raise LayoutRefused("the state's tree is placed as an engine's tensor")
    taken = sorted((place for place in manifest.placements if place.capacity), key=lambda place: place.offset)
    for before, after in pairwise(taken):
        if before.offset + before.capacity > after.offset:
            raise LayoutRefused(f"two segments are placed over each other at {after.offset}", offset=after.offset)
    for view in manifest.layout.views:
        place = manifest.placements[view.segment]
        if place.resident and (place.offset + view.offset_bytes) % ITEM_BYTES[view.dtype]:
            raise LayoutRefused(f"tensor {view.path!r} is placed at an odd address")


@remembered
def check_layout(layout: Layout) -> None:
    """Raises `LayoutRefused` with the first thing that is wrong."""
    segments, views = layout.segments, layout.views
    if not 0 < len(segments) <= SEGMENTS_MAX or len(views) > VIEWS_MAX:
        raise LayoutRefused(f"{len(segments)} segments and {len(views)} tensors")
    step = layout.leaf_bytes
    if not LEAF_BYTES_MIN <= step <= LEAF_BYTES_MAX or step % ALIGN_BYTES:
        raise LayoutRefused(f"leaves of {step} bytes")
    if segments[0].name != META_SEGMENT or not 0 < segments[0].nbytes <= META_BYTES_MAX:
        raise LayoutRefused("the first segment is not the state's tree")
    if any(segment.nbytes < 0 for segment in segments) or layout.nbytes > STATE_BYTES_MAX:
        raise LayoutRefused("a state of an impossible size")
    _check_names([segment.name for segment in segments], "segments")
    _check_names([view.path for view in views], "tensors")
    named: set[int] = {0}
    for view in views:
        if not 0 < view.segment < len(segments):
            raise LayoutRefused(f"tensor {view.path!r} lies in no segment")
        segment = segments[view.segment]
        if view.segment not in named:
            named.add(view.segment)
            if segment.name != view.path:
                raise LayoutRefused(f"segment {segment.name!r} is not named after its first tensor {view.path!r}")
            if len(named) != view.segment + 1:
                raise LayoutRefused(f"segment {segment.name!r} is out of order")
        check_view(view, segment.nbytes)
    if len(named) != len(segments):
        raise LayoutRefused("a segment without a tensor")


def check_view(view: View, segment_bytes: int) -> None:
    """Holds one tensor against its segment. Raises `LayoutRefused`."""
    item = ITEM_BYTES.get(view.dtype)
    if item is None:
        raise LayoutRefused(f"tensor {view.path!r} has an unknown dtype {view.dtype[:32]!r}")
    if len(view.shape) != len(view.strides) or len(view.shape) > DIMS_MAX:
        raise LayoutRefused(f"tensor {view.path!r} has {len(view.shape)} sizes and {len(view.strides)} strides")
    if any(size < 0 for size in view.shape) or any(not 0 <= stride < 2**63 for stride in view.strides):
        raise LayoutRefused(f"tensor {view.path!r} has a negative size or stride")
    if math.prod(size for size in view.shape if size) > ELEMENTS_MAX:
        raise LayoutRefused(f"tensor {view.path!r} has too many elements")
    end = view.offset_bytes + span_bytes(view.shape, view.strides, item)
    if view.offset_bytes < 0 or view.offset_bytes % item or end > segment_bytes:
        raise LayoutRefused(f"tensor {view.path!r} reaches outside its segment", end=end, segment_bytes=segment_bytes)
    if view.dtype == RNG and (len(view.shape) != 1 or view.strides != (1,) or view.shape[0] != segment_bytes):
        raise LayoutRefused(f"generator {view.path!r} does not have a segment of its own")


def span_bytes(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> int:
    """Bytes from a strided tensor's first element to the end of its last; 0 where it has none."""
    if 0 in shape:
        return 0
    return (sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1) * item


def _check_names(names: list[str], what: str) -> None:
    if len(set(names)) != len(names):
        raise LayoutRefused(f"two {what} have one name")
    for name in names:
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise LayoutRefused(f"a name among the {what} is no Unicode text: {name[:80]!a}") from error
        if not 0 < size <= NAME_BYTES_MAX:
            raise LayoutRefused(f"a name among the {what} has {size} bytes, of 1 to {NAME_BYTES_MAX}")
