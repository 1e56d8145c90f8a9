"""What a kernel does. Both implementations give the same bytes; `worldline.kernel` says which one is used."""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES: Final = 16
GRANULE_BYTES: Final = 4096
HEADER_BYTES: Final = 4
"""Of each granule, before all payloads."""

Octets: TypeAlias = NDArray[np.uint8]
Claims: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]


class Kernel(Protocol):
    """Octets are contiguous one-dimensional arrays. Every method lets other threads run while it works.

    Raises `ValueError` where lengths don't fit: the caller's fault, never the bytes'.
    """

    name: str
    """`c-avx2`, `c-portable` or `python`."""

    def leaf_digests(self, memory: Octets, offsets: Places, sizes: Places) -> bytes:
        """XXH3-128, canonical order, of each stretch of `memory`: 16 bytes each, one after another."""
        ...

    def copy_digests(self, target: Octets, source: Octets, offsets: Places, sizes: Places) -> bytes:
        """Copies each stretch of `source` to the same place of `target`; the digests of what was copied."""
        ...

    def copy(self, target: Octets, source: Octets) -> None:
        """Copies past the caches. The two must not overlap."""
        ...

    def differences(self, left: Octets, right: Octets, granule_bytes: int) -> Claims:
        """For each granule, the last one shorter: whether its bytes differ."""
        ...

    def zeros(self, memory: Octets, granule_bytes: int) -> Claims:
        """For each granule, the last one shorter: whether all of it is zero."""
        ...

    def encode_granules(self, memory: Octets, window: bool) -> Octets:
        """The granule code of docs/wire.md; with `window` full granules are taken as bf16."""
        ...

    def decode_granules(self, encoded: Octets, into: Octets) -> bool:
        """Whether `encoded` was the code of exactly so many bytes. If not, `into` holds anything; nothing else is
        touched.
        """
        ...

    def split_planes(self, memory: Octets) -> tuple[Octets, Octets]:
        """bf16 elements as a plane of exponents and one of sign (bit 7) and mantissa."""
        ...

    def join_planes(self, exponents: Octets, rest: Octets, into: Octets) -> None:
        """What `split_planes` took apart."""
        ...


def check_places(nbytes: int, offsets: Places, sizes: Places) -> None:
    """Raises `ValueError` for a stretch outside `nbytes`."""
    if offsets.shape != sizes.shape or offsets.ndim != 1:
        raise ValueError("every stretch has an offset and a size")
    if offsets.size and (min(offsets.min(), sizes.min()) < 0 or (sizes > nbytes - offsets).any()):
        raise ValueError(f"a stretch leaves the memory of {nbytes} bytes")


def check_equal(left: Octets, right: Octets) -> None:
    """Raises `ValueError` for stretches of unequal length."""
    if left.nbytes != right.nbytes:
        raise ValueError(f"{left.nbytes} and {right.nbytes} bytes are not of one length")


def granule_count(nbytes: int, granule_bytes: int = GRANULE_BYTES) -> int:
    """Raises `ValueError` for a granule of no bytes."""
    if granule_bytes < 1:
        raise ValueError("a granule has a byte or more")
    return -(-nbytes // granule_bytes)
