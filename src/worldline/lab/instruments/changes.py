"""What one block did to one entry, told by its bytes alone: no rule is believed here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xxhash

from worldline.lab.instruments.looks import Octets, Piece
from worldline.migration.found_rows import row_sources
from worldline.migration.grains import NEW

PAGE_BYTES = 4096
ROWS_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of `nbytes` changed, counted in five ways, all in bytes: those of the elements, pages or rows touched.

    A row lies along the dimension along which most rows are found again; `new_bytes` are of rows that are not found.
    """

    nbytes: int = 0
    changed_bytes: int = 0
    element_bytes: int = 0
    page_bytes: int = 0
    row_bytes: int = 0
    new_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.nbytes + other.nbytes,
            self.changed_bytes + other.changed_bytes,
            self.element_bytes + other.element_bytes,
            self.page_bytes + other.page_bytes,
            self.row_bytes + other.row_bytes,
            self.new_bytes + other.new_bytes,
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """An entry along `dim`, as digests of its rows; and where each row was a block before, `NEW` where it was not."""

    dim: int
    old: np.ndarray  # uint64
    now: np.ndarray  # uint64
    sources: np.ndarray  # int64, as long as `now`

    @property
    def changed(self) -> np.ndarray:
        """Numbers of the rows that are not what they were."""
        return np.flatnonzero(self.sources != np.arange(len(self.sources)))

    @property
    def new(self) -> np.ndarray:
        """Numbers of the rows that were nowhere."""
        return np.flatnonzero(self.sources == NEW)


@dataclass(frozen=True, slots=True)
class Change:
    """What a block did to an entry."""

    amount: Amount
    rebound: bool
    """It is another tensor than before, or another kind of thing."""
    rows: Rows | None
    """None where nothing changed, or rows can't be told."""

    @property
    def is_none(self) -> bool:
        """Whether every byte is what it was."""
        return self.amount.changed_bytes == 0 and self.rows is None


def change(before: Piece | None, after: Piece) -> Change:
    """From one boundary to the next. An entry that was not there, or was no tensor of this dtype, is all new."""
    alike = before is not None and (before.dtype, len(before.shape)) == (after.dtype, len(after.shape))
    if before is not None and not after.shape:
        alike = alike and before.nbytes == after.nbytes
    rebound = before is None or (before.address, before.dtype) != (after.address, after.dtype)
    if before is None or not alike:
        return Change(_all_new(after), rebound, None)
    if before.shape == after.shape and np.array_equal(before.octets, after.octets):
        return Change(Amount(after.nbytes), rebound, None)
    mask = _mask(before, after)
    rows = _rows(before, after)
    row_bytes, new_bytes = _row_bytes(after, rows)
    amount = Amount(
        nbytes=after.nbytes,
        changed_bytes=int(np.count_nonzero(mask)),
        element_bytes=_touched(mask, after.item_bytes),
        page_bytes=_touched(mask, PAGE_BYTES),
        row_bytes=row_bytes,
        new_bytes=new_bytes,
    )
    return Change(amount, rebound, rows)


def _all_new(piece: Piece) -> Amount:
    return Amount(*[piece.nbytes] * 6)


def _mask(before: Piece, after: Piece) -> np.ndarray:
    """bool [bytes of `after`]: what differs from the byte at the same place; all of what was not there."""
    if before.shape == after.shape:
        differs: np.ndarray = before.octets != after.octets
        return differs
    common = tuple(slice(min(a, b)) for a, b in zip(before.shape, after.shape, strict=True))
    mask = np.ones((*after.shape, after.item_bytes), np.bool_)
    mask[common] = _shaped(before)[common] != _shaped(after)[common]
    return mask.reshape(-1)


def _touched(mask: np.ndarray, unit_bytes: int) -> int:
    """Bytes in the units of which one differs. The last unit may be short."""
    whole = len(mask) // unit_bytes * unit_bytes
    touched = int(np.count_nonzero(mask[:whole].reshape(-1, unit_bytes).any(1))) * unit_bytes
    return touched + (len(mask) - whole if mask[whole:].any() else 0)


def _shaped(piece: Piece) -> Octets:
    return piece.octets.reshape((*piece.shape, piece.item_bytes))


def _rows(before: Piece, after: Piece) -> Rows | None:
    """Along the dimension along which most rows are found again."""
    unequal = [dim for dim, (a, b) in enumerate(zip(before.shape, after.shape, strict=True)) if a != b]
    if len(unequal) > 1:
        return None
    dims = unequal or [dim for dim, size in enumerate(after.shape) if 2 <= size <= ROWS_MAX]
    found = [_along(before, after, dim) for dim in dims]
    return max(found, key=lambda rows: float(np.mean(rows.sources != NEW)) if len(rows.sources) else 0.0, default=None)


def _along(before: Piece, after: Piece, dim: int) -> Rows:
    old, new = _digests(before, dim), _digests(after, dim)
    size = max(len(old), len(new))
    sources = row_sources(_padded(old, size, _NO_OLD), _padded(new, size, _NO_NEW))[: len(new)]
    return Rows(dim, old, new, sources)


_NO_OLD, _NO_NEW = np.uint64(0x6E6F206F6C642121), np.uint64(0x6E6F206E65772121)
"""Stand for rows that are not there; no digest's, but by a chance of 2^-64 a row."""


def _padded(digests: np.ndarray, size: int, filler: np.uint64) -> np.ndarray:
    return np.concatenate([digests, np.full(size - len(digests), filler, np.uint64)])


def _digests(piece: Piece, dim: int) -> np.ndarray:
    """uint64, one a row."""
    size = piece.shape[dim]
    if not size:
        return np.zeros(0, np.uint64)
    rows = np.ascontiguousarray(np.moveaxis(_shaped(piece), dim, 0)).reshape(size, -1)
    return np.fromiter((xxhash.xxh3_64_intdigest(row.data) for row in rows), np.uint64, size)


def _row_bytes(piece: Piece, rows: Rows | None) -> tuple[int, int]:
    """Bytes of the rows that changed, and of those that are new; all where rows can't be told."""
    if rows is None or not len(rows.sources):
        return piece.nbytes, piece.nbytes
    row_bytes = math.prod(piece.shape) * piece.item_bytes // piece.shape[rows.dim]
    return len(rows.changed) * row_bytes, len(rows.new) * row_bytes
