"""The 32 bytes before every record, and how a stream of records is cut. Sans-I/O; octet tables in docs/wire.md.

Invariant: nothing is asked for, kept or allocated for a record before its header passed every check, so a hostile peer
can make a reader hold at most `RECORD_BYTES_MAX`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from worldline.errors import Malformed, VersionUnknown
from worldline.wire.rows import COPY_BODY_BYTES_MAX, COPY_BODY_BYTES_MIN, ROWS_BODY_BYTES_MAX, ROWS_BODY_BYTES_MIN

MAGIC = int.from_bytes(b"WLDL", "little")
VERSION = 1
HEADER_BYTES = 32
RECORD_BYTES_MAX = 32 * 1024 * 1024
"""Header and body of any record; a chunk's payload is not part of it."""
CHUNK_PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
DIGESTS_MAX = 1024 * 1024
SHARED_EXTENTS_MAX = 65_536
ENCODED_BYTES_MAX = 4 * 1024 * 1024
"""Of an encoded chunk, before and after."""
STREAMS_MAX = 8
"""Beside the link's own."""
UNKNOWN_BODY_BYTES_MAX = 64 * 1024
"""An optional record of a type this program does not know is skipped, up to this size."""

_HEADER = struct.Struct("<IBBHIQQI")
_SEQUENCE_AT = 20
_MANDATORY = 1
_U64_MAX = 2**64 - 1


class RecordType(IntEnum):
    """Numbers on the wire, never reused."""

    HELLO = 1
    MANIFEST = 2
    CHUNK = 3
    ROUND_END = 4
    DIGESTS = 5
    SEAL = 6
    PREPARED = 7
    REFUSED = 8
    ABORT = 9
    COPY = 10
    SHARED = 11
    ROWS = 12
    SPREAD = 13
    PIECE = 14
    STREAMS = 15
    DOORS = 16
    ENCODED = 17
    DECODES = 18


@dataclass(frozen=True, slots=True)
class Limit:
    """What a header may announce for one type."""

    body_bytes_min: int
    body_bytes_max: int
    payload_bytes_max: int = 0


LIMITS: Mapping[int, Limit] = {
    RecordType.HELLO: Limit(2, 4096),
    RecordType.MANIFEST: Limit(2, RECORD_BYTES_MAX - HEADER_BYTES),
    RecordType.CHUNK: Limit(16, 16, CHUNK_PAYLOAD_BYTES_MAX),
    RecordType.ROUND_END: Limit(16, 16),
    RecordType.DIGESTS: Limit(8, 8 + 28 * DIGESTS_MAX),
    RecordType.SEAL: Limit(96, 96),
    RecordType.PREPARED: Limit(32, 32),
    RecordType.REFUSED: Limit(2, 32 * 1024),
    RecordType.ABORT: Limit(2, 32 * 1024),
    RecordType.COPY: Limit(COPY_BODY_BYTES_MIN, COPY_BODY_BYTES_MAX),
    RecordType.SHARED: Limit(24, 8 + 16 * SHARED_EXTENTS_MAX),
    RecordType.ROWS: Limit(ROWS_BODY_BYTES_MIN, ROWS_BODY_BYTES_MAX),
    RecordType.SPREAD: Limit(32, 32),
    RecordType.PIECE: Limit(16, 16, CHUNK_PAYLOAD_BYTES_MAX),
    RecordType.STREAMS: Limit(8, 8),
    RecordType.DOORS: Limit(12, 8 + 4 * STREAMS_MAX),
    RecordType.ENCODED: Limit(24, 24, ENCODED_BYTES_MAX),
    RecordType.DECODES: Limit(8, 8),
}
_UNKNOWN = Limit(0, UNKNOWN_BODY_BYTES_MAX)
_WITH_PAYLOAD = frozenset({RecordType.CHUNK, RecordType.PIECE, RecordType.ENCODED})


@dataclass(frozen=True, slots=True)
class Header:
    """What comes before a body. `sequence` counts the records of one direction of a link, from 0; the link sets it."""

    type: int
    mandatory: bool
    body_bytes: int
    payload_bytes: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """One record as cut from a stream; the payload of a chunk still follows in the stream."""

    header: Header
    body: bytes

    @property
    def record(self) -> bytes:
        """Header and body as the sender encoded them, before its link numbered them."""
        return build_header(self.header, sequence=0) + self.body


def _check(header: Header) -> None:
    limit = LIMITS.get(header.type)
    if limit is None:
        if header.mandatory:
            raise Malformed(f"record type {header.type} is mandatory and unknown", type=header.type)
        limit = _UNKNOWN
    if not limit.body_bytes_min <= header.body_bytes <= limit.body_bytes_max:
        raise Malformed(
            f"a record of type {header.type} has a body of {limit.body_bytes_min} to {limit.body_bytes_max} bytes, "
            f"not {header.body_bytes}",
            type=header.type,
            body_bytes=header.body_bytes,
        )
    if header.payload_bytes > limit.payload_bytes_max:
        raise Malformed(
            f"a record of type {header.type} has a payload of at most {limit.payload_bytes_max} bytes, "
            f"not {header.payload_bytes}",
            type=header.type,
            payload_bytes=header.payload_bytes,
        )
    if header.type in _WITH_PAYLOAD and header.payload_bytes == 0:
        raise Malformed(f"a record of type {header.type} has no payload")


def build_header(header: Header, sequence: int | None = None) -> bytes:
    """The 32 bytes. Raises `Malformed` for sizes no reader would take: a limit is checked on both sides."""
    _check(header)
    number = header.sequence if sequence is None else sequence
    flags = _MANDATORY if header.mandatory else 0
    return _HEADER.pack(MAGIC, VERSION, header.type, flags, header.body_bytes, header.payload_bytes, number, 0)


def parse_header(data: bytes) -> Header:
    """The header in exactly `HEADER_BYTES` bytes, within its type's limits. Raises `Malformed`, `VersionUnknown`."""
    if len(data) != HEADER_BYTES:
        raise Malformed(f"a header is {HEADER_BYTES} bytes, not {len(data)}")
    magic, version, kind, flags, body_bytes, payload_bytes, sequence, reserved = _HEADER.unpack(data)
    if magic != MAGIC:
        raise Malformed("a record does not start with the magic number")
    if version > VERSION:
        raise VersionUnknown(f"a record of format {version}; this program reads up to {VERSION}", version=version)
    if version == 0:
        raise Malformed("a record of format 0, which never existed")
    if flags & ~_MANDATORY or reserved:
        raise Malformed("reserved bits of a header are not zero")
    header = Header(kind, bool(flags & _MANDATORY), body_bytes, payload_bytes, sequence)
    _check(header)
    return header


def header_of(record: bytes) -> Header:
    """Of one whole record. Raises `Malformed` when it is cut or has trailing bytes."""
    header = parse_header(record[:HEADER_BYTES])
    if len(record) != HEADER_BYTES + header.body_bytes:
        raise Malformed(f"a record announces {header.body_bytes} body bytes and has {len(record) - HEADER_BYTES}")
    return header


def split_record(record: bytes) -> Frame:
    """Header and body of one whole record. Raises `Malformed` as `header_of`."""
    return Frame(header_of(record), record[HEADER_BYTES:])


class Reader:
    """Cuts one direction of a link into frames and checks their numbers.

    The driver gives exactly `wanted_bytes` to each `take`. After a frame with a payload it takes that many bytes from
    the stream itself, straight to where they belong, before it goes on. After an error the stream is unreadable.
    """

    __slots__ = ("_header", "_sequence")

    def __init__(self) -> None:
        self._header: Header | None = None
        self._sequence = 0

    @property
    def wanted_bytes(self) -> int:
        """Bytes the next `take` needs; never more than `RECORD_BYTES_MAX`."""
        return HEADER_BYTES if self._header is None else self._header.body_bytes

    @property
    def at_boundary(self) -> bool:
        """Whether the stream may end here."""
        return self._header is None

    def take(self, data: bytes) -> Frame | None:
        """A frame when `data` completes one. Raises `Malformed`, `VersionUnknown`."""
        assert len(data) == self.wanted_bytes, "the driver cuts what the reader wants"
        if self._header is None:
            header = parse_header(data)
            if header.sequence != self._sequence:
                raise Malformed(
                    f"record number {header.sequence} came where {self._sequence} was due: lost, repeated or swapped",
                    expected=self._sequence,
                    sequence=header.sequence,
                )
            self._sequence += 1
            if header.body_bytes:
                self._header = header
                return None
            return Frame(header, b"")
        header, self._header = self._header, None
        return Frame(header, bytes(data))


class Numberer:
    """Numbers the records of one direction of a link as they leave."""

    __slots__ = ("_sequence",)

    def __init__(self) -> None:
        self._sequence = 0

    def stamp(self, header: bytes) -> bytes:
        """The header of the next record of this direction, with its number."""
        assert len(header) == HEADER_BYTES and self._sequence < _U64_MAX, "a whole header, and numbers left"
        stamped = header[:_SEQUENCE_AT] + self._sequence.to_bytes(8, "little") + header[_SEQUENCE_AT + 8 :]
        self._sequence += 1
        return stamped
