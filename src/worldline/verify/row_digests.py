"""What the rows of a state hold, 8 octets each: enough to find them again in another place, and proof of nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from worldline.kernel import kernel
from worldline.schema.layout import Extent, Manifest
from worldline.snapshot.row_grid import found_by_content, row_grid
from worldline.verify.digests import BytesAt


def row_digests(arena: BytesAt, manifest: Manifest) -> Mapping[str, np.ndarray]:
    """By a view's path, uint64 in the shape of its grid. Reads each of those views once, at the speed of leaves."""
    found: dict[str, np.ndarray] = {}
    for number in found_by_content(manifest.layout):
        view = manifest.layout.views[number]
        grid = row_grid(view)
        if grid is None:
            continue
        place, segment = manifest.placements[view.segment], manifest.layout.segments[view.segment]
        octets = np.frombuffer(arena.bytes_at(Extent(place.offset, segment.nbytes)), np.uint8)
        offsets = grid.offsets()
        digests = kernel().leaf_digests(octets, offsets, np.full(len(offsets), grid.row_bytes, np.int64))
        found[view.path] = np.frombuffer(digests, np.uint64)[::2].reshape(grid.sizes).copy()
    return found
