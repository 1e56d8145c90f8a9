"""One segment's residual, in grains: the largest unit in which rows, their pieces and leaves are whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from worldline.migration.strides import gathered
from worldline.schema.rows import Copy, Runs, Shift

NEW = -1
"""A row that no row of the earlier cut explains."""
GRAINS_MAX = 1 << 18
"""Of a segment: beyond it the rows are too small to plan with."""
SHIFTS_MAX = 256
RUNS_MAX = 4096
GAIN_MIN = 0.1
"""A residual must save this part of a segment's dirty bytes, or its leaves are sent whole."""

Step: TypeAlias = Copy | Runs


@dataclass(frozen=True, slots=True)
class Moved:
    """`sources[r]` is the row at the earlier cut, along `dim`, that row `r` is now; `NEW` where there was none."""

    dim: int
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view's geometry, in elements of `item_bytes`, and what is said of its rows; None where nothing is."""

    item_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset_bytes: int
    moved: Moved | None


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as planning sees it: a byte a leaf, 1 where it is so. The layers of a cache ask the same."""

    tensors: tuple[Tensor, ...]
    nbytes: int
    leaf_bytes: int
    held: bytes
    """The target has the earlier cut's bytes."""
    clean: bytes
    """The target has the present cut's bytes."""
    same: bytes
    """The two cuts agree."""


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """As if the segment were placed at 0 and its views were numbered from 0."""

    steps: tuple[Step, ...]
    touched: tuple[int, ...]
    """Leaves that the steps write."""


@lru_cache(maxsize=512)
def plan_segment(facts: SegmentFacts, rows_bytes: int) -> SegmentPlan | None:
    """Copies, and rows in steps of at most `rows_bytes`; None where the dirty leaves had better be sent whole."""
    nbytes, leaf_bytes, clean = facts.nbytes, facts.leaf_bytes, facts.clean
    grids = [_Grid.of(tensor) for tensor in facts.tensors]
    grain = math.gcd(leaf_bytes, *(grid.grain_bytes for grid in grids))
    count = -(-nbytes // grain)
    if count > GRAINS_MAX:
        return None
    leaf_of = np.arange(count) * grain // leaf_bytes
    leaf_held, leaf_clean, leaf_same = (np.frombuffer(each, np.bool_) for each in (facts.held, clean, facts.same))
    state = _Grains(leaf_held[leaf_of], leaf_clean[leaf_of])
    steps: list[Step] = []
    for number, grid in enumerate(grids):
        rows = grid.rows(grain, count)
        if rows is None or not state.take(rows):
            return None
        if grid.moved is None:
            state.forget(rows)
            continue
        shifts = state.move(rows, grid.moved)
        if len(shifts) > SHIFTS_MAX or _contradicted(state, leaf_same, leaf_of):
            return None
        if shifts:
            steps.append(Copy(number, grid.moved.dim, shifts))
    missing = state.missing(leaf_of, leaf_clean)
    runs = gathered(missing, grain, nbytes, rows_bytes)
    plain = sum(min(leaf_bytes, nbytes - i * leaf_bytes) for i, is_clean in enumerate(clean) if not is_clean)
    if len(runs) > RUNS_MAX or sum(run.nbytes for run in runs) > (1 - GAIN_MIN) * plain:
        return None
    touched = np.unique(leaf_of[missing | state.written])
    return SegmentPlan((*steps, *runs), tuple(int(leaf) for leaf in touched))


@dataclass(frozen=True, slots=True)
class _Grid:
    """A view as rows along a dimension, each of one or more contiguous pieces of `piece_bytes`."""

    moved: Moved | None
    start_bytes: int
    piece_bytes: int
    row: tuple[int, int]
    """Number of rows, and bytes from one to the next."""
    outer: tuple[tuple[int, int], ...]
    """Sizes and strides in bytes of the dimensions that scatter the pieces of a row."""

    @classmethod
    def of(cls, tensor: Tensor) -> _Grid:
        item, shape, strides, moved = tensor.item_bytes, tensor.shape, tensor.strides, tensor.moved
        offset = tensor.offset_bytes
        if 0 in shape:
            return cls(None, offset, 0, (0, 0), ())
        dims = [(stride * item, size) for size, stride in zip(shape, strides, strict=True)]
        along = None if moved is None else dims.pop(moved.dim)
        piece = item
        outer: list[tuple[int, int]] = []
        for stride, size in sorted(dims):
            if size == 1 or stride == 0:
                continue
            if stride == piece and not outer and (along is None or along[0] != piece):
                piece *= size
            else:
                outer.append((size, stride))
        return cls(moved, offset, piece, (1, 0) if along is None else (along[1], along[0]), tuple(outer))

    @property
    def grain_bytes(self) -> int:
        """The largest unit in which everything about this view is a whole number."""
        return math.gcd(self.start_bytes, self.piece_bytes, self.row[1], *(stride for _, stride in self.outer))

    def rows(self, grain: int, count: int) -> np.ndarray | None:
        """[rows, n]: the grains of each row in a segment of `count`; None where two elements share one."""
        pieces = math.prod((size for size, _ in self.outer), start=self.piece_bytes // grain)
        if self.row[0] * pieces > count:
            return None
        found = np.array([self.start_bytes // grain], np.int64)
        for size, stride in (*self.outer, (self.piece_bytes // grain, grain)):
            found = (found[:, None] + np.arange(size) * (stride // grain)).reshape(-1)
        by_row: np.ndarray = np.arange(self.row[0])[:, None] * (self.row[1] // grain) + found
        return by_row


class _Grains:
    """A segment in grains: what the target has there before the copies, and what is right after them."""

    def __init__(self, held: np.ndarray, clean: np.ndarray) -> None:
        self.held = held
        self.clean = clean
        self.right: np.ndarray = clean | held
        """Right after the copies. What no view covers, or no block rewrote, is right where it is held."""
        self.written = np.zeros(len(held), np.bool_)
        """By copies."""
        self.still = np.ones(len(held), np.bool_)
        """Said not to have changed since the earlier cut."""
        self.moved = np.zeros(len(held), np.bool_)
        """Said to have come from elsewhere."""
        self._taken = np.zeros(len(held), np.uint8)

    def take(self, rows: np.ndarray) -> bool:
        """Whether no view had any of these grains before."""
        np.add.at(self._taken, rows.reshape(-1), 1)
        return not rows.size or int(self._taken[rows].max()) == 1

    def forget(self, rows: np.ndarray) -> None:
        """Nothing is said of these rows: they are right where their leaf is clean."""
        self.still[rows] = False
        self.right[rows] = self.clean[rows]

    def move(self, rows: np.ndarray, moved: Moved) -> tuple[Shift, ...]:
        """The copies that bring known rows to their place, and what they leave to be sent."""
        sources = np.array(moved.sources)
        new, shifted = sources == NEW, (sources != NEW) & (sources != np.arange(len(sources)))
        self.forget(rows[new | shifted])
        self.moved[rows[shifted]] = True
        to = np.flatnonzero(shifted)
        useful = self.held[rows[sources[to]]].any(axis=1) & ~self.clean[rows[to]].all(axis=1)
        to = to[useful]
        self.right[rows[to]] = self.held[rows[sources[to]]]
        self.written[rows[to]] = True
        return _shifts(to, sources[to])

    def missing(self, leaf_of: np.ndarray, leaf_clean: np.ndarray) -> np.ndarray:
        """The grains to be sent. A leaf said to be as it was, whose digest says that it is not, is sent whole."""
        quiet = np.ones(len(leaf_clean), np.bool_)
        quiet[leaf_of[~self.still]] = False
        missing: np.ndarray = ~self.right | (quiet & ~leaf_clean)[leaf_of]
        return missing


def _contradicted(state: _Grains, same: np.ndarray, leaf_of: np.ndarray) -> bool:
    """Whether a leaf that is all rows from elsewhere has not changed: the window still fills, and does not roll."""
    elsewhere = np.ones(len(same), np.bool_)
    elsewhere[leaf_of[~state.moved]] = False
    return bool((elsewhere & same).any())


def _shifts(to: np.ndarray, sources: np.ndarray) -> tuple[Shift, ...]:
    """Neighbouring rows that move together as one."""
    if not len(to):
        return ()
    cuts = np.flatnonzero((np.diff(to) != 1) | (np.diff(sources) != 1)) + 1
    starts, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(to)]))
    return tuple(
        Shift(int(sources[start]), int(to[start]), int(end - start)) for start, end in zip(starts, ends, strict=True)
    )
