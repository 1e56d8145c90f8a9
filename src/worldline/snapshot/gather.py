"""Capture: an engine's tree becomes a manifest over its arena, at a block boundary.

Invariants:
- After `capture` every byte of the state lies in the arena where the manifest says. Tensors allocated from the arena
  stay where they are (*resident*); all others are copied into a place of their own (*gathered*), which keeps its
  address from boundary to boundary while the tensor fits.
- Canonical bytes depend on the state alone: bytes that no tensor covers, and rows that no `Partial` counts, are zero.
- No reference to a tensor outlives the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import torch

from worldline.errors import LayoutRefused, NoCapacity
from worldline.schema.inventory import Free, Kind, Rule
from worldline.schema.layout import (
    LEAF_BYTES_MAX,
    META_SEGMENT,
    Extent,
    Layout,
    Manifest,
    Placement,
    Segment,
    View,
)
from worldline.snapshot.arena import Arena
from worldline.snapshot.checks import check_layout
from worldline.snapshot.dtypes import ITEM_BYTES, RNG
from worldline.snapshot.geometry import Spread, aligned_start, clusters, pieces, spread
from worldline.snapshot.memory import ArenaMemory, storage_over
from worldline.snapshot.tree import Tree, encode_tree
from worldline.snapshot.walk import Found, Rules, Walk

LEAF_BYTES = 256 * 1024
"""The leaf of a state that begins small: its dirty set is still of some use."""
LARGE_STATE_BYTES = 256 * 1024 * 1024
"""A state that begins with so much has the largest leaves: what is done for each of them is done within pauses."""

assert LEAF_BYTES <= LEAF_BYTES_MAX

_COMPARED_BYTES = 1024 * 1024

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_INT_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Stretch:
    """The memory of one segment in the engine: `nbytes` from address `base`, and the tensors over it."""

    base: int
    nbytes: int
    members: tuple[int, ...]
    spreads: tuple[Spread, ...]
    """Where the valid parts lie, one a member."""
    covered: bool
    """Whether one or more tensors without gaps cover every byte."""


_Where: TypeAlias = tuple[str, str, Rule, int, tuple[int, ...], tuple[int, ...], tuple[int, tuple[int, ...]] | None]
"""What a tensor's stretch and view follow from; a generator's address is left out."""


class Gatherer:
    """Captures one session's state, boundary after boundary, into the arena of `memory`."""

    def __init__(
        self, memory: ArenaMemory, layout: Layout | None = None, places: Mapping[str, Placement] | None = None
    ) -> None:
        """`layout`: of the state that lies here. Its leaf size is kept, and a capture that finds the same has this very
        object; without one the first capture chooses the leaf size. `places`: where gathered segments lie already, by
        name; they must be taken in the memory's space.
        """
        self._memory = memory
        self._leaf_bytes = None if layout is None else layout.leaf_bytes
        self._places: dict[str, Placement] = dict(places or {})
        self._rules = Rules(())
        self._layout = layout
        self._where: list[_Where] = []
        self._laid: list[Stretch] = []
        """The stretches of the tensors of `_where`."""

    @property
    def arena(self) -> Arena:
        """Where the state is captured."""
        return self._memory.arena

    def forget(self) -> None:
        """Nothing is captured here any more."""
        self._where, self._laid, self._layout = [], [], None

    @torch.no_grad()
    def capture(self, tree: Tree, rules: Sequence[Rule], block: int) -> Manifest:
        """The state as it is now. Called by the thread that steps the engine, between two blocks.

        `rules` are matched against paths from the top of `tree` (see `schema.inventory.rules_under`). Raises
        `LayoutRefused` for what can't be described exactly and `NoCapacity` when the arena is full; the engine's
        state is unharmed and a later capture may succeed.
        """
        if tuple(rules) != self._rules.rules:
            self._rules = _matched(tuple(rules))
        walk = Walk(tree, self._rules)
        found = walk.found
        where = [_where(item) for item in found]
        same = where == self._where
        stretches = self._stretches(found, same)
        meta = encode_tree(walk.node)
        layout = self._lay_out(found, stretches, len(meta), same)
        self._where = where
        placements = self._place(layout, found, stretches)
        for place, stretch in zip(placements[1:], stretches, strict=True):
            if place.resident:
                self._clear_rest(found, stretch)
            else:
                self._copy(found, stretch, place)
        text = self.arena.bytes_at(Extent(placements[0].offset, len(meta)))
        if text != meta:
            text[:] = meta
        return Manifest(layout, placements, block)

    def _stretches(self, found: list[Found], same: bool) -> list[Stretch]:
        """Those of the boundary before where every tensor is where and what it was: a session may be waiting."""
        if same:
            for number, stretch in enumerate(self._laid):
                first = stretch.members[0]
                if found[first].dtype == RNG:  # its state comes as a tensor of its own each time
                    self._laid[number] = _stretch((first,), found, {first: _spread(RNG, found[first].tensor)})
        else:
            self._where = []  # until the whole of it is laid out
            full = dict(enumerate(_spread(item.dtype, item.tensor) for item in found))
            self._laid = [_stretch(tuple(group), found, full) for group in clusters(list(full.values()))]
        return self._laid

    def _lay_out(self, found: list[Found], stretches: list[Stretch], meta_bytes: int, same: bool) -> Layout:
        if same and self._layout is not None and self._layout.segments[0].nbytes == meta_bytes:
            return self._layout
        segments = [Segment(META_SEGMENT, meta_bytes, Kind.AUX, Free())]
        views: list[View | None] = [None] * len(found)
        for number, stretch in enumerate(stretches, 1):
            first = found[stretch.members[0]]
            rules = {found[index].rule.write for index in stretch.members}
            write = rules.pop() if len(rules) == 1 else Free()
            segments.append(Segment(first.path, stretch.nbytes, first.rule.kind, write))
            for index in stretch.members:
                item = found[index]
                tensor = item.tensor
                offset = tensor.data_ptr() - stretch.base if stretch.nbytes else 0
                views[index] = View(item.path, item.dtype, tuple(tensor.shape), tuple(tensor.stride()), number, offset)
        if self._leaf_bytes is None:
            large = sum(segment.nbytes for segment in segments) >= LARGE_STATE_BYTES
            self._leaf_bytes = LEAF_BYTES_MAX if large else LEAF_BYTES
        layout = Layout(tuple(segments), tuple(view for view in views if view is not None), self._leaf_bytes)
        if layout == self._layout:
            return self._layout
        check_layout(layout)
        self._layout = layout
        return layout

    def _place(self, layout: Layout, found: list[Found], stretches: list[Stretch]) -> tuple[Placement, ...]:
        resident = [None, *(self._resident(found, stretch) for stretch in stretches)]
        gathered = {segment.name for segment, place in zip(layout.segments, resident, strict=True) if place is None}
        for name in self._places.keys() - gathered:
            self._memory.release(self._places.pop(name))
        return tuple(place or self._gathered(segment) for segment, place in zip(layout.segments, resident, strict=True))

    def _resident(self, found: list[Found], stretch: Stretch) -> Placement | None:
        """The stretch's own place, if it lies in the arena and can be made canonical without touching live bytes."""
        offset = self._memory.offset_of(stretch.base, stretch.nbytes)
        if offset is None or not (stretch.covered or _is_one_partial(found, stretch)):
            return None
        return Placement(offset, stretch.nbytes, resident=True)

    def _gathered(self, segment: Segment) -> Placement:
        place = self._places.get(segment.name)
        if segment.nbytes == 0:
            return Placement(0, 0, resident=False)
        if place is not None and place.capacity >= segment.nbytes:
            return place
        slack = segment.nbytes // 4
        if place is not None:
            slack = segment.nbytes // 2  # it grows: fewer moves of its place
            self._memory.release(self._places.pop(segment.name))
        try:
            extent = self._memory.take(segment.nbytes + slack, segment.name)
        except NoCapacity:
            extent = self._memory.take(segment.nbytes, segment.name)
        place = Placement(extent.offset, extent.nbytes, resident=False)
        self._places[segment.name] = place
        return place

    def _clear_rest(self, found: list[Found], stretch: Stretch) -> None:
        if not stretch.covered:
            (index,) = stretch.members
            rest = _rest(found[index])
            if _as_integers(rest).any():
                rest.zero_()

    def _copy(self, found: list[Found], stretch: Stretch, place: Placement) -> None:
        """Makes the place hold the stretch's canonical bytes."""
        if not stretch.nbytes:
            return
        target = self.arena.address + place.offset
        if not all(item.solid for item in stretch.spreads) and not stretch.covered:
            ctypes.memset(target, 0, stretch.nbytes)
            storage = storage_over(self.arena, Extent(place.offset, stretch.nbytes))
            for index in stretch.members:
                _copy_elements(found[index].valid, storage, stretch.base)
            return
        parts = [(stretch.base, stretch.base + stretch.nbytes)] if stretch.covered else pieces(stretch.spreads)
        done = stretch.base
        for start, end in parts:
            ctypes.memset(target + done - stretch.base, 0, start - done)
            _bring(target + start - stretch.base, start, end - start)
            done = end
        ctypes.memset(target + done - stretch.base, 0, stretch.base + stretch.nbytes - done)


@lru_cache(maxsize=32)
def _matched(rules: tuple[Rule, ...]) -> Rules:
    """One memory for all sessions of a world: a session that has just arrived matches nothing anew within its pause."""
    return Rules(rules)


def _spread(dtype: str, tensor: torch.Tensor) -> Spread:
    return spread(tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), ITEM_BYTES[dtype])


def _where(item: Found) -> _Where:
    tensor, valid = item.tensor, item.valid
    address = 0 if item.dtype == RNG else tensor.data_ptr()
    part = None if valid is tensor else (valid.data_ptr(), tuple(valid.shape))
    return item.path, item.dtype, item.rule, address, tuple(tensor.shape), tensor.stride(), part


def _stretch(members: tuple[int, ...], found: list[Found], full: Mapping[int, Spread]) -> Stretch:
    start = min(full[index].start for index in members)
    end = max(full[index].end for index in members)
    elements = ((full[index].start, ITEM_BYTES[found[index].dtype]) for index in members)
    base = start if len(members) == 1 else aligned_start(start, elements)
    if base is None:
        path = found[members[0]].path
        raise LayoutRefused(f"the tensors over the storage of {path!r} are aligned against each other", path=path)
    valid = tuple(
        full[index] if found[index].valid is found[index].tensor else _spread(found[index].dtype, found[index].valid)
        for index in members
    )
    nbytes = end - base if end > start else 0
    covered = pieces(item for item in valid if item.solid) == [(base, end)]
    return Stretch(base, nbytes, members, valid, covered)


def _is_one_partial(found: list[Found], stretch: Stretch) -> bool:
    if len(stretch.members) != 1 or stretch.nbytes == 0:
        return False
    item = found[stretch.members[0]]
    # More than the stretch where rows overlap, less where it has gaps.
    nbytes = item.tensor.numel() * item.tensor.itemsize
    whole = _spread(item.dtype, item.tensor)
    return item.valid is not item.tensor and nbytes == stretch.nbytes and whole.solid


def _rest(item: Found) -> torch.Tensor:
    """The rows of a `Partial` that are not state."""
    (dim,) = [d for d in range(item.tensor.dim()) if item.tensor.shape[d] != item.valid.shape[d]]
    stop = item.valid.shape[dim]
    return item.tensor.detach().narrow(dim, stop, item.tensor.shape[dim] - stop)


def _bring(target: int, origin: int, nbytes: int) -> None:
    """Makes the memory equal. Pages that are equal already are not written: whoever watches them need not read them."""
    for at in range(0, nbytes, _COMPARED_BYTES):
        size = min(_COMPARED_BYTES, nbytes - at)
        if _libc.memcmp(target + at, origin + at, size) != 0:
            ctypes.memmove(target + at, origin + at, size)


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements as integers: what is compared and copied is bytes."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.view(_INT_OF_SIZE[plain.itemsize])


def _copy_elements(tensor: torch.Tensor, storage: torch.UntypedStorage, base: int) -> None:
    """Copies a tensor's elements to the same distance from the storage's start as they have from `base`, as
    integers.
    """
    if tensor.numel() == 0:
        return
    plain = _as_integers(tensor)
    # A repeated dimension (stride 0) is one row of memory, and torch writes to no tensor that has one.
    shape = [1 if stride == 0 else size for size, stride in zip(plain.shape, plain.stride(), strict=True)]
    plain = plain.as_strided(shape, plain.stride())
    offset = (tensor.data_ptr() - base) // plain.itemsize
    torch.empty(0, dtype=plain.dtype).set_(storage, offset, plain.size(), plain.stride()).copy_(plain)
