"""The records of a link that has several streams. Written and read by links alone; octet tables in docs/wire.md.

The link's own stream says what comes and in which order; its bytes come in pieces, over whatever stream is free.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from worldline.errors import Malformed
from worldline.schema.layout import Extent
from worldline.wire.framing import CHUNK_PAYLOAD_BYTES_MAX, STREAMS_MAX, RecordType

PIECE_BYTES_MIN = 4096


@dataclass(frozen=True, slots=True)
class Spread:
    """On the link's own stream: the bytes of `extent` come as pieces of `piece_bytes`, the last one shorter.

    `number` counts the spreads of a link from 0.
    """

    TYPE: ClassVar[RecordType] = RecordType.SPREAD
    extent: Extent
    number: int
    piece_bytes: int

    @property
    def piece_count(self) -> int:
        return -(-self.extent.nbytes // self.piece_bytes)

    def piece(self, index: int) -> Extent:
        """Where piece `index` lies."""
        offset = index * self.piece_bytes
        return Extent(self.extent.offset + offset, min(self.piece_bytes, self.extent.nbytes - offset))


@dataclass(frozen=True, slots=True)
class Piece:
    """On another stream: the raw bytes of piece `index` of spread `number` follow."""

    TYPE: ClassVar[RecordType] = RecordType.PIECE
    number: int
    index: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Streams:
    """From the source: it would use `count` more streams."""

    TYPE: ClassVar[RecordType] = RecordType.STREAMS
    count: int


@dataclass(frozen=True, slots=True)
class Doors:
    """From the target: where it waits for them, one stream at each port, for a while."""

    TYPE: ClassVar[RecordType] = RecordType.DOORS
    ports: tuple[int, ...]


_SPREAD = struct.Struct("<QQQII")
_PIECE = struct.Struct("<QII")
_STREAMS = struct.Struct("<II")
_PORTS_MAX = 65_535


def encode_link_record(record: Spread | Piece | Streams | Doors) -> bytes:
    """The body. Raises `Malformed` for a value beyond the limits of the format."""
    try:
        body = _pack(record)
    except struct.error as error:
        raise Malformed(f"a number does not fit its field: {error}") from error
    _DECODERS[record.TYPE](body)
    return body


def _pack(record: Spread | Piece | Streams | Doors) -> bytes:
    match record:
        case Spread(extent, number, piece_bytes):
            return _SPREAD.pack(extent.offset, extent.nbytes, number, piece_bytes, 0)
        case Piece(number, index, nbytes):
            return _PIECE.pack(number, index, nbytes)
        case Streams(count):
            return _STREAMS.pack(count, 0)
        case Doors(ports):
            return _STREAMS.pack(len(ports), 0) + struct.pack(f"<{len(ports)}I", *ports)


def decode_spread(data: bytes) -> Spread:
    offset, nbytes, number, piece_bytes, reserved = _SPREAD.unpack(data)
    if reserved or not 0 < nbytes <= CHUNK_PAYLOAD_BYTES_MAX or offset + nbytes >= 2**63:
        raise Malformed(f"a spread of {nbytes} bytes at {offset}", offset=offset, nbytes=nbytes)
    if not PIECE_BYTES_MIN <= piece_bytes <= CHUNK_PAYLOAD_BYTES_MAX:
        raise Malformed(f"a spread in pieces of {piece_bytes} bytes", piece_bytes=piece_bytes)
    return Spread(Extent(offset, nbytes), number, piece_bytes)


def decode_piece(data: bytes) -> Piece:
    number, index, nbytes = _PIECE.unpack(data)
    if not 0 < nbytes <= CHUNK_PAYLOAD_BYTES_MAX:
        raise Malformed(f"a piece of {nbytes} bytes", nbytes=nbytes)
    return Piece(number, index, nbytes)


def decode_streams(data: bytes) -> Streams:
    count, reserved = _STREAMS.unpack(data)
    if reserved or not 1 <= count <= STREAMS_MAX:
        raise Malformed(f"a source asks for {count} streams")
    return Streams(count)


def decode_doors(data: bytes) -> Doors:
    count, reserved = _STREAMS.unpack_from(data)
    if reserved or not 1 <= count <= STREAMS_MAX or len(data) != _STREAMS.size + 4 * count:
        raise Malformed(f"a target names {count} ports in {len(data)} bytes")
    ports = struct.unpack_from(f"<{count}I", data, _STREAMS.size)
    if not all(0 < port <= _PORTS_MAX for port in ports):
        raise Malformed("a target names a port that is none")
    return Doors(ports)


_DECODERS: Mapping[RecordType, Callable[[bytes], Spread | Piece | Streams | Doors]] = {
    RecordType.SPREAD: decode_spread,
    RecordType.PIECE: decode_piece,
    RecordType.STREAMS: decode_streams,
    RecordType.DOORS: decode_doors,
}
