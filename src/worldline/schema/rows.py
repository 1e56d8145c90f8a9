"""Rows that moved inside a session's arena, and rows that are new: what a roll-aware residual is made of."""

from __future__ import annotations

from dataclasses import dataclass

from worldline.schema.layout import Extent


@dataclass(frozen=True, slots=True)
class Shift:
    """`rows` rows from row `source` on, to row `to` on. The two may overlap."""

    source: int
    to: int
    rows: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Rows of view number `view`, along its dimension `dim`, that another place of the same view holds already.

    All `shifts` happen at once: each reads what was there before any of them wrote. No row is written twice.
    """

    view: int
    dim: int
    shifts: tuple[Shift, ...]


@dataclass(frozen=True, slots=True)
class Runs:
    """`count` stretches of an arena, `run_bytes` long, their starts `stride_bytes` apart, the first one at `offset`.

    They do not overlap. A single stretch has its own length as its stride.
    """

    offset: int
    run_bytes: int
    stride_bytes: int
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes in the stretches, the gaps left out."""
        return self.run_bytes * self.count

    @property
    def span(self) -> Extent:
        """From the first stretch's start to the last one's end."""
        return Extent(self.offset, (self.count - 1) * self.stride_bytes + self.run_bytes)
