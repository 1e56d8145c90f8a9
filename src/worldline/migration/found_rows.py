"""Rows found again by what they hold, where no write rule says how they moved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from worldline.migration.grains import NEW, Moved
from worldline.schema.layout import View
from worldline.snapshot.row_grid import RowGrid, row_grid

_ODD = np.uint64(0x9E3779B97F4A7C15)


def moved_by_content(view: View, before: np.ndarray | None, after: np.ndarray | None) -> Moved | None:
    """How the rows of `view` moved between two cuts, along the dimension that explains most of them.

    `before`, `after`: what the rows held, as uint64 in the shape of the view's `row_grid`. None where no row is found
    again. A pair of equal digests that are not of equal rows costs a resend: the target digests what it copied.
    """
    grid = row_grid(view)
    if grid is None or before is None or after is None or before.shape != grid.sizes or after.shape != grid.sizes:
        return None
    best = max(_along(grid, before, after), key=lambda found: found[0], default=(0.0, None))
    return best[1]


def _along(grid: RowGrid, before: np.ndarray, after: np.ndarray) -> Iterator[tuple[float, Moved]]:
    """For each dimension, the share of its rows that are found again, and where."""
    for axis, dim in enumerate(grid.dims):
        sources = row_sources(_summed(before, axis), _summed(after, axis))
        known = sources != NEW
        if known.any():
            yield float(known.mean()), Moved(dim, tuple(sources.tolist()))


def _summed(rows: np.ndarray, axis: int) -> np.ndarray:
    """One number a row along `axis`, which depends on each digest in it and on its place."""
    flat = np.moveaxis(rows, axis, 0).reshape(rows.shape[axis], -1)
    weights = (np.arange(flat.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)) * _ODD
    mixed = (flat ^ (flat >> np.uint64(29))) * weights
    summed: np.ndarray = (mixed ^ (mixed >> np.uint64(32))).sum(axis=1, dtype=np.uint64)
    return summed


def row_sources(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Each row's place before, `NEW` where there was none: its own if it is unchanged, else where most others went."""
    rows = np.arange(len(after))
    order = np.argsort(before, kind="stable")
    at = order[np.minimum(np.searchsorted(before[order], after), len(order) - 1)]
    sources = np.where(before[at] == after, at, NEW)
    unchanged = before == after
    moved = (sources != NEW) & ~unchanged
    if moved.any():
        ways, counts = np.unique(sources[moved] - rows[moved], return_counts=True)
        there = rows + ways[counts.argmax()]
        inside = (there >= 0) & (there < len(rows))
        alike = inside & (before[np.clip(there, 0, len(rows) - 1)] == after)
        sources = np.where(alike, there, sources)
    return np.where(unchanged, rows, sources)
