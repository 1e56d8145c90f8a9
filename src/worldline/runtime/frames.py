"""A block's readout as it is shown: JPEG a frame, or text. What is proven is the digest of the raw bytes, never the
JPEG.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

import blake3
import numpy as np

from worldline.errors import Internal, Malformed, MissingExtra
from worldline.worlds.protocol import Readout

JPEG_QUALITY = 95
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Shown:
    """One block's readout, encoded. `payload` of `jpeg`: each frame as u32 little-endian length and bytes; of `text`:
    UTF-8.
    """

    encoding: str
    frames: int
    height: int
    width: int
    payload: bytes
    digest: str
    """BLAKE3-256 (hex) of `raw`."""
    raw: bytes


def show(readout: np.ndarray, kind: Readout) -> Shown:
    """Encodes what a step returned: uint8 [frames, height, width, 3] RGB, or uint8 [n] of text.

    Raises `Internal` for an array that is not what the world announced.
    """
    if readout.dtype != np.uint8:
        raise Internal(f"the world shows {readout.dtype} instead of uint8")
    raw = readout.tobytes()
    digest = blake3.blake3(raw).hexdigest()
    match kind.kind:
        case "text":
            return Shown("text", kind.frames_per_block, 0, 0, raw, digest, raw)
        case "image":
            if readout.ndim != 4 or readout.shape[1:] != (kind.height, kind.width, 3):
                raise Internal(f"the world shows {readout.shape} instead of [n, {kind.height}, {kind.width}, 3]")
            payload = b"".join(_prefixed(_encode_jpeg(frame)) for frame in np.ascontiguousarray(readout))
            return Shown("jpeg", len(readout), kind.height, kind.width, payload, digest, raw)
    assert_never(kind.kind)


def split_frames(payload: bytes) -> Iterator[bytes]:
    """The JPEGs of a `jpeg` payload. Raises `Malformed` where lengths and bytes don't fit."""
    at = 0
    while at < len(payload):
        if len(payload) - at < _LENGTH.size:
            raise Malformed("a payload ends within the length of a frame")
        (nbytes,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        if nbytes > len(payload) - at:
            raise Malformed(f"a frame of {nbytes} bytes in the {len(payload) - at} that are left")
        yield payload[at : at + nbytes]
        at += nbytes


def _prefixed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _encode_jpeg(frame: np.ndarray) -> bytes:
    try:
        import simplejpeg
    except ModuleNotFoundError as error:
        raise MissingExtra("frames need the package 'simplejpeg': pip install 'worldline[torch]'") from error
    encoded: bytes = simplejpeg.encode_jpeg(frame, quality=JPEG_QUALITY, colorspace="RGB", colorsubsampling="444")
    return encoded
