"""Two states held against each other byte by byte: dtype, shape, strides, then raw bytes. Never a tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worldline.schema.layout import Extent, Manifest, Segment, View
from worldline.snapshot.checks import span_bytes
from worldline.snapshot.dtypes import ITEM_BYTES
from worldline.verify.digests import BytesAt


@dataclass(frozen=True, slots=True)
class State:
    """A state and where it lies."""

    manifest: Manifest
    memory: BytesAt


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that differs, in canonical order.

    `path` is a tensor's, a segment's where no tensor covers the byte, or empty where the layout itself differs. For
    bytes, `offset_bytes` counts from the segment's start.
    """

    path: str
    what: str
    left: str
    right: str
    offset_bytes: int | None = None

    def __str__(self) -> str:
        at = "" if self.offset_bytes is None else f" at byte {self.offset_bytes}"
        return f"{self.path or 'the layout'}: {self.what}{at} is {self.left} on the left and {self.right} on the right"


def first_difference(left: State, right: State) -> Difference | None:
    """None when layouts and all canonical bytes are equal: exactly when their content roots are. The block is not
    compared.
    """
    return _layout_difference(left.manifest, right.manifest) or _bytes_difference(left, right)


def _layout_difference(left: Manifest, right: Manifest) -> Difference | None:
    mine, theirs = left.layout, right.layout
    for ours, other in zip(mine.views, theirs.views, strict=False):
        found = _view_difference(ours, other)
        if found is not None:
            return found
    if len(mine.views) != len(theirs.views):
        short = min(len(mine.views), len(theirs.views))
        longer = mine.views if len(mine.views) > short else theirs.views
        return Difference(longer[short].path, "the number of tensors", str(len(mine.views)), str(len(theirs.views)))
    if mine.leaf_bytes != theirs.leaf_bytes:
        return Difference("", "the leaf size", str(mine.leaf_bytes), str(theirs.leaf_bytes))
    # Other trees have other texts: the text tells more than its length.
    for here, there in zip(mine.segments[1:], theirs.segments[1:], strict=True):
        if here.nbytes != there.nbytes:
            return Difference(here.name, "the size of its memory", str(here.nbytes), str(there.nbytes))
    return None


def _view_difference(ours: View, other: View) -> Difference | None:
    for what in ("path", "dtype", "shape", "strides", "segment", "offset_bytes"):
        mine, theirs = getattr(ours, what), getattr(other, what)
        if mine != theirs:
            return Difference(ours.path, what, str(mine), str(theirs))
    return None


def _bytes_difference(left: State, right: State) -> Difference | None:
    for number, (mine, theirs) in enumerate(
        zip(left.manifest.layout.segments, right.manifest.layout.segments, strict=True)
    ):
        at = _first_byte(_segment(left, number, mine), _segment(right, number, theirs))
        if at is not None:
            return _describe(left, right, number, at)
    return None


def _segment(state: State, number: int, segment: Segment) -> memoryview:
    return state.memory.bytes_at(Extent(state.manifest.placements[number].offset, segment.nbytes))


def _first_byte(mine: memoryview, theirs: memoryview) -> int | None:
    size = min(len(mine), len(theirs))
    for start in range(0, size, 1 << 20):
        ours = np.frombuffer(mine[start : min(start + (1 << 20), size)], np.uint8)
        other = np.frombuffer(theirs[start : min(start + (1 << 20), size)], np.uint8)
        if not np.array_equal(ours, other):
            return start + int(np.argmax(ours != other))
    return size if len(mine) != len(theirs) else None


def _describe(left: State, right: State, number: int, at: int) -> Difference:
    segment = left.manifest.layout.segments[number]
    mine = _segment(left, number, segment)
    theirs = _segment(right, number, right.manifest.layout.segments[number])
    if number == 0:
        start = max(at - 24, 0)
        return Difference(
            segment.name, "the tree", str(bytes(mine[start : at + 24])), str(bytes(theirs[start : at + 24])), at
        )
    view = next((v for v in left.manifest.layout.views if v.segment == number and _covers(v, at)), None)
    item = 1 if view is None else ITEM_BYTES[view.dtype]
    start = at if view is None else at - (at - view.offset_bytes) % item
    path = segment.name if view is None else view.path
    return Difference(path, "an element", mine[start : start + item].hex(), theirs[start : start + item].hex(), at)


def _covers(view: View, at: int) -> bool:
    """Whether byte `at` of the segment may belong to the tensor: between its first and its last element."""
    return 0 <= at - view.offset_bytes < span_bytes(view.shape, view.strides, ITEM_BYTES[view.dtype])
