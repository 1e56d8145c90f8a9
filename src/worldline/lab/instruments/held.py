"""A session's state outside of it: the moved tensors as a dict by path, or all of it in a file that another process
goes on from.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from worldline.lab.instruments.handles import State
from worldline.schema.inventory import Kind
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.snapshot.memory import arena_capacity
from worldline.snapshot.rebuild import rebuild
from worldline.snapshot.walk import Rules
from worldline.wire.manifest import ManifestBody, manifest_from_body, manifest_to_body
from worldline.worlds.protocol import Partial, Tree, World
from worldline.worlds.scratch import walk
from worldline.worlds.seat import Seat


def state_of(seat: Seat) -> State:
    """Copies of all moved tensors by path; a generator as its bytes."""
    rules = Rules(seat.live.rules)
    made: State = {}
    for path, leaf in walk(seat.live.state()):
        if rules.of(path).kind is Kind.DERIVED:
            continue
        match leaf:
            case torch.Tensor():
                made[path] = leaf.detach().clone()
            case Partial(tensor=tensor, dim=dim, stop=stop):
                made[path] = tensor.detach().narrow(dim, 0, stop).clone()
            case torch.Generator():
                made[path] = leaf.get_state()
            case _:
                pass
    return made


def put_back(tree: Tree, state: Mapping[str, torch.Tensor]) -> Tree:
    """Writes the tensors into `tree`, in place; those that are not in `state` become zeros. Shapes must be the same."""
    for path, leaf in walk(tree):
        held = state.get(path)
        match leaf:
            case torch.Tensor():
                leaf.zero_() if held is None else leaf.copy_(held)
            case Partial(tensor=tensor, dim=dim, stop=stop):
                valid = tensor.narrow(dim, 0, stop)
                valid.zero_() if held is None else valid.copy_(held)
            case torch.Generator():
                leaf.manual_seed(0) if held is None else leaf.set_state(held)
            case _:
                pass
    return tree


def leave(seat: Seat, path: Path) -> None:
    """Writes the whole state into `path`, as it would be sent: its manifest, and a stretch of bytes a segment."""
    manifest, arena = seat.capture(), seat.gatherer.arena
    body = np.frombuffer(msgspec.json.encode(manifest_to_body(manifest)), np.uint8)
    segments: dict[str, Any] = {
        str(at): np.frombuffer(arena.bytes_at(Extent(place.offset, segment.nbytes)), np.uint8)
        for at, (segment, place) in enumerate(zip(manifest.layout.segments, manifest.placements, strict=True))
    }
    np.savez(path, manifest=body, **segments)


def take_up(world: World, path: Path, stack: ExitStack) -> Seat:
    """The session that `leave` wrote, in an arena of its own."""
    arena = stack.enter_context(Arena.create(arena_capacity(world.state_bytes_max), f"taken-{world.name}"))
    with np.load(path) as saved:
        manifest = manifest_from_body(msgspec.json.decode(saved["manifest"].tobytes(), type=ManifestBody))
        for at, (segment, place) in enumerate(zip(manifest.layout.segments, manifest.placements, strict=True)):
            arena.bytes_at(Extent(place.offset, segment.nbytes))[:] = saved[str(at)].data
    rebuilt = rebuild(manifest, arena)
    return Seat(world, world.restore(rebuilt.tree, rebuilt.memory), rebuilt.gatherer, manifest.block)
