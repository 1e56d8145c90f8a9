"""From a manifest and the bytes in an arena back to a tree that an engine takes over.

Everything that a foreign manifest says is checked before anything is allocated. After a rebuild, resident tensors
lie in the arena itself, and so do whole tensors that are declared to keep their bytes: nothing of them is copied. Other
gathered ones are the session's own, in fresh storages, because the next capture overwrites their places. Aliases are
aliases again, strides are what they were.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import torch

from worldline.errors import LayoutRefused, Malformed
from worldline.schema.inventory import Once, Static
from worldline.schema.layout import Extent, Manifest, Segment, View
from worldline.snapshot.arena import Arena
from worldline.snapshot.checks import check_manifest
from worldline.snapshot.dtypes import ITEM_BYTES, RNG
from worldline.snapshot.gather import Gatherer
from worldline.snapshot.memory import ArenaMemory, storage_over
from worldline.snapshot.tree import DerivedNode, Node, Partial, Ref, Tree, TupleNode, decode_tree, join
from worldline.snapshot.walk import TORCH_DTYPES


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A session's state, ready to go on: `gatherer` captures it at the next boundary, with the places it has."""

    tree: Tree
    memory: ArenaMemory
    gatherer: Gatherer


def rebuild(manifest: Manifest, arena: Arena) -> Rebuilt:
    """The state that `manifest` describes in a writable `arena`. Consumes no randomness.

    Raises `LayoutRefused` or `Malformed` for a manifest or a tree that makes no sense; nothing was allocated or
    written then. Says nothing about whether the bytes are the right ones: digests do, before this is called.
    """
    check_manifest(manifest, arena.capacity)
    meta = Extent(manifest.placements[0].offset, manifest.layout.segments[0].nbytes)
    node = decode_tree(bytes(arena.bytes_at(meta)))
    views = manifest.layout.views
    _References(views).check(node, "")
    _check_torch(views)
    generators = _generators(manifest, arena)
    taken = [Extent(place.offset, place.capacity) for place in manifest.placements if place.capacity]
    memory = ArenaMemory(arena, taken)
    lying = _lying(manifest)
    storages = _storages(manifest, arena, lying)
    objects = [
        generator or _tensor(view, storages[view.segment]) for view, generator in zip(views, generators, strict=True)
    ]
    placed = enumerate(zip(manifest.layout.segments, manifest.placements, strict=True))
    places = {segment.name: place for number, (segment, place) in placed if number not in lying and place.capacity}
    return Rebuilt(_tree(node, objects), memory, Gatherer(memory, layout=manifest.layout, places=places))


def _check_torch(views: tuple[View, ...]) -> None:
    rng_bytes = torch.Generator().get_state().numel()
    for view in views:
        if view.dtype == RNG and view.shape != (rng_bytes,):
            raise LayoutRefused(f"the generator {view.path!r} has a state of another size than here")
        if view.dtype != RNG and view.dtype not in TORCH_DTYPES:
            raise LayoutRefused(f"tensor {view.path!r} is {view.dtype}, which this torch does not have")


class _References:
    """Holds a tree's references against the views: each used, in order, at its own path, as what it is."""

    def __init__(self, views: tuple[View, ...]) -> None:
        self._views = views
        self._next = 0

    def check(self, node: Node, path: str) -> None:
        self._visit(node, path)
        if self._next != len(self._views):
            raise Malformed(f"{len(self._views) - self._next} tensors are not in the state's tree")

    def _visit(self, node: Node, path: str) -> None:
        match node:
            case Ref():
                self._visit_ref(node, path)
            case TupleNode(items=items):
                self._visit(items, path)
            case list():
                for index, item in enumerate(node):
                    self._visit(item, join(path, str(index)))
            case None | bool() | int() | str() | DerivedNode():
                pass
            case _:
                for key in sorted(node):
                    self._visit(node[key], join(path, key))

    def _visit_ref(self, ref: Ref, path: str) -> None:
        again = ref.generator and ref.view < self._next
        if ref.view != self._next and not again:
            raise Malformed(f"the state's tree refers to tensor {ref.view} at {path!r}, out of order")
        view = self._views[ref.view] if ref.view < len(self._views) else None
        if view is None or (view.path != path and not again):
            raise Malformed(f"the state's tree refers at {path!r} to a tensor that is not there")
        if ref.generator != (view.dtype == RNG):
            raise Malformed(f"the state's tree takes a tensor for a generator or the reverse at {path!r}")
        if ref.valid is not None:
            dim, stop = ref.valid
            if dim >= len(view.shape) or stop > view.shape[dim]:
                raise Malformed(f"the valid part at {path!r} is larger than its tensor")
        self._next += not again


def _generators(manifest: Manifest, arena: Arena) -> list[torch.Generator | None]:
    made: list[torch.Generator | None] = []
    for view in manifest.layout.views:
        if view.dtype != RNG:
            made.append(None)
            continue
        start = manifest.placements[view.segment].offset + view.offset_bytes
        state = torch.frombuffer(bytearray(arena.bytes_at(Extent(start, view.shape[0]))), dtype=torch.uint8)
        generator = torch.Generator()
        try:
            generator.set_state(state)
        except RuntimeError as error:
            raise Malformed(f"the bytes of {view.path!r} are no state of a generator") from error
        made.append(generator)
    return made


def _lying(manifest: Manifest) -> frozenset[int]:
    """Segments whose tensors lie in the arena from now on: the resident ones, and those that are one whole tensor each
    and declared to keep their bytes.

    Declared or not, whatever is written there is seen as any write to the arena is. A tensor that is bound anew all the
    same leaves its place unused until the session moves again.
    """
    views: dict[int, list[View]] = {}
    for view in manifest.layout.views:
        views.setdefault(view.segment, []).append(view)
    return frozenset(
        number
        for number, (segment, place) in enumerate(zip(manifest.layout.segments, manifest.placements, strict=True))
        if place.resident or (isinstance(segment.write, Static | Once) and _is_whole(segment, views.get(number, [])))
    )


def _is_whole(segment: Segment, views: list[View]) -> bool:
    if len(views) != 1 or views[0].dtype == RNG or not segment.nbytes:
        return False
    (view,) = views
    dense = tuple(math.prod(view.shape[dim + 1 :]) for dim in range(len(view.shape)))
    return view.strides == dense and math.prod(view.shape) * ITEM_BYTES[view.dtype] == segment.nbytes


def _storages(manifest: Manifest, arena: Arena, lying: frozenset[int]) -> list[torch.UntypedStorage | None]:
    """One storage a segment; None for the tree, for generators and where nothing lies."""
    wanted = {view.segment for view in manifest.layout.views if view.dtype != RNG}
    storages: list[torch.UntypedStorage | None] = []
    for number, (segment, place) in enumerate(zip(manifest.layout.segments, manifest.placements, strict=True)):
        if number not in wanted or not segment.nbytes:
            storages.append(None)
        elif number in lying:
            storages.append(storage_over(arena, Extent(place.offset, segment.nbytes)))
        else:
            own = torch.empty(segment.nbytes, dtype=torch.uint8)
            ctypes.memmove(own.data_ptr(), arena.address + place.offset, segment.nbytes)
            storages.append(own.untyped_storage())
    return storages


def _tensor(view: View, storage: torch.UntypedStorage | None) -> torch.Tensor:
    tensor = torch.empty(0, dtype=TORCH_DTYPES[view.dtype])
    if storage is None:
        return tensor.as_strided(view.shape, view.strides)
    return tensor.set_(storage, view.offset_bytes // ITEM_BYTES[view.dtype], view.shape, view.strides)


def _tree(node: Node, objects: list[torch.Tensor | torch.Generator]) -> Tree:
    match node:
        case Ref(view=index, valid=valid):
            found = objects[index]
            if valid is None:
                return found
            assert isinstance(found, torch.Tensor)
            return Partial(found, *valid)
        case TupleNode(items=items):
            return tuple(_tree(item, objects) for item in items)
        case list():
            return [_tree(item, objects) for item in node]
        case DerivedNode():
            return None
        case None | bool() | int() | str():
            return node
        case _:
            return {key: _tree(item, objects) for key, item in node.items()}
