"""What is known of the bytes of one session's leaves, and by what right.

Invariants
  A digest is known only of bytes that were read where they lie, and only for as long as the kernel's watch saw no write
  to their pages since before they were read. No declaration counts as knowledge: a write rule only chooses which
  pages are worth arming, and an engine's word that a stretch is final only says when to read it.
  Without a watch nothing is known, and everything is read.

Called from the session's engine thread, but for the lanes' own reading.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from worldline.errors import Corrupt, LaneFull
from worldline.migration.leaves import Leaves
from worldline.schema.inventory import Append, Once, Ring, Roll, Static
from worldline.schema.layout import Extent, Manifest, Segment, View, leaves_of
from worldline.snapshot.arena import Arena
from worldline.snapshot.row_grid import found_by_content
from worldline.snapshot.watch import Watch, whole_pages
from worldline.verify.digests import leaf_digests
from worldline.verify.lanes import Lanes, batches

QUIET_SHARE = 0.2
"""Above this share of rewritten pages reading a leaf costs less than its first writes while it is armed."""
ANNOUNCED_BYTES = 8 * 1024 * 1024
"""Announced leaves are read so many together: a lane job each would fill the lanes' queue."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Lane jobs under way over leaves that were armed before."""

    extents: tuple[Extent, ...]
    futures: tuple[Future[list[bytes]], ...]
    forgotten: set[Extent] = field(default_factory=set)
    """Armed anew since: what is read of them counts for nothing."""


class Readings:
    """Reads leaves with the help of the host's lanes, and remembers what a watch lets it remember."""

    def __init__(self, arena: Arena, lanes: Lanes | None) -> None:
        self._arena = arena
        self._lanes = lanes
        self._watch: Watch | None = None
        self._known: dict[Extent, bytes] = {}
        self._leaves: Leaves | None = None
        self._loud: set[Extent] = set()
        """Leaves that were written while armed: not armed again under this watch."""
        self._under_way: list[_Reading] = []
        self._announced: list[Extent] = []
        self._final: list[Extent] = []
        """Of those, what nobody reads yet."""
        self.on_final: Callable[[tuple[Extent, ...]], None] | None = None
        """Told, in the engine's thread, of what is armed and final until the boundary. From any thread."""
        self._told = 0
        """Of what was announced in this block."""
        self._proven: Mapping[Extent, bytes] = {}
        """What is read once more, and what it must be."""

    # ---- watching

    @property
    def watching(self) -> bool:
        return self._watch is not None

    def watch(self) -> bool:
        """Begins to remember. False where the system has no watch."""
        self._watch = self._arena.watch()
        return self._watch is not None

    def unwatch(self) -> None:
        """Forgets all. Idempotent."""
        self.settle()
        self._watch = None
        self._arena.unwatch()
        self._forget_watched()

    def forget(self) -> None:
        """The session has ended here: nobody reads for it any more."""
        self._forget_watched()
        self._proven = {}

    def _forget_watched(self) -> None:
        self._known, self._leaves = {}, None
        self._loud, self._announced, self._final, self._told = set(), [], [], 0

    # ---- at a boundary

    def take(self, manifest: Manifest) -> tuple[bytes | None, ...]:
        """What is known of each leaf now; None for the rest. After `settle`."""
        before, leaves = self._leaves, self.leaves_at(manifest)
        self._watch = self._watch and self._arena.watch()
        if self._watch is None:
            self._known = {}
        else:
            if leaves is not before:
                self._known = {extent: self._known[extent] for extent in leaves.extents if extent in self._known}
            self._forget_written(leaves, self._watch.written())
        return tuple(map(self._known.get, leaves.extents))

    def leaves_at(self, manifest: Manifest, known: Leaves | None = None) -> Leaves:
        """The manifest's leaves; `known`, or those of the boundary before, where they are the same."""
        self._leaves = Leaves.at(manifest, known or self._leaves)
        return self._leaves

    def _forget_written(self, leaves: Leaves, written: Iterable[Extent]) -> None:
        for stretch in written:
            for number in leaves.touched(stretch):
                if self._known.pop(leaves.extents[number], None) is not None:
                    self._loud.add(leaves.extents[number])

    def read(self, manifest: Manifest, digests: Sequence[bytes | None]) -> tuple[bytes, ...]:
        """`digests` made whole: what is missing is read where it lies, by the lanes and this thread together.

        The caller holds the engine, so nothing of it writes meanwhile.
        """
        extents = self.leaves_at(manifest).extents
        missing = [extent for extent, digest in zip(extents, digests, strict=True) if digest is None]
        found = iter(self._read_all(missing))
        return tuple(next(found) if digest is None else digest for digest in digests)

    def read_rolling(self, manifest: Manifest, digests: Sequence[bytes | None]) -> tuple[bytes | None, ...]:
        """As `read_first`, and the leaves of all segments whose rows may have moved by the next boundary."""
        layout = manifest.layout
        rolling = {i for i, segment in enumerate(layout.segments) if isinstance(segment.write, Roll)}
        rolling |= {layout.views[number].segment for number in found_by_content(layout)}
        wanted = set(_leaves_of(manifest, rolling))
        known = self.read_first(manifest, digests)
        pairs = list(zip(self.leaves_at(manifest).extents, known, strict=True))
        missing = [extent for extent, digest in pairs if digest is None and extent in wanted]
        found = dict(zip(missing, self._read_all(missing), strict=True))
        return tuple(found.get(extent) if digest is None else digest for extent, digest in pairs)

    def read_first(self, manifest: Manifest, digests: Sequence[bytes | None]) -> tuple[bytes | None, ...]:
        """Reads the tree's text, which is new at every boundary, and leaves the rest as it is."""
        count = -(-manifest.layout.segments[0].nbytes // manifest.layout.leaf_bytes)
        first = self.leaves_at(manifest).extents[:count]
        return (*leaf_digests(self._arena, first), *digests[count:])

    def keep_quiet(self, manifest: Manifest) -> None:
        """Before the session plays on: arms what its rules say a block leaves alone, and has it read meanwhile."""
        if self._watch is None:
            return
        quiet = {index for index, segment in enumerate(manifest.layout.segments) if _is_quiet(segment, manifest, index)}
        extents = [
            extent for extent in _leaves_of(manifest, quiet) if extent not in self._known and extent not in self._loud
        ]
        self._read_meanwhile(extents)

    # ---- after a hand-over

    def read_again(self, proven: Mapping[Extent, bytes], armed: Sequence[Extent] = ()) -> None:
        """Has leaves read that were proven before anybody was fenced off, while the session's first block is made.

        What that block is likely to write is read first. Where there is no watch all of it is read now. What lies in
        `armed` is under the watch already, and unwritten.
        """
        self._proven = proven
        if not proven:
            self.unwatch()
        elif not self.watch():
            self._known = dict(zip(proven, self._read_all(tuple(proven)), strict=True))
        else:
            assert self._watch is not None, "it was made"
            self._watch.arm(_outside(proven, armed))
            self._read_armed(tuple(proven))

    def refuse_foreign(self) -> int:
        """Raises `Corrupt`, again and again, where a leaf of `read_again` is not what was proven and this process did
        not write it. Else ends the watch, and returns how many leaves a block wrote before they were read: nobody can
        say of those.
        """
        proven = self._proven
        if not proven:
            return 0
        self.settle()
        unread = [extent for extent in proven if extent not in self._known]
        self._known.update(zip(unread, self._read_all(unread), strict=True))
        differing = {extent for extent, digest in proven.items() if self._known[extent] != digest}
        written = set() if self._watch is None else set(_touched(differing, self._watch.written()))
        foreign = differing - written
        if foreign:
            raise Corrupt(
                "somebody else has written the memory that was handed over, after it was proven",
                leaves=len(foreign),
                offset=min(extent.offset for extent in foreign),
            )
        self._proven = {}
        self.unwatch()
        return len(written)

    # ---- within a block

    def begin_block(self) -> None:
        """What was announced in the block before is written anew: its pages are to cost nothing."""
        announced, self._announced, self._final, self._told = self._announced, [], [], 0
        if self._watch is None or not announced:
            return
        self.settle()
        self._watch.disarm(announced)
        for extent in announced:
            self._known.pop(extent, None)

    def announce(self, stretch: Extent) -> None:
        """The engine says that it will not write `stretch` again before the boundary: its leaves are read meanwhile.
        Not in the first block after a hand-over, whose watch is to tell this engine's writes from others'.
        """
        if self._watch is None or self._leaves is None or self._proven:
            return
        end = stretch.offset + stretch.nbytes
        whole = tuple(
            extent
            for extent in (self._leaves.extents[index] for index in self._leaves.touched(stretch))
            if stretch.offset <= extent.offset and extent.offset + extent.nbytes <= end
        )
        self._announced.extend(whole)
        self._final.extend(whole)
        if sum(extent.nbytes for extent in self._final) >= ANNOUNCED_BYTES:
            self._read_final()

    def end_block(self) -> None:
        """The last of what was announced is read too."""
        self._read_final()

    def _read_final(self) -> None:
        final, self._final = self._final, []
        self._read_meanwhile(final)
        on_final = self.on_final
        if on_final is not None and self._told < len(self._announced):
            on_final(tuple(self._announced[self._told :]))
            self._told = len(self._announced)

    # ---- reading

    def _read_meanwhile(self, extents: Sequence[Extent]) -> None:
        """Arms, then reads on the lanes; where they are full nothing is read, and the boundary will."""
        if self._watch is None or self._lanes is None or not extents:
            return
        for extent in extents:
            self._forget_neighbours(extent)
        self._watch.arm(extents)
        self._read_armed(extents)

    def _read_armed(self, extents: Sequence[Extent]) -> None:
        if self._lanes is None:
            return
        try:
            futures = self._lanes.submit(self._arena, extents)
        except LaneFull:
            return
        self._under_way.append(_Reading(tuple(extents), tuple(futures)))

    def _forget_neighbours(self, extent: Extent) -> None:
        """Arming a page anew hides that it was written, so what was read of it before is forgotten."""
        if self._leaves is None:  # no boundary yet, and nothing is known
            return
        for index in self._leaves.touched(whole_pages(extent)):
            neighbour = self._leaves.extents[index]
            self._known.pop(neighbour, None)
            for reading in self._under_way:
                reading.forgotten.add(neighbour)

    def settle(self) -> None:
        """Returns when no lane reads for this session any more; what they have not begun is read here."""
        under_way, self._under_way = self._under_way, []
        for reading in under_way:
            jobs = zip(batches(reading.extents), reading.futures, strict=True)
            for batch, future in reversed(list(jobs)):
                digests = leaf_digests(self._arena, batch) if future.cancel() else future.result()
                pairs = zip(batch, digests, strict=True)
                known = [pair for pair in pairs if pair[0] not in reading.forgotten] if reading.forgotten else pairs
                self._known.update(known)

    def _read_all(self, extents: Sequence[Extent]) -> list[bytes]:
        return leaf_digests(self._arena, extents) if self._lanes is None else self._lanes.read(self._arena, extents)


def without_written(leaves: Leaves, digests: Sequence[bytes], written: Iterable[Extent]) -> tuple[bytes | None, ...]:
    """The leaves' digests, None for those that share a byte with `written`."""
    found: list[bytes | None] = list(digests)
    for extent in written:
        for number in leaves.touched(extent):
            found[number] = None
    return tuple(found)


def leaves_at_rest(manifest: Manifest) -> frozenset[int]:
    """Numbers of the leaves that no block is declared to write again."""
    found: set[int] = set()
    number = 0
    for segment in manifest.layout.segments:
        after = number - segment.nbytes // -manifest.layout.leaf_bytes
        if isinstance(segment.write, Static | Once):
            found.update(range(number, after))
        number = after
    return frozenset(found)


def _outside(extents: Iterable[Extent], stretches: Sequence[Extent]) -> list[Extent]:
    """Those of `extents` that don't lie within one of the ascending `stretches`."""
    starts = [stretch.offset for stretch in stretches]
    found: list[Extent] = []
    for extent in extents:
        at = bisect_right(starts, extent.offset) - 1
        if at < 0 or stretches[at].offset + stretches[at].nbytes < extent.offset + extent.nbytes:
            found.append(extent)
    return found


def _touched(extents: Iterable[Extent], written: Iterable[Extent]) -> list[Extent]:
    """Those of `extents` that share a byte with `written`."""
    pages = iter(sorted(written, key=lambda extent: extent.offset))
    page = next(pages, None)
    found: list[Extent] = []
    for extent in sorted(extents, key=lambda extent: extent.offset):
        while page is not None and page.offset + page.nbytes <= extent.offset:
            page = next(pages, None)
        if page is not None and page.offset < extent.offset + extent.nbytes:
            found.append(extent)
    return found


def _leaves_of(manifest: Manifest, segments: set[int]) -> list[Extent]:
    """The leaves of the segments of these numbers."""
    placed = enumerate(zip(manifest.layout.segments, manifest.placements, strict=True))
    return [
        extent
        for index, (segment, place) in placed
        if index in segments
        for extent in leaves_of(segment, place, manifest.layout.leaf_bytes)
    ]


def _is_quiet(segment: Segment, manifest: Manifest, index: int) -> bool:
    """Whether a block is declared to leave most of the segment alone, and capture does not copy it anew."""
    if not manifest.placements[index].resident:
        return False
    match segment.write:
        case Static() | Once() | Append():
            return True
        case Ring(dim=dim, slot=slot):
            view = _first_view(manifest, index)
            return view is not None and slot <= QUIET_SHARE * view.shape[dim]
        case _:
            return False


def _first_view(manifest: Manifest, segment: int) -> View | None:
    return next((view for view in manifest.layout.views if view.segment == segment), None)
