"""The leaves of a manifest, found by their place in the arena."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from worldline.errors import LayoutRefused, NoCapacity
from worldline.schema.layout import Extent, Manifest
from worldline.units import format_bytes


class Leaves:
    """Extents in canonical order, and which of them a stretch of the arena touches. Leaves never overlap."""

    def __init__(self, manifest: Manifest) -> None:
        self.extents: tuple[Extent, ...] = tuple(manifest.leaves())
        order = sorted(range(len(self.extents)), key=lambda index: self.extents[index].offset)
        self._order = order
        self._starts = [self.extents[index].offset for index in order]
        self._index = {self.extents[index].offset: index for index in order}
        self._place = _place(manifest)

    @classmethod
    def at(cls, manifest: Manifest, before: Leaves | None) -> Leaves:
        """`before` itself where nothing has moved since: at most boundaries the place of every leaf is what it was."""
        return before if before is not None and before._place == _place(manifest) else cls(manifest)

    def __len__(self) -> int:
        return len(self.extents)

    def index_of(self, extent: Extent) -> int | None:
        """The number of the leaf that is exactly `extent`."""
        index = self._index.get(extent.offset)
        return index if index is not None and self.extents[index].nbytes == extent.nbytes else None

    def carried(self, before: Leaves, indices: set[int]) -> set[int]:
        """The numbers here of those leaves of `before` that are where they were."""
        if self is before:
            return indices
        places = (self.index_of(before.extents[index]) for index in indices)
        return {index for index in places if index is not None}

    def touched(self, extent: Extent) -> Iterator[int]:
        """Numbers of the leaves that share a byte with `extent`, by ascending offset."""
        end = extent.offset + extent.nbytes
        at = max(bisect_right(self._starts, extent.offset) - 1, 0)
        while at < len(self._order) and self._starts[at] < end:
            leaf = self.extents[self._order[at]]
            if leaf.offset + leaf.nbytes > extent.offset:
                yield self._order[at]
            at += 1


def _place(manifest: Manifest) -> tuple[int, tuple[tuple[int, int], ...]]:
    """All that decides where the leaves are."""
    pairs = zip(manifest.layout.segments, manifest.placements, strict=True)
    return manifest.layout.leaf_bytes, tuple((placement.offset, segment.nbytes) for segment, placement in pairs)


def check_placed(manifest: Manifest, capacity: int, leaves_max: int) -> None:
    """Raises `NoCapacity` if a manifest exceeds an arena of `capacity` bytes, `LayoutRefused` if it contradicts itself.

    Runs on a peer's word, before anything is built from it.
    """
    layout = manifest.layout
    if layout.leaf_bytes <= 0 or len(manifest.placements) != len(layout.segments):
        raise LayoutRefused(
            f"a manifest places {len(manifest.placements)} of {len(layout.segments)} segments, "
            f"in leaves of {layout.leaf_bytes} bytes"
        )
    if layout.leaf_count > leaves_max:
        raise LayoutRefused(f"a manifest has {layout.leaf_count} leaves, and {leaves_max} is the limit")
    end = 0
    for placement, segment in sorted(
        zip(manifest.placements, layout.segments, strict=True), key=lambda pair: pair[0].offset
    ):
        if segment.nbytes < 0 or placement.capacity < segment.nbytes or placement.offset < end:
            raise LayoutRefused(
                f"segment {segment.name!r} overlaps its neighbour or its own place", segment=segment.name
            )
        end = placement.offset + placement.capacity
    if end > capacity:
        raise NoCapacity(
            f"the state reaches to {format_bytes(end)} and the arena reserved for it holds {format_bytes(capacity)}",
            needed_bytes=end,
            capacity_bytes=capacity,
        )


class Ground:
    """What lies in the target's arena: for each leaf its digest, or the ticket of the job that reads it, or neither."""

    def __init__(self, manifest: Manifest, before: Ground | None = None) -> None:
        """Leaves that lay at the same place under the manifest before keep what is known of them."""
        self.manifest = manifest
        self.leaves: Leaves = Leaves.at(manifest, None if before is None else before.leaves)
        self.digests: list[bytes | None] = [None] * len(self.leaves)
        self._tickets = [0] * len(self.leaves)
        self.fresh: set[int] = set()
        """Leaves that landed under this manifest."""
        self.waiting = 0
        """Leaves whose lane job has not ended."""
        self.early: set[int] = set()
        """Leaves that were read, or lent to a lane, under a manifest before this one, and not since."""
        if before is not None:
            self._carry(before)

    def _carry(self, before: Ground) -> None:
        if self.leaves is before.leaves:
            self.digests, self._tickets, self.waiting = before.digests, before._tickets, before.waiting
            self.early = self._begun()
            return
        for index, extent in enumerate(self.leaves.extents):
            old = before.leaves.index_of(extent)
            if old is not None:
                self.digests[index] = before.digests[old]
                self._tickets[index] = before._tickets[old]
        self.waiting = sum(1 for ticket in self._tickets if ticket)
        self.early = self._begun()

    def _begun(self) -> set[int]:
        pairs = zip(self.digests, self._tickets, strict=True)
        return {index for index, (digest, ticket) in enumerate(pairs) if digest is not None or ticket}

    def land(self, extent: Extent) -> tuple[list[int], int]:
        """Takes back what was known of the leaves under `extent`.

        Returns those that now lie there to their end, to be digested, and how many bytes of `extent` are in leaves.
        """
        whole: list[int] = []
        covered = 0
        end = extent.offset + extent.nbytes
        for index in self.leaves.touched(extent):
            leaf = self.leaves.extents[index]
            leaf_end = leaf.offset + leaf.nbytes
            covered += min(end, leaf_end) - max(extent.offset, leaf.offset)
            self.forget(index)
            self.fresh.add(index)
            if leaf_end <= end:
                whole.append(index)
        return whole, covered

    def forget(self, index: int) -> None:
        """Nothing is known of this leaf any more; the result of a lane job on its way will not count."""
        self.digests[index] = None
        self.early.discard(index)
        if self._tickets[index]:
            self._tickets[index] = 0
            self.waiting -= 1

    def lend(self, indices: list[int], ticket: int) -> tuple[Extent, ...]:
        """These leaves are read under `ticket` from now on."""
        for index in indices:
            self.forget(index)
            self._tickets[index] = ticket
        self.waiting += len(indices)
        return tuple(self.leaves.extents[index] for index in indices)

    def settle(self, ticket: int, items: tuple[tuple[Extent, bytes], ...]) -> None:
        """A lane job has ended. What landed again meanwhile, or is no leaf any more, is left as it is."""
        for extent, digest in items:
            index = self.leaves.index_of(extent)
            if index is not None and self._tickets[index] == ticket:
                self.digests[index] = digest
                self._tickets[index] = 0
                self.waiting -= 1

    def missing(self) -> list[int]:
        """Leaves that nobody has digested or is digesting."""
        pairs = zip(self.digests, self._tickets, strict=True)
        return [index for index, (digest, ticket) in enumerate(pairs) if digest is None and not ticket]

    def read(self, indices: set[int]) -> list[tuple[Extent, bytes]]:
        """Those of `indices` whose digest is known."""
        return [
            (self.leaves.extents[index], digest)
            for index in sorted(indices)
            if (digest := self.digests[index]) is not None
        ]
