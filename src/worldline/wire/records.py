"""The records of one attempt, each a value with its octets beside it. Octet tables in docs/wire.md.

Source to target: `Hello`, then `ManifestRecord`, and rounds of `CopyRecord`, `RowsRecord` and chunks (or `Shared`
extents), each closed by `RoundEnd`; `Seal` at the end.
Target to source: `Digests` of what landed, and at the end `Prepared` or `Refused`. Either side: `Abort`.

Everything that comes in is hostile: `decode` returns a record within its limits or raises `Malformed`, nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from worldline.errors import BadValue, Malformed, WorldlineError
from worldline.schema.ids import Epoch, MoveId, SessionId, check_name
from worldline.schema.layout import Extent, Manifest
from worldline.schema.receipt import Mode
from worldline.schema.rows import Copy, Runs
from worldline.wire.body import Body, Count, decode_json, encode_json
from worldline.wire.encoded import Decodes, Encoded, decode_decodes, decode_encoded, encode_coded_record
from worldline.wire.framing import (
    HEADER_BYTES,
    LIMITS,
    Frame,
    Header,
    RecordType,
    build_header,
    header_of,
    split_record,
)
from worldline.wire.manifest import ManifestBody, manifest_from_body, manifest_to_body
from worldline.wire.rows import decode_copy, decode_rows, encode_copy, encode_runs
from worldline.wire.spread import (
    Doors,
    Piece,
    Spread,
    Streams,
    decode_doors,
    decode_piece,
    decode_spread,
    decode_streams,
    encode_link_record,
)

LEAF_DIGEST_BYTES = 16
ROOT_BYTES = 32
SENTENCE_CHARS_MAX = 4096
_U32_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Hello:
    """The first record of a link: which attempt this is. A target refuses any that it was not prepared for."""

    TYPE: ClassVar[RecordType] = RecordType.HELLO
    session: SessionId
    epoch: Epoch
    move: MoveId
    mode: Mode


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """How the state lies from this generation on; generations count up from 1 within an attempt."""

    TYPE: ClassVar[RecordType] = RecordType.MANIFEST
    generation: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Chunk:
    """Raw bytes for `extent` follow. Written and read by links alone."""

    TYPE: ClassVar[RecordType] = RecordType.CHUNK
    extent: Extent


@dataclass(frozen=True, slots=True)
class Shared:
    """Bytes at these extents of a handed-over arena are ready to be digested. Written and read by links alone."""

    TYPE: ClassVar[RecordType] = RecordType.SHARED
    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """Rows of the latest manifest's view that the target has elsewhere in the same view. Takes effect after all
    records before it.
    """

    TYPE: ClassVar[RecordType] = RecordType.COPY
    copy: Copy


@dataclass(frozen=True, slots=True)
class RowsRecord:
    """The bytes of `runs`, one after the other. Takes effect after all records before it."""

    TYPE: ClassVar[RecordType] = RecordType.ROWS
    runs: Runs
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """All chunks and rows of round `round` (from 1) came before; `nbytes` is their sum."""

    TYPE: ClassVar[RecordType] = RecordType.ROUND_END
    round: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LeafDigest:
    """XXH3-128 of a leaf where it landed."""

    extent: Extent
    digest: bytes


@dataclass(frozen=True, slots=True)
class Digests:
    """The target's own digests of leaves that landed in round `round`, in any order."""

    TYPE: ClassVar[RecordType] = RecordType.DIGESTS
    round: int
    leaves: tuple[LeafDigest, ...]


@dataclass(frozen=True, slots=True)
class Seal:
    """The frozen source's claim: nothing more comes, and the state of manifest `generation` has this root."""

    TYPE: ClassVar[RecordType] = RecordType.SEAL
    root: bytes
    layout: bytes
    """Layout digest."""
    block: int
    number: int
    """The last action number applied."""
    leaf_count: int
    generation: int
    held_us: int = 0
    """For how long the engine had been held when this was written: a receipt tells the pause without a common clock."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The target computed this root from its own resident bytes, and it equals the seal's."""

    TYPE: ClassVar[RecordType] = RecordType.PREPARED
    root: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """The target installed nothing, and why."""

    TYPE: ClassVar[RecordType] = RecordType.REFUSED
    code: str
    sentence: str

    @classmethod
    def of(cls, error: WorldlineError) -> Refused:
        return cls(error.code, error.sentence[:SENTENCE_CHARS_MAX])


@dataclass(frozen=True, slots=True)
class Abort:
    """The attempt is over for the sender, and why. Nothing follows."""

    TYPE: ClassVar[RecordType] = RecordType.ABORT
    code: str
    sentence: str


Record: TypeAlias = (
    Hello
    | ManifestRecord
    | Chunk
    | Shared
    | CopyRecord
    | RowsRecord
    | RoundEnd
    | Digests
    | Seal
    | Prepared
    | Refused
    | Abort
    | Spread
    | Piece
    | Streams
    | Doors
    | Encoded
    | Decodes
)


def encode(record: Record) -> bytes:
    """Header and body, as `Link.send` takes it. Raises `Malformed` for a value beyond the limits of the format."""
    if isinstance(record, RowsRecord):  # megabytes, copied once
        head = encode_runs(record.runs, record.data)
        header = build_header(Header(record.TYPE, True, len(head) + len(record.data)))
        return b"".join((header, head, record.data))
    body = _encode_body(record)
    return build_header(Header(record.TYPE, True, len(body), _payload_bytes(record))) + body


def decode_record(data: bytes) -> Record | None:
    """One whole record, as `RecordIn` holds it; None for an optional one of a type this program does not know.

    Raises `Malformed`, `VersionUnknown`.
    """
    if header_of(data).type == RecordType.ROWS:  # megabytes, not copied
        return RowsRecord(*decode_rows(memoryview(data)[HEADER_BYTES:]))
    return decode_frame(split_record(data))


def decode_frame(frame: Frame) -> Record | None:
    """The record of a frame cut from a stream; None for an optional one of an unknown type."""
    if frame.header.type not in LIMITS:
        assert not frame.header.mandatory, "parse_header refuses these"
        return None
    record = decode(RecordType(frame.header.type), frame.body)
    payload_bytes = _payload_bytes(record)
    if payload_bytes != frame.header.payload_bytes:
        raise Malformed(f"a chunk of {payload_bytes} bytes announces a payload of {frame.header.payload_bytes}")
    return record


def _payload_bytes(record: Record) -> int:
    match record:
        case Chunk(extent):
            return extent.nbytes
        case Piece():
            return record.nbytes
        case Encoded():
            return record.encoded_bytes
        case _:
            return 0


def decode(kind: RecordType, body: bytes) -> Record:
    """The record of a known type. Raises `Malformed`."""
    limit = LIMITS[kind]
    if not limit.body_bytes_min <= len(body) <= limit.body_bytes_max:
        raise Malformed(f"a {kind.name} body of {len(body)} bytes is outside its limits")
    return _DECODERS[kind](body)


# ---- one pair a record


def _encode_body(record: Record) -> bytes:
    match record:
        case Hello():
            return _encode_hello(record)
        case ManifestRecord():
            body = _ManifestBody(record.generation, manifest_to_body(record.manifest))
            return encode_json(body, LIMITS[record.TYPE].body_bytes_max)
        case Chunk():
            return _pack(_EXTENT, record.extent.offset, record.extent.nbytes)
        case Shared():
            return _encode_shared(record)
        case CopyRecord():
            return encode_copy(record.copy)
        case RowsRecord():
            return b"".join((encode_runs(record.runs, record.data), record.data))
        case RoundEnd():
            return _pack(_ROUND_END, record.round, 0, record.nbytes)
        case Digests():
            return _encode_digests(record)
        case Seal():
            return _encode_seal(record)
        case Prepared():
            return _sized(record.root, ROOT_BYTES, "a root")
        case Spread() | Piece() | Streams() | Doors():
            return encode_link_record(record)
        case Encoded() | Decodes():
            return encode_coded_record(record)
        case Refused() | Abort():
            return encode_json(_WhyBody(record.code, record.sentence), LIMITS[record.TYPE].body_bytes_max)


def _pack(layout: struct.Struct, *values: int | bytes) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise Malformed(f"a number does not fit its field: {error}") from error


def _sized(data: bytes, nbytes: int, what: str) -> bytes:
    if len(data) != nbytes:
        raise Malformed(f"{what} is {nbytes} bytes, not {len(data)}")
    return data


class _HelloBody(Body, frozen=True):
    session: Annotated[str, Meta(max_length=63)]
    epoch: Count
    move: Annotated[str, Meta(max_length=63)]
    mode: Mode


def _encode_hello(record: Hello) -> bytes:
    body = encode_json(
        _HelloBody(record.session, record.epoch, record.move, record.mode), LIMITS[RecordType.HELLO].body_bytes_max
    )
    _decode_hello(body)
    return body


def _decode_hello(data: bytes) -> Hello:
    body = decode_json(data, _HelloBody, LIMITS[RecordType.HELLO].body_bytes_max)
    try:
        session, move = check_name(body.session, "a session"), check_name(body.move, "a move")
    except BadValue as error:
        raise Malformed(error.sentence) from error
    return Hello(SessionId(session), Epoch(body.epoch), MoveId(move), body.mode)


class _ManifestBody(Body, frozen=True):
    generation: Annotated[int, Meta(ge=1, le=_U32_MAX)]
    manifest: ManifestBody


def _decode_manifest(data: bytes) -> ManifestRecord:
    body = decode_json(data, _ManifestBody, LIMITS[RecordType.MANIFEST].body_bytes_max)
    return ManifestRecord(body.generation, manifest_from_body(body.manifest))


_EXTENT = struct.Struct("<QQ")


def _extent(offset: int, nbytes: int) -> Extent:
    """No extent is empty or reaches beyond 2^63 bytes; a link checks it against its arena."""
    if nbytes == 0 or offset + nbytes >= 2**63:
        raise Malformed(f"an extent of {nbytes} bytes at {offset}", offset=offset, nbytes=nbytes)
    return Extent(offset, nbytes)


def _decode_chunk(data: bytes) -> Chunk:
    return Chunk(_extent(*_EXTENT.unpack(data)))


_COUNT = struct.Struct("<II")


def _counted(data: bytes, entry_bytes: int) -> tuple[int, memoryview]:
    """First word, and the entries that the second counts, which must fill the body exactly."""
    first, count = _COUNT.unpack_from(data)
    if len(data) - _COUNT.size != count * entry_bytes:
        raise Malformed(
            f"a body announces {count} entries of {entry_bytes} bytes and has {len(data) - _COUNT.size} bytes"
        )
    return first, memoryview(data)[_COUNT.size :]


def _encode_shared(record: Shared) -> bytes:
    head = _pack(_COUNT, 0, len(record.extents))
    return head + b"".join(_pack(_EXTENT, extent.offset, extent.nbytes) for extent in record.extents)


def _decode_shared(data: bytes) -> Shared:
    reserved, entries = _counted(data, _EXTENT.size)
    _check_reserved(reserved)
    return Shared(tuple(_extent(offset, nbytes) for offset, nbytes in _EXTENT.iter_unpack(entries)))


def _check_reserved(reserved: int) -> None:
    if reserved:
        raise Malformed("reserved bytes of a body are not zero")


_ROUND_END = struct.Struct("<IIQ")


def _decode_round_end(data: bytes) -> RoundEnd:
    number, reserved, nbytes = _ROUND_END.unpack(data)
    _check_reserved(reserved)
    return RoundEnd(number, nbytes)


_LEAF = struct.Struct(f"<QI{LEAF_DIGEST_BYTES}s")


def _encode_digests(record: Digests) -> bytes:
    head = _pack(_COUNT, record.round, len(record.leaves))
    for leaf in record.leaves:
        _sized(leaf.digest, LEAF_DIGEST_BYTES, "a leaf digest")
    return head + b"".join(_pack(_LEAF, leaf.extent.offset, leaf.extent.nbytes, leaf.digest) for leaf in record.leaves)


def _decode_digests(data: bytes) -> Digests:
    number, entries = _counted(data, _LEAF.size)
    leaves = tuple(LeafDigest(_extent(offset, nbytes), digest) for offset, nbytes, digest in _LEAF.iter_unpack(entries))
    return Digests(number, leaves)


_SEAL = struct.Struct(f"<{ROOT_BYTES}s{ROOT_BYTES}sQQQII")


def _encode_seal(record: Seal) -> bytes:
    root, layout = _sized(record.root, ROOT_BYTES, "a root"), _sized(record.layout, ROOT_BYTES, "a layout digest")
    numbers = (record.block, record.number, record.leaf_count, record.generation, record.held_us)
    return _pack(_SEAL, root, layout, *numbers)


def _decode_seal(data: bytes) -> Seal:
    return Seal(*_SEAL.unpack(data))


class _WhyBody(Body, frozen=True):
    code: Annotated[str, Meta(min_length=1, max_length=64)]
    sentence: Annotated[str, Meta(max_length=SENTENCE_CHARS_MAX)]


def _decode_refused(data: bytes) -> Refused:
    body = decode_json(data, _WhyBody, LIMITS[RecordType.REFUSED].body_bytes_max)
    return Refused(body.code, body.sentence)


def _decode_abort(data: bytes) -> Abort:
    body = decode_json(data, _WhyBody, LIMITS[RecordType.ABORT].body_bytes_max)
    return Abort(body.code, body.sentence)


_DECODERS: Mapping[RecordType, Callable[[bytes], Record]] = {
    RecordType.HELLO: _decode_hello,
    RecordType.MANIFEST: _decode_manifest,
    RecordType.CHUNK: _decode_chunk,
    RecordType.SHARED: _decode_shared,
    RecordType.COPY: lambda data: CopyRecord(decode_copy(data)),
    RecordType.ROWS: lambda data: RowsRecord(*decode_rows(data)),
    RecordType.ROUND_END: _decode_round_end,
    RecordType.DIGESTS: _decode_digests,
    RecordType.SEAL: _decode_seal,
    RecordType.PREPARED: lambda data: Prepared(_sized(data, ROOT_BYTES, "a root")),
    RecordType.REFUSED: _decode_refused,
    RecordType.ABORT: _decode_abort,
    RecordType.SPREAD: decode_spread,
    RecordType.PIECE: decode_piece,
    RecordType.STREAMS: decode_streams,
    RecordType.DOORS: decode_doors,
    RecordType.ENCODED: decode_encoded,
    RecordType.DECODES: decode_decodes,
}
