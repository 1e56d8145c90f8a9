"""The roll-aware residual: what a target must be told when most of a rewritten window is old rows in a new place.

The target holds, leaf by leaf, the bytes of an earlier cut wherever the digest it reported is that cut's. From such
leaves rows are copied inside its own arena; what copies don't explain is sent as rows; all other dirty leaves are sent
whole, as ever. Nothing here is believed: the target digests what came out, and a leaf that differs is resent whole.

A residual is planned by segment. `Moved` says for each row of a view which row it was at the earlier cut; it follows
from a write rule, or was found by content (`migration.found_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import assert_never

import numpy as np

from worldline.migration.found_rows import moved_by_content
from worldline.migration.grains import GRAINS_MAX, NEW, Moved, SegmentFacts, SegmentPlan, Step, Tensor, plan_segment
from worldline.schema.inventory import Roll, WriteRule
from worldline.schema.layout import Extent, Manifest, Segment, View
from worldline.schema.rows import Copy, Runs
from worldline.snapshot.dtypes import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class Residual:
    """What makes a target's bytes the present cut's. `steps` in order, before or beside `leaves`, which share no
    segment with them.
    """

    steps: tuple[Step, ...]
    leaves: tuple[Extent, ...]
    """Sent whole."""
    touched: frozenset[int]
    """Numbers of the leaves that `steps` write."""
    nbytes: int
    """That cross the link, records left out."""


@dataclass(frozen=True, slots=True)
class Version:
    """An earlier cut, as far as leaves go: what the source digested then, in the order of the leaves."""

    block: int
    digests: Sequence[bytes | None]
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What rows held, by a view's path, where it was read."""


def moved_by_rule(rule: WriteRule, view: View, blocks: int) -> Moved | None:
    """Where the rows of `view` were `blocks` blocks ago, if its window was full then; None where no row can be told."""
    if not isinstance(rule, Roll) or not -len(view.shape) <= rule.dim < len(view.shape) or blocks < 1:
        return None
    dim = rule.dim % len(view.shape)
    return _rolled(dim, view.shape[dim], rule.keep, rule.shift * blocks)


@lru_cache(maxsize=256)
def _rolled(dim: int, size: int, keep: int, by: int) -> Moved | None:
    if by < 1 or keep < 0 or keep + by >= size or size > GRAINS_MAX:
        return None
    rows = range(size)
    return Moved(dim, (*rows[:keep], *rows[keep + by :], *((NEW,) * by)))


@dataclass(frozen=True, slots=True)
class Present:
    """The cut to be reached, and which of its leaves the target is known to have."""

    manifest: Manifest
    leaves: Sequence[Extent]
    digests: Sequence[bytes | None]
    """None for a leaf that was not read: it is taken to differ."""
    reported: Sequence[bytes | None]
    """By leaf: what the target read there last."""
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What rows hold, by a view's path, where it was read."""

    def dirty(self) -> list[int]:
        """Numbers of the leaves that the target is not known to have."""
        return [index for index, same in enumerate(_equal(self.digests, self.reported)) if not same]


def plan_whole(present: Present) -> Residual:
    """Every dirty leaf whole: what is sent where nothing is known of rows."""
    return whole_leaves(present.leaves[index] for index in present.dirty())


def whole_leaves(leaves: Iterable[Extent]) -> Residual:
    """These leaves and nothing else."""
    whole = tuple(leaves)
    return Residual((), whole, frozenset(), sum(leaf.nbytes for leaf in whole))


def plan_rows(present: Present, versions: Sequence[Version], rows_bytes: int) -> Residual:
    """The residual against the version of each segment that the target has most of, in steps of at most `rows_bytes`.

    `versions`: earlier cuts whose leaves lay where the present ones do.
    """
    layout = present.manifest.layout
    views: dict[int, list[int]] = {}
    for number, view in enumerate(layout.views):
        views.setdefault(view.segment, []).append(number)
    steps: list[Step] = []
    whole: list[Extent] = []
    touched: set[int] = set()
    end = 0
    for number, (segment, place) in enumerate(zip(layout.segments, present.manifest.placements, strict=True)):
        base, end = end, end - (-segment.nbytes // layout.leaf_bytes)
        part = _Part(present, segment, tuple(views.get(number, ())), slice(base, end))
        dirty = part.dirty()
        plan = _plan(part, versions, rows_bytes) if dirty else None
        if plan is None:
            whole += [present.leaves[base + index] for index in dirty]
            continue
        steps += [_placed(step, part.views, place.offset) for step in plan.steps]
        touched.update(base + index for index in plan.touched)
    nbytes = sum(step.nbytes for step in steps if isinstance(step, Runs)) + sum(leaf.nbytes for leaf in whole)
    return Residual(tuple(steps), tuple(whole), frozenset(touched), nbytes)


@dataclass(frozen=True, slots=True)
class _Part:
    """One segment of the present cut: its views by number, its leaves by their slice."""

    present: Present
    segment: Segment
    views: tuple[int, ...]
    span: slice

    def dirty(self) -> list[int]:
        """Counted from the segment's first leaf."""
        return [index for index, same in enumerate(self.agree(self.present.digests)) if not same]

    def agree(self, digests: Sequence[bytes | None]) -> bytes:
        """By leaf, 1 where the target has what was digested."""
        return _equal(digests[self.span], self.present.reported[self.span])


def _equal(some: Sequence[bytes | None], others: Sequence[bytes | None]) -> bytes:
    """None is what nobody read, and equal to nothing."""
    return bytes(one is not None and one == other for one, other in zip(some, others, strict=True))


def _plan(part: _Part, versions: Sequence[Version], rows_bytes: int) -> SegmentPlan | None:
    present, segment = part.present, part.segment
    earlier = [version for version in versions if version.block < present.manifest.block]
    if not earlier:
        return None
    held = {version.block: part.agree(version.digests) for version in earlier}
    version = max(earlier, key=lambda version: (sum(held[version.block]), version.block))
    layout, blocks = present.manifest.layout, present.manifest.block - version.block
    tensors = tuple(
        Tensor(ITEM_BYTES[view.dtype], view.shape, view.strides, view.offset_bytes, moved)
        for number in part.views
        for view in (layout.views[number],)
        for moved in (moved_by_rule(segment.write, view, blocks) or _found(view, version, present),)
    )
    if not any(held[version.block]) or all(tensor.moved is None for tensor in tensors):
        return None
    same = _equal(present.digests[part.span], version.digests[part.span])
    clean = part.agree(present.digests)
    facts = SegmentFacts(tensors, segment.nbytes, layout.leaf_bytes, held[version.block], clean, same)
    return plan_segment(facts, rows_bytes)


def _found(view: View, version: Version, present: Present) -> Moved | None:
    return moved_by_content(view, version.rows.get(view.path), present.rows.get(view.path))


def _placed(step: Step, views: tuple[int, ...], offset: int) -> Step:
    match step:
        case Copy(view, dim, shifts):
            return Copy(views[view], dim, shifts)
        case Runs(start, run_bytes, stride_bytes, count):
            return Runs(offset + start, run_bytes, stride_bytes, count)
        case _:
            assert_never(step)
