"""Sessions for the tests of this folder: an arena with a gatherer, and the copy of a capture elsewhere."""

from contextlib import contextmanager

import torch

from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.snapshot.gather import Gatherer
from worldline.snapshot.memory import ArenaMemory
from worldline.snapshot.rebuild import rebuild

CAPACITY = 16 << 20


class Session:
    def __init__(self, capacity=CAPACITY):
        self.arena = Arena.create(capacity, "session")
        self.memory = ArenaMemory(self.arena)
        self.gatherer = Gatherer(self.memory)

    def capture(self, tree, rules=(), block=0):
        return self.gatherer.capture(tree, rules, block)


@contextmanager
def session(capacity=CAPACITY):
    made = Session(capacity)
    try:
        yield made
    finally:
        made.arena.close()


def canonical(arena, manifest):
    """Name and bytes of every segment."""
    return {
        segment.name: bytes(arena.bytes_at(Extent(place.offset, segment.nbytes)))
        for segment, place in zip(manifest.layout.segments, manifest.placements, strict=True)
    }


@contextmanager
def moved(arena, manifest):
    """The state rebuilt in another arena, to which only the manifest's bytes were copied."""
    with Arena.create(arena.capacity, "target") as target:
        # Stray bytes of an earlier round, which must not show anywhere.
        target.bytes_at(Extent(0, target.capacity))[:] = b"\xa5" * target.capacity
        for segment, place in zip(manifest.layout.segments, manifest.placements, strict=True):
            extent = Extent(place.offset, segment.nbytes)
            target.bytes_at(extent)[:] = arena.bytes_at(extent)
        yield rebuild(manifest, target)


def raw(tensor):
    """A tensor's elements as bytes, whatever its strides, with no conversion on the way."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.itemsize]
    return plain.view(whole).contiguous().numpy().tobytes()


def identical(left, right):
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.stride() == right.stride()
        and raw(left) == raw(right)
    )
