"""Whether to encode what a link carries, from measured rates. Pure.

Encoding, the wire and decoding work at the same time on different slices, so a coded link carries
min(c, r B, d) raw bytes a second: c and d are the coder's rates in raw bytes, r is raw / encoded, B the link's rate
(docs/capacity.md, pipelines). The first slice has to be encoded before anything leaves, and the last one decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from worldline.capacity.domain import at_least_zero, positive

GAIN_MIN = 1.05
"""Less is within what measuring gets wrong."""


@dataclass(frozen=True, slots=True)
class Coding:
    """What a codec did on this machine to bytes like these."""

    ratio: float
    """Raw / encoded."""
    encode_bytes_per_s: float
    decode_bytes_per_s: float

    def __post_init__(self) -> None:
        """Raises `BadValue` where one of them is not above 0."""
        positive(self.ratio, "ratio")
        positive(self.encode_bytes_per_s, "encode_bytes_per_s")
        positive(self.decode_bytes_per_s, "decode_bytes_per_s")


def coded_bytes_per_s(link_bytes_per_s: float, coding: Coding) -> float:
    """Raw bytes a second through encoder, link and decoder. Domain: a rate > 0. Raises `BadValue` outside."""
    link = positive(link_bytes_per_s, "link_bytes_per_s")
    return min(coding.encode_bytes_per_s, coding.ratio * link, coding.decode_bytes_per_s)


def gain(link_bytes_per_s: float, nbytes: int, slice_bytes: int, coding: Coding) -> float:
    """How many times as fast `nbytes` are across, with the pipeline's fill counted; 1 where there are none.

    Domain: rates and slices > 0, bytes >= 0. Raises `BadValue` outside.
    """
    positive(slice_bytes, "slice_bytes")
    positive(link_bytes_per_s, "link_bytes_per_s")
    if at_least_zero(nbytes, "nbytes") == 0:
        return 1.0
    filling_bytes = min(slice_bytes, nbytes)
    fill_s = filling_bytes / coding.encode_bytes_per_s + filling_bytes / coding.decode_bytes_per_s
    coded_s = nbytes / coded_bytes_per_s(link_bytes_per_s, coding) + fill_s
    return nbytes / link_bytes_per_s / coded_s


def best_codec(link_bytes_per_s: float, nbytes: int, slice_bytes: int, offers: Mapping[str, Coding]) -> str | None:
    """The codec that gains most, or None where none gains `GAIN_MIN`. Domain: as `gain`."""
    gains = {name: gain(link_bytes_per_s, nbytes, slice_bytes, coding) for name, coding in offers.items()}
    best = max(gains, key=lambda name: gains[name], default=None)
    return best if best is not None and gains[best] >= GAIN_MIN else None
