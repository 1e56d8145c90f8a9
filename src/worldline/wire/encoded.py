"""The records of a link whose chunks may travel encoded. Written and read by links alone; octet tables in docs/wire.md.

What an encoded chunk decodes to is digested where it lies, as every byte is: a codec decides nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from worldline.errors import Malformed
from worldline.schema.layout import Extent
from worldline.wire.framing import ENCODED_BYTES_MAX, RecordType

CODEC_NUMBER_MAX = 31


@dataclass(frozen=True, slots=True)
class Encoded:
    """`encoded_bytes` follow, fewer than the extent's, which codec number `codec` makes the extent's bytes of."""

    TYPE: ClassVar[RecordType] = RecordType.ENCODED
    extent: Extent
    encoded_bytes: int
    codec: int


@dataclass(frozen=True, slots=True)
class Decodes:
    """From the target, before all else: the numbers of the codecs that it decodes, ascending."""

    TYPE: ClassVar[RecordType] = RecordType.DECODES
    codecs: tuple[int, ...]


_ENCODED = struct.Struct("<QIIB7s")
_DECODES = struct.Struct("<II")
_RESERVED = bytes(7)


def encode_coded_record(record: Encoded | Decodes) -> bytes:
    """The body. Raises `Malformed` for a value beyond the limits of the format."""
    try:
        if isinstance(record, Decodes):
            body = _DECODES.pack(sum(1 << number for number in {*record.codecs}), 0)
            wrong = decode_decodes(body) != record
        else:
            extent = record.extent
            body = _ENCODED.pack(extent.offset, extent.nbytes, record.encoded_bytes, record.codec, _RESERVED)
            wrong = decode_encoded(body) != record
    except (struct.error, ValueError) as error:
        raise Malformed(f"a number does not fit its field: {error}") from error
    if wrong:
        raise Malformed("codecs are named in ascending order, once each")
    return body


def decode_encoded(data: bytes) -> Encoded:
    offset, nbytes, encoded_bytes, codec, reserved = _ENCODED.unpack(data)
    if reserved != _RESERVED or not 0 < encoded_bytes < nbytes <= ENCODED_BYTES_MAX or offset + nbytes >= 2**63:
        raise Malformed(f"{nbytes} bytes at {offset} encoded as {encoded_bytes}", offset=offset, nbytes=nbytes)
    if not 1 <= codec <= CODEC_NUMBER_MAX:
        raise Malformed(f"there is no codec number {codec}")
    return Encoded(Extent(offset, nbytes), encoded_bytes, codec)


def decode_decodes(data: bytes) -> Decodes:
    bits, reserved = _DECODES.unpack(data)
    if reserved or bits & 1:
        raise Malformed("reserved bits of a target's codecs are not zero")
    return Decodes(tuple(number for number in range(1, CODEC_NUMBER_MAX + 1) if bits >> number & 1))
