"""States and memories for the tests of this folder, without torch."""

import json

from worldline.schema.contract import Tier
from worldline.schema.inventory import Free, Kind, Roll, Static
from worldline.schema.layout import Extent, Layout, Manifest, Placement, Segment, View
from worldline.schema.receipt import Mode, Receipt
from worldline.verify.digests import digest_state, layout_digest
from worldline.verify.image import Identity

LEAF = 64 * 1024
TREE = {"block": 3, "k": {"$t": 0}, "v": {"$p": [1, 0, 40]}, "x": {"$u": [{"$t": 2}, None]}}


class Octets:
    """Memory that is a bytearray."""

    def __init__(self, nbytes=0):
        self.data = bytearray(nbytes)

    @property
    def capacity(self):
        return len(self.data)

    def bytes_at(self, extent):
        if extent.offset + extent.nbytes > len(self.data):
            raise ValueError("outside")
        return memoryview(self.data)[extent.offset : extent.offset + extent.nbytes]

    def zero(self, extent):
        self.bytes_at(extent)[:] = bytes(extent.nbytes)


def state(seed=0, offset=0, tree=None, block=3):
    """A manifest of three tensors, two of them aliases, in memory; `offset` shifts where it lies."""
    meta = json.dumps(tree or TREE, sort_keys=True, separators=(",", ":")).encode()
    segments = (
        Segment("meta", len(meta), Kind.AUX, Free()),
        Segment("k", LEAF + 512, Kind.CACHE, Roll(0, 3, 1)),
        Segment("x/0", 70, Kind.CONST, Static()),
    )
    views = (
        View("k", "bfloat16", (129, 2, 128), (256, 128, 1), 1, 0),
        View("v", "float32", (64, 4), (4, 1), 1, 512),
        View("x/0", "uint8", (7, 5), (10, 2), 2, 0),
    )
    starts = (offset, offset + 4096, offset + 4096 * 30)
    placements = (
        Placement(starts[0], 4096, resident=False),
        Placement(starts[1], LEAF + 512, resident=True),
        Placement(starts[2], 4096, resident=False),
    )
    memory = Octets(offset + 4096 * 32)
    manifest = Manifest(Layout(segments, views, LEAF), placements, block)
    memory.bytes_at(Extent(starts[0], len(meta)))[:] = meta
    for start, segment in zip(starts[1:], segments[1:], strict=True):
        octets = bytes((i * 31 + seed + i // 255) % 251 for i in range(segment.nbytes))
        memory.bytes_at(Extent(start, segment.nbytes))[:] = octets
    return memory, manifest


IDENTITY = Identity(
    session="walk-1", epoch=4, number=3, world="load", plan="ab" * 32, made_by="host-a", made_at_s=1.7e9
)


def a_receipt(**changes):
    memory, manifest = state()
    digested = digest_state(memory, manifest)
    fields = {
        "id": "",
        "move": "m-1",
        "session": "walk-1",
        "epoch": 5,
        "mode": Mode.PARK,
        "transport": "image",
        "source": "host-a",
        "target": "walk-1.image",
        "tier": Tier.T0,
        "source_plan": "ab" * 32,
        "target_plan": "ab" * 32,
        "qualification": None,
        "block": 3,
        "layout": layout_digest(manifest.layout).hex(),
        "source_root": digested.root.hex(),
        "target_root": digested.root.hex(),
        "leaf_count": len(digested.digests),
        "state_bytes": manifest.layout.nbytes,
        "bytes_moved": 66_000,
        "rounds": 1,
        "pause_s": 0.25,
        "duration_s": 1.0,
        "made_at_s": 1.7e9,
        "made_by": "host-a",
    }
    return Receipt(**(fields | changes))
