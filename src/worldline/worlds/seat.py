"""A session as a host holds it, in this process: a live world in an arena, looked at and copied at boundaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from xxhash import xxh3_128_digest

from worldline.schema.layout import META_SEGMENT, Extent, Manifest
from worldline.snapshot.arena import Arena
from worldline.snapshot.gather import Gatherer
from worldline.snapshot.memory import ArenaMemory, arena_capacity
from worldline.snapshot.rebuild import rebuild
from worldline.snapshot.walk import Rules
from worldline.verify.digests import digest_state
from worldline.worlds.protocol import LiveWorld, Partial, Tree, World
from worldline.worlds.scratch import Leaf, walk


@dataclass(frozen=True, slots=True)
class Look:
    """A state at one boundary: its root, a digest a segment (`meta`: the tree's own values), its size."""

    root: bytes
    parts: dict[str, bytes]
    nbytes: int

    def differences(self, other: Look) -> str:
        """Names of up to five segments that differ."""
        names = [n for n in self.parts.keys() | other.parts.keys() if self.parts.get(n) != other.parts.get(n)]
        names.sort(key=lambda name: (name == META_SEGMENT, name))
        return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


@dataclass(slots=True)
class Seat:
    """One session as a host holds it."""

    world: World
    live: LiveWorld
    gatherer: Gatherer
    block: int = 0

    @classmethod
    def open(cls, world: World, seed: int, stack: ExitStack) -> Self:
        memory = ArenaMemory(_arena(world, stack))
        return cls(world, world.open(seed, memory), Gatherer(memory))

    def step(self, action: int) -> bytes:
        self.block += 1
        return np.ascontiguousarray(self.live.step(action)).tobytes()

    def capture(self) -> Manifest:
        return self.gatherer.capture(self.live.state(), self.live.rules, self.block)

    def look(self) -> Look:
        manifest, arena = self.capture(), self.gatherer.arena
        parts = {
            segment.name: xxh3_128_digest(arena.bytes_at(Extent(placement.offset, segment.nbytes)))
            for segment, placement in zip(manifest.layout.segments, manifest.placements, strict=True)
        }
        return Look(digest_state(arena, manifest).root, parts, manifest.layout.nbytes)

    def copy(self, stack: ExitStack, change: Callable[[Tree], Tree] = lambda tree: tree) -> Seat:
        """The session as a target restores it, in an arena of its own; `change` tampers with the tree."""
        manifest, arena = self.capture(), _arena(self.world, stack)
        for segment, placement in zip(manifest.layout.segments, manifest.placements, strict=True):
            extent = Extent(placement.offset, segment.nbytes)
            arena.bytes_at(extent)[:] = self.gatherer.arena.bytes_at(extent)
        rebuilt = rebuild(manifest, arena)
        live = self.world.restore(change(rebuilt.tree), rebuilt.memory)
        return Seat(self.world, live, rebuilt.gatherer, self.block)

    def aliases(self) -> set[frozenset[str]]:
        """Groups of moved entries, each over one memory, that overlap in it."""
        over: dict[int, list[str]] = {}
        for path, leaf in self.leaves():
            tensor = leaf.tensor if isinstance(leaf, Partial) else leaf
            if isinstance(tensor, torch.Tensor) and tensor.nbytes:
                over.setdefault(tensor.untyped_storage().data_ptr(), []).append(path)
        return {frozenset(paths) for paths in over.values() if len(paths) > 1}

    def resident(self) -> set[str]:
        """Paths of the entries that lie in the session's arena."""
        arena = self.gatherer.arena
        start = np.frombuffer(arena.bytes_at(Extent(0, 1)), np.uint8).ctypes.data
        found = set()
        for path, leaf in walk(self.live.state()):
            tensor = leaf.tensor if isinstance(leaf, Partial) else leaf
            if isinstance(tensor, torch.Tensor) and start <= tensor.data_ptr() < start + arena.capacity:
                found.add(path)
        return found

    def leaves(self) -> Iterator[tuple[str, Leaf]]:
        """Every leaf of the state that is moved, with its path."""
        rules = Rules(self.live.rules)
        return ((path, leaf) for path, leaf in walk(self.live.state()) if rules.of(path).kind != "derived")


def _arena(world: World, stack: ExitStack) -> Arena:
    return stack.enter_context(Arena.create(arena_capacity(world.state_bytes_max), f"seat-{world.name}"))


def is_empty(leaf: Leaf) -> bool:
    """Whether leaving it out would leave the same: zeros, nothing, no text."""
    match leaf:
        case torch.Tensor():
            return not leaf.detach().contiguous().reshape(-1).view(torch.uint8).any()
        case Partial(tensor=tensor, dim=dim, stop=stop):
            return is_empty(tensor.narrow(dim, 0, stop))
        case _:
            return leaf is None


def left_out(tree: Tree, path: str) -> Tree:
    """The tree as if the entry at `path` had not been moved: zeros, another number, no text, a fresh generator."""
    name, _, rest = path.partition("/")
    if isinstance(tree, dict):
        return {key: (_blank_or_below(item, rest) if key == name else item) for key, item in tree.items()}
    assert isinstance(tree, (list, tuple))
    items = [_blank_or_below(item, rest) if str(i) == name else item for i, item in enumerate(tree)]
    return items if isinstance(tree, list) else tuple(items)


def _blank_or_below(item: Tree, rest: str) -> Tree:
    return left_out(item, rest) if rest else _blank(item)


def _blank(leaf: Tree) -> Tree:
    match leaf:
        case torch.Tensor():
            return torch.zeros_like(leaf)
        case Partial(tensor=tensor, dim=dim, stop=stop):
            return Partial(torch.zeros_like(tensor), dim, stop)
        case torch.Generator():
            return torch.Generator()
        case bool():
            return not leaf
        case int():
            return 0 if leaf else 1
        case str():
            return ""
        case _:
            return None
