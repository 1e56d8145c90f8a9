"""Leaf digests, the layout's digest and the content root.

    leaf    XXH3-128 of the leaf's bytes where they lie, 16 bytes, canonical (big-endian) order
    layout  BLAKE3-256 of the layout's canonical JSON, placements left out
    root    BLAKE3-256 of `ROOT_DOMAIN`, the layout digest, the leaf count (u64 little-endian), the leaf digests in
    order

Two states have one root exactly when their layouts and bytes are equal, wherever they lie. The octets are in
docs/format.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

import numpy as np
from blake3 import blake3

from worldline.kernel import kernel
from worldline.schema.canonical import canonical_json
from worldline.schema.layout import Extent, Layout, Manifest
from worldline.schema.remembered import remembered

DIGEST_BYTES = 16
ROOT_BYTES = 32
ROOT_DOMAIN = b"worldline root 1\0"

_OFFSET, _NBYTES = attrgetter("offset"), attrgetter("nbytes")


class BytesAt(Protocol):
    """Memory that can be read in place: an arena, an image."""

    def bytes_at(self, extent: Extent) -> memoryview:
        """The bytes, format `B`. Any stretch: also one that spans several extents and what lies between."""
        ...


def leaf_digests(arena: BytesAt, extents: Iterable[Extent]) -> list[bytes]:
    """The digest of each extent, 16 bytes each, in order. One call of the kernel, during which other threads run."""
    wanted = extents if isinstance(extents, list | tuple) else list(extents)
    if not wanted:
        return []
    offsets = np.fromiter(map(_OFFSET, wanted), np.int64, len(wanted))
    sizes = np.fromiter(map(_NBYTES, wanted), np.int64, len(wanted))
    first = int(offsets.min())
    span = Extent(first, int((offsets + sizes).max()) - first)
    digests = kernel().leaf_digests(np.frombuffer(arena.bytes_at(span), np.uint8), offsets - first, sizes)
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]


def canonical_layout(layout: Layout) -> bytes:
    """The layout as the JSON that is digested: sorted keys, no white space, ASCII; no kinds, no write rules, no
    placements.
    """
    facts = {
        "leaf_bytes": layout.leaf_bytes,
        "segments": [{"name": segment.name, "nbytes": segment.nbytes} for segment in layout.segments],
        "views": [
            {
                "dtype": view.dtype,
                "offset_bytes": view.offset_bytes,
                "path": view.path,
                "segment": view.segment,
                "shape": list(view.shape),
                "strides": list(view.strides),
            }
            for view in layout.views
        ],
    }
    return canonical_json(facts)


@remembered
def layout_digest(layout: Layout) -> bytes:
    """32 bytes that name the layout."""
    return blake3(canonical_layout(layout)).digest()


def root(layout: bytes, digests: Sequence[bytes]) -> bytes:
    """The content root, 32 bytes, of a layout digest and the leaf digests in canonical order."""
    assert len(layout) == ROOT_BYTES, "a layout digest has 32 bytes"
    assert all(len(digest) == DIGEST_BYTES for digest in digests), "a leaf digest has 16 bytes"
    hasher = blake3(ROOT_DOMAIN)
    hasher.update(layout)
    hasher.update(len(digests).to_bytes(8, "little"))
    hasher.update(b"".join(digests))
    return hasher.digest()


@dataclass(frozen=True, slots=True)
class Digested:
    """A state's leaf digests as they were read at its boundary. `digests[i]` belongs to the i-th of
    `manifest.leaves()`.
    """

    manifest: Manifest
    digests: tuple[bytes, ...]

    @property
    def root(self) -> bytes:
        """The content root."""
        return root(layout_digest(self.manifest.layout), self.digests)


def digest_state(arena: BytesAt, manifest: Manifest) -> Digested:
    """Reads every byte of the state where it lies."""
    return Digested(manifest, tuple(leaf_digests(arena, manifest.leaves())))
