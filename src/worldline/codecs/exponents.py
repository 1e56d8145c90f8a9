"""The codec for slow links: zero granules left out, the exponents of bf16 entropy-coded by zstd.

    u32       bytes of the stretch, little-endian
    bits      one a granule of 4096 bytes, bit i % 8 of byte i // 8: the granule is not zero; bits beyond are 0
    u32       bytes of the frame
    zstd      one frame: the exponents of all elements of those granules
    plane     sign (bit 7) and mantissa of each
    tail      what is shorter than a granule, as it is

Only exponents compress; the plane goes as it is. A frame that says more than it may is refused before it is believed.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

import numpy as np

from worldline.codecs.protocol import check_stretch
from worldline.errors import Malformed, MissingExtra
from worldline.kernel import kernel
from worldline.kernel.operations import GRANULE_BYTES, Octets

LEVEL = 1
WINDOW_LOG_MAX = 25
"""Of a frame that is decoded: no more memory than half a stretch. Level 1 writes 2^19."""
_LENGTH_BYTES = 4


class Exponents:
    """See the module. Raises `MissingExtra` where zstd is not installed."""

    name = "exponents"
    number = 4

    def __init__(self) -> None:
        self._zstd = _zstd()

    def encode(self, stretch: memoryview) -> memoryview:
        check_stretch(stretch.nbytes)
        octets = np.frombuffer(stretch, np.uint8)
        full = octets.nbytes // GRANULE_BYTES * GRANULE_BYTES
        live = ~kernel().zeros(octets[:full], GRANULE_BYTES)
        exponents, rest = kernel().split_planes(_gathered(octets[:full], live))
        frame = self._zstd.compress(exponents.data, LEVEL)
        whole, length = (size.to_bytes(_LENGTH_BYTES, "little") for size in (octets.nbytes, len(frame)))
        bits = np.packbits(live, bitorder="little")
        return memoryview(b"".join((whole, bits.data, length, frame, rest.data, octets[full:].data)))

    def decode_into(self, encoded: memoryview, into: memoryview) -> None:
        if encoded[:_LENGTH_BYTES] != into.nbytes.to_bytes(_LENGTH_BYTES, "little"):
            raise Malformed(f"this is no code of {into.nbytes} bytes")
        octets = np.frombuffer(into, np.uint8)
        full = octets.nbytes // GRANULE_BYTES * GRANULE_BYTES
        live, at = _live(encoded, full // GRANULE_BYTES)
        elements = int(np.count_nonzero(live)) * GRANULE_BYTES // 2
        length = int.from_bytes(encoded[at : at + _LENGTH_BYTES], "little")
        at += _LENGTH_BYTES
        if encoded.nbytes != at + length + elements + octets.nbytes - full:
            raise Malformed(f"{encoded.nbytes} bytes are no code of {elements} exponents in {into.nbytes} bytes")
        exponents = np.frombuffer(self._plane(encoded[at : at + length], elements), np.uint8)
        at += length
        rest = np.frombuffer(encoded[at : at + elements], np.uint8)
        if live.all():
            kernel().join_planes(exponents, rest, octets[:full])
        else:
            joined = np.empty(2 * elements, np.uint8)
            kernel().join_planes(exponents, rest, joined)
            granules = octets[:full].reshape(-1, GRANULE_BYTES)
            granules[live] = joined.reshape(-1, GRANULE_BYTES)
            granules[~live] = 0
        octets[full:] = np.frombuffer(encoded[at + elements :], np.uint8)

    def _plane(self, frame: memoryview, elements: int) -> bytes:
        options = {self._zstd.DecompressionParameter.window_log_max: WINDOW_LOG_MAX}
        decoder = self._zstd.ZstdDecompressor(options=options)
        try:
            plane = decoder.decompress(frame, max_length=elements + 1)
        except self._zstd.ZstdError as error:
            raise Malformed(f"the exponents are no zstd frame: {error}") from error
        if len(plane) != elements or not decoder.eof or decoder.unused_data:
            raise Malformed(f"the zstd frame does not hold exactly {elements} exponents")
        return plane


def _gathered(octets: Octets, live: np.ndarray) -> Octets:
    if live.all():
        return octets
    return np.ascontiguousarray(octets.reshape(-1, GRANULE_BYTES)[live]).reshape(-1)


def _live(encoded: memoryview, granules: int) -> tuple[np.ndarray, int]:
    """Which granules follow, and where what is behind the bits begins."""
    end = _LENGTH_BYTES + -(-granules // 8)
    if encoded.nbytes < end + _LENGTH_BYTES:
        raise Malformed(f"{encoded.nbytes} bytes are too few for the bits of {granules} granules")
    bits = np.unpackbits(np.frombuffer(encoded[_LENGTH_BYTES:end], np.uint8), bitorder="little").astype(np.bool_)
    if bits[granules:].any():
        raise Malformed("a bit is set for a granule that is not there")
    return bits[:granules], end


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: memoryview, max_length: int) -> bytes: ...


class _DecompressionParameter(Protocol):
    window_log_max: int


class _Zstd(Protocol):
    """What is used of Python 3.14's compression.zstd, which is the package backports.zstd before."""

    ZstdError: type[Exception]
    DecompressionParameter: _DecompressionParameter

    def compress(self, data: memoryview, level: int) -> bytes: ...

    def ZstdDecompressor(self, *, options: dict[int, int]) -> _Decompressor: ...  # noqa: N802  the library's name


def _zstd() -> _Zstd:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return cast(_Zstd, importlib.import_module(name))
        except ModuleNotFoundError:
            continue
    raise MissingExtra("the codec exponents needs zstd: pip install 'worldline[zstd]'", extra="zstd")
