"""What a codec is.

Invariants, held by `worldline.testing.codecs`: every stretch comes back byte for byte, whatever it holds; a decoder
writes inside `into` alone and refuses, as `Malformed`, whatever is no encoding of exactly so many bytes, before it
allocates more than a small multiple of them.
"""

from __future__ import annotations

from typing import Protocol

STRETCH_BYTES_MAX = 64 * 1024 * 1024
"""The longest stretch that is encoded at once."""


class Codec(Protocol):
    """Stateless; any thread may use it. Encoding and decoding let other threads run."""

    name: str
    number: int
    """On the wire, 1 to 255; never reused."""

    def encode(self, stretch: memoryview) -> memoryview:
        """Its code, at most `encoded_bytes_max(stretch.nbytes)`. Raises `ValueError` over `STRETCH_BYTES_MAX`."""
        ...

    def decode_into(self, encoded: memoryview, into: memoryview) -> None:
        """Writes what `encoded` says to all of `into`.

        Raises `Malformed`; then `into` may hold anything, and nothing else was written.
        """
        ...


def encoded_bytes_max(nbytes: int) -> int:
    """No code of `nbytes` is longer."""
    return nbytes + nbytes // 256 + 1024


def check_stretch(nbytes: int) -> None:
    """Raises `ValueError` over `STRETCH_BYTES_MAX`."""
    if nbytes > STRETCH_BYTES_MAX:
        raise ValueError(f"a codec takes at most {STRETCH_BYTES_MAX} bytes at once, not {nbytes}")
