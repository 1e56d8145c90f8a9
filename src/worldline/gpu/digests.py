"""Leaf digests of memory that torch holds on a device, read there. Only digests and short leaves come to the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import xxhash

from worldline.gpu.xxh3 import SHORT_BYTES_MAX, digest_leaves, table
from worldline.schema.layout import Extent

LEAVES_A_PROGRAM = 16
WORD_BYTES = 8


def leaf_digests(memory: torch.Tensor, extents: Sequence[Extent]) -> list[bytes]:
    """The XXH3-128 digest of each extent, 16 bytes each, in order, as `verify.digests.leaf_digests` gives them.

    memory: [n] uint8, contiguous, on any device that Triton serves, n and its address multiples of 8. Extents begin
    at multiples of 8. On a card this waits for the stream that is current, once, at its end.
    """
    if memory.dtype != torch.uint8 or memory.dim() != 1 or not memory.is_contiguous():
        raise ValueError("a memory is one row of bytes")
    if memory.numel() % WORD_BYTES or memory.data_ptr() % WORD_BYTES:
        raise ValueError("a memory is whole, aligned 8-byte words")
    if not extents:
        return []
    offsets = np.fromiter((extent.offset for extent in extents), np.int64, len(extents))
    sizes = np.fromiter((extent.nbytes for extent in extents), np.int64, len(extents))
    if (offsets % WORD_BYTES).any() or offsets.min() < 0 or (offsets + sizes).max() > memory.numel():
        raise ValueError("an extent begins off a word, or ends outside the memory")
    device = memory.device
    out = torch.empty(2 * len(extents), dtype=torch.int64, device=device)
    grid = (-(-len(extents) // LEAVES_A_PROGRAM),)
    digest_leaves[grid](
        memory.view(torch.int64).view(torch.uint64),
        torch.from_numpy(offsets).to(device),
        torch.from_numpy(sizes).to(device),
        _table(device),
        out.view(torch.uint64),
        len(extents),
        LEAVES=LEAVES_A_PROGRAM,
    )
    octets = out.cpu().numpy().astype(">i8").tobytes()
    digests = [octets[at : at + 16] for at in range(0, len(octets), 16)]
    for index in np.flatnonzero(sizes <= SHORT_BYTES_MAX):
        first, nbytes = int(offsets[index]), int(sizes[index])
        digests[index] = xxhash.xxh3_128_digest(memory[first : first + nbytes].cpu().numpy().tobytes())
    return digests


@lru_cache(maxsize=16)
def _table(device: torch.device) -> torch.Tensor:
    return torch.tensor(table(), dtype=torch.int64, device=device).view(torch.uint64)
