"""What the target has said of its bytes, held against what the source's own were at each cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from worldline.migration.leaves import Leaves
from worldline.migration.rolls import Present, Residual, Version, plan_rows, plan_whole
from worldline.migration.source_words import CutTaken
from worldline.schema.layout import Extent, Manifest

VERSIONS_MAX = 4
"""Cuts whose digests are kept, 16 bytes a leaf: rows of an older one have left every window worth rolling."""


class Reported:
    """What the target read of each leaf of the latest manifest; nothing of those that are to be written."""

    def __init__(self) -> None:
        self._leaves: Leaves | None = None
        self._digests: list[bytes | None] = []
        self._versions: deque[Version] = deque(maxlen=VERSIONS_MAX)
        self._named: set[Extent] = set()

    def name(self, extents: Iterable[Extent]) -> None:
        """The target was told to read these before the next cut, since when the kernel watches them."""
        self._named.update(extents)

    def residual(self, cut: CutTaken, rows_bytes: int | None) -> Residual:
        """What the target is not known to have of a cut; it will be written, so what it read there is forgotten.

        `rows_bytes`: of rows in one step; None where every dirty leaf is sent whole.
        """
        leaves = self._place(cut.manifest)
        self._believe_named(leaves, cut)
        for index in cut.doubted:
            self._digests[index] = None
        present = Present(cut.manifest, leaves.extents, cut.digests, tuple(self._digests), cut.rows)
        residual = plan_whole(present) if rows_bytes is None else plan_rows(present, tuple(self._versions), rows_bytes)
        for index in (*present.dirty(), *residual.touched):
            self._digests[index] = None
        self._versions = deque((v for v in self._versions if v.block != cut.manifest.block), VERSIONS_MAX)
        self._versions.append(Version(cut.manifest.block, cut.digests, cut.rows))
        return residual

    def _believe_named(self, leaves: Leaves, cut: CutTaken) -> None:
        """A named leaf whose digest the source knew before the cut was not written in between: the target, which shares
        the memory, reads what the cut has. Its report of the round, or the seal's root, says whether it did.
        """
        named, self._named = self._named, set()
        for extent in named:
            index = leaves.index_of(extent)
            if index is not None and (digest := cut.digests[index]) is not None:
                self._digests[index] = digest

    def _place(self, manifest: Manifest) -> Leaves:
        """Leaves that lie where one lay before keep what is known of them."""
        before = self._leaves
        leaves = self._leaves = Leaves.at(manifest, before)
        if leaves is not before:
            places = [None if before is None else before.index_of(extent) for extent in leaves.extents]
            self._digests = _carried(self._digests, places)
            carried = (Version(v.block, _carried(v.digests, places), v.rows) for v in self._versions)
            self._versions = deque(carried, VERSIONS_MAX)
        return leaves

    def add(self, items: tuple[tuple[Extent, bytes], ...]) -> None:
        """What is no leaf is not kept: a peer may say anything."""
        assert self._leaves is not None, "a report follows a round"
        for extent, digest in items:
            index = self._leaves.index_of(extent)
            if index is not None:
                self._digests[index] = digest

    def differing(self, indices: Iterable[int], cut: CutTaken) -> list[Extent]:
        """Those of these leaves that the target does not have as they are at the latest cut."""
        assert self._leaves is not None, "leaves were planned before"
        leaves = self._leaves.extents
        return [leaves[index] for index in sorted(indices) if self._digests[index] != cut.digests[index]]


def _carried(digests: Sequence[bytes | None], places: list[int | None]) -> list[bytes | None]:
    return [None if place is None else digests[place] for place in places]
