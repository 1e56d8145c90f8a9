"""How a session's state lies in its arena at one block boundary.

A *segment* is one stretch of canonical bytes: the part of one storage that the state's tensors cover, with uncovered
bytes zero. A *view* is one tensor over a segment. Two views of one segment are aliases, and stay aliases after a move.
Where a segment lies in an arena (its `Placement`) is not part of the layout: twins and forks share layout and root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from worldline.schema.inventory import Kind, WriteRule

LEAF_BYTES_MIN = 64 * 1024
LEAF_BYTES_MAX = 1024 * 1024
SEGMENTS_MAX = 65_536
VIEWS_MAX = 65_536
DIMS_MAX = 32
ALIGN_BYTES = 4096
"""Gathered segments start at a multiple of this in an arena, all segments do in an image."""
META_SEGMENT = "meta"
"""The segment that holds the state tree itself as canonical JSON, with references to views."""


@dataclass(frozen=True, slots=True)
class Segment:
    """`nbytes` canonical bytes, named by the path of the first tensor over them."""

    name: str
    nbytes: int
    kind: Kind
    write: WriteRule


@dataclass(frozen=True, slots=True)
class View:
    """One tensor: elements of `dtype`, `shape`, `strides` in elements, from `offset_bytes` of segment number `segment`.

    `dtype` is torch's name without the prefix (`float32`, `bfloat16`, `int64`); `rng` marks the state of a generator
    (uint8).
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    segment: int
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where segment number i lies: `offset` in the arena, `capacity` bytes kept for it.

    `resident` says that the engine's own tensor lives there (it was allocated from the arena), so that a hand-over
    needs no copy; it starts where the tensor does, perhaps in the middle of an allocation. Otherwise the bytes were
    gathered at the boundary, to a multiple of `ALIGN_BYTES`.
    """

    offset: int
    capacity: int
    resident: bool


class Extent(NamedTuple):
    """A stretch of an arena. A tuple: a state has thousands, made, hashed and compared within a pause."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Layout:
    """Segments in canonical order, the views over them, and the leaf size of their digests."""

    segments: tuple[Segment, ...]
    views: tuple[View, ...]
    leaf_bytes: int

    @property
    def nbytes(self) -> int:
        """Canonical bytes of the whole state."""
        return sum(segment.nbytes for segment in self.segments)

    @property
    def leaf_count(self) -> int:
        return sum(-(-segment.nbytes // self.leaf_bytes) for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A layout placed in an arena at a block boundary: what a target needs to find and digest the state.

    `placements[i]` belongs to `layout.segments[i]`. `block` counts blocks generated since open.
    """

    layout: Layout
    placements: tuple[Placement, ...]
    block: int

    def leaves(self) -> Iterator[Extent]:
        """Arena extents of the leaves in canonical order: a leaf never spans two segments, the last of a segment is
        shorter.
        """
        for segment, placement in zip(self.layout.segments, self.placements, strict=True):
            yield from leaves_of(segment, placement, self.layout.leaf_bytes)


def leaves_of(segment: Segment, placement: Placement, leaf_bytes: int) -> Iterator[Extent]:
    """The leaves of one placed segment, the last one shorter."""
    for start in range(0, segment.nbytes, leaf_bytes):
        yield Extent(placement.offset + start, min(leaf_bytes, segment.nbytes - start))
