import contextlib
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unit.wire.records_by_chance import records
from worldline.errors import Corrupt, Malformed
from worldline.schema.ids import Epoch, MoveId, SessionId
from worldline.schema.inventory import Append, Free, Kind, Ring, Roll
from worldline.schema.layout import SEGMENTS_MAX, Extent, Layout, Manifest, Placement, Segment, View
from worldline.schema.receipt import Mode
from worldline.schema.rows import Copy, Runs, Shift
from worldline.wire.body import decode_json, encode_json
from worldline.wire.encoded import Decodes, Encoded
from worldline.wire.framing import HEADER_BYTES, LIMITS, RECORD_BYTES_MAX, Header, RecordType, build_header
from worldline.wire.manifest import ManifestBody, manifest_from_body, manifest_to_body
from worldline.wire.records import (
    SENTENCE_CHARS_MAX,
    Abort,
    Chunk,
    CopyRecord,
    Digests,
    Hello,
    LeafDigest,
    ManifestRecord,
    Prepared,
    Refused,
    RoundEnd,
    RowsRecord,
    Seal,
    Shared,
    decode,
    decode_record,
    encode,
)
from worldline.wire.rows import ROWS_BYTES_MAX, SHIFTS_MAX
from worldline.wire.spread import Doors, Piece, Spread, Streams

MANIFEST_BYTES_MAX = LIMITS[RecordType.MANIFEST].body_bytes_max


def encode_manifest(manifest):
    return encode_json(manifest_to_body(manifest), MANIFEST_BYTES_MAX)


def decode_manifest(data):
    return manifest_from_body(decode_json(data, ManifestBody, MANIFEST_BYTES_MAX))


MANIFEST = Manifest(
    Layout(
        (Segment("meta", 40, Kind.AUX, Free()), Segment("world/k", 64, Kind.CACHE, Roll(1, 3, 2))),
        (View("world/k", "bfloat16", (4, 8), (8, 1), 1, 0),),
        65_536,
    ),
    (Placement(0, 4096, False), Placement(4096, 64, True)),
    7,
)
MANIFEST_JSON = (
    b'{"generation":1,"manifest":{"layout":{"segments":['
    b'{"name":"meta","nbytes":40,"kind":"aux","write":{"rule":"free"}},'
    b'{"name":"world/k","nbytes":64,"kind":"cache","write":{"rule":"roll","dim":1,"shift":3,"keep":2}}],'
    b'"views":[{"path":"world/k","dtype":"bfloat16","shape":[4,8],"strides":[8,1],"segment":1,"offset_bytes":0}],'
    b'"leaf_bytes":65536},"placements":[{"offset":0,"capacity":4096,"resident":false},'
    b'{"offset":4096,"capacity":64,"resident":true}],"block":7}}'
)
A_ROOT, A_LAYOUT = bytes(range(32)), bytes(range(32, 64))
GOLDEN = [
    (
        Hello(SessionId("s1"), Epoch(3), MoveId("m1"), Mode.PRECOPY),
        0,
        b'{"session":"s1","epoch":3,"move":"m1","mode":"precopy"}',
    ),
    (ManifestRecord(1, MANIFEST), 0, MANIFEST_JSON),
    (Chunk(Extent(0x1000, 0x20)), 0x20, bytes.fromhex("0010000000000000 2000000000000000")),
    (
        Shared((Extent(1, 2), Extent(3, 4))),
        0,
        bytes.fromhex("00000000 02000000 0100000000000000 0200000000000000 0300000000000000 0400000000000000"),
    ),
    (
        CopyRecord(Copy(7, 1, (Shift(3, 0, 3), Shift(1, 4, 2)))),
        0,
        bytes.fromhex(
            "07000000 01000000 02000000 00000000"
            "0300000000000000 0000000000000000 0300000000000000"
            "0100000000000000 0400000000000000 0200000000000000"
        ),
    ),
    (
        RowsRecord(Runs(0x1000, 3, 5, 2), b"abcdef"),
        0,
        bytes.fromhex("0010000000000000 0300000000000000 0500000000000000 02000000 00000000") + b"abcdef",
    ),
    (
        Spread(Extent(0x1000, 0x20), 3, 4096),
        0,
        bytes.fromhex("0010000000000000 2000000000000000 0300000000000000 00100000 00000000"),
    ),
    (Piece(3, 1, 0x20), 0x20, bytes.fromhex("0300000000000000 01000000 20000000")),
    (Streams(2), 0, bytes.fromhex("02000000 00000000")),
    (Doors((1, 65535)), 0, bytes.fromhex("02000000 00000000 01000000 ffff0000")),
    (
        Encoded(Extent(0x1000, 0x20), 0x1F, 3),
        0x1F,
        bytes.fromhex("0010000000000000 20000000 1f000000 03 00000000000000"),
    ),
    (Decodes((1, 4)), 0, bytes.fromhex("12000000 00000000")),
    (RoundEnd(2, 0x0102030405), 0, bytes.fromhex("02000000 00000000 0504030201000000")),
    (
        Digests(2, (LeafDigest(Extent(0x1000, 0x20), b"0123456789abcdef"),)),
        0,
        bytes.fromhex("02000000 01000000 0010000000000000 20000000") + b"0123456789abcdef",
    ),
    (
        Seal(A_ROOT, A_LAYOUT, 7, 8, 9, 1, 10),
        0,
        A_ROOT + A_LAYOUT + bytes.fromhex("0700000000000000 0800000000000000 0900000000000000 01000000 0a000000"),
    ),
    (Prepared(A_ROOT), 0, A_ROOT),
    (Refused("CORRUPT", "no"), 0, b'{"code":"CORRUPT","sentence":"no"}'),
    (Abort("LINK_CUT", "gone"), 0, b'{"code":"LINK_CUT","sentence":"gone"}'),
]
NUMBERS = {
    Hello: 1,
    ManifestRecord: 2,
    Chunk: 3,
    RoundEnd: 4,
    Digests: 5,
    Seal: 6,
    Prepared: 7,
    Refused: 8,
    Abort: 9,
    CopyRecord: 10,
    Shared: 11,
    RowsRecord: 12,
    Spread: 13,
    Piece: 14,
    Streams: 15,
    Doors: 16,
    Encoded: 17,
    Decodes: 18,
}


@pytest.mark.parametrize(("record", "payload_bytes", "body"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_octets_of_every_record_never_change(record, payload_bytes, body):
    header = (
        b"WLDL\x01"
        + bytes([NUMBERS[type(record)]])
        + b"\x01\x00"
        + len(body).to_bytes(4, "little")
        + payload_bytes.to_bytes(8, "little")
        + bytes(12)
    )
    assert encode(record) == header + body
    assert decode_record(header + body) == record


def test_every_record_type_has_golden_octets():
    assert {record.TYPE for record, _, _ in GOLDEN} == set(RecordType) == set(LIMITS)


@given(records)
def test_what_is_encoded_is_decoded_to_an_equal_record(record):
    data = encode(record)
    assert len(data) <= RECORD_BYTES_MAX
    assert decode_record(data) == record


@given(st.sampled_from(RecordType), st.binary(max_size=300))
@example(RecordType.HELLO, b'{"session":"\\ud800","epoch":0,"move":"m","mode":"freeze"}')
@example(RecordType.MANIFEST, b"[" * 5000)
@example(RecordType.MANIFEST, b'{"generation":1,"manifest":' + b'{"layout":' * 2000)
def test_any_body_is_a_record_or_malformed(kind, body):
    try:
        record = decode(kind, body)
    except Malformed:
        return
    assert decode_record(encode(record)) == record


@given(st.data())
def test_a_changed_octet_gives_a_record_or_malformed(data):
    octets = bytearray(encode(data.draw(records)))
    octets[data.draw(st.integers(HEADER_BYTES, len(octets) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Malformed):
        decode_record(bytes(octets))


def body_of(record):
    return encode(record)[HEADER_BYTES:]


@pytest.mark.parametrize("record", [record for record, _, _ in GOLDEN], ids=lambda value: type(value).__name__)
def test_a_cut_or_longer_body_is_malformed(record):
    body = body_of(record)
    for broken in (body[:-1], body + b"\0", body[: len(body) // 2], b""):
        with pytest.raises(Malformed):
            decode(record.TYPE, broken)


@pytest.mark.parametrize(
    ("record", "at"),
    [
        (RoundEnd(1, 2), 4),
        (Shared((Extent(0, 1),)), 0),
        (CopyRecord(Copy(0, 0, (Shift(0, 1, 1),))), 12),
        (RowsRecord(Runs(0, 1, 1, 1), b"x"), 28),
    ],
)
def test_reserved_octets_of_a_body_must_be_zero(record, at):
    body = bytearray(body_of(record))
    body[at] = 1
    with pytest.raises(Malformed, match="reserved"):
        decode(record.TYPE, bytes(body))


@pytest.mark.parametrize(
    "body",
    [
        b'{"session":"s","epoch":1,"move":"m","mode":"freeze","extra":1}',
        b'{"session":"s","epoch":1,"move":"m"}',
        b'{"session":"s","epoch":"1","move":"m","mode":"freeze"}',
        b'{"session":"s","epoch":1.5,"move":"m","mode":"freeze"}',
        b'{"session":"s","epoch":-1,"move":"m","mode":"freeze"}',
        b'{"session":"s","epoch":9223372036854775808,"move":"m","mode":"freeze"}',
        b'{"session":"s","epoch":1,"move":"m","mode":"teleport"}',
        b'{"session":"../s","epoch":1,"move":"m","mode":"freeze"}',
        b'{"session":"","epoch":1,"move":"m","mode":"freeze"}',
        b'{"session":"s","epoch":1,"move":"m","mode":"freeze"}{}',
        b'\xff\xfe{"session":"s"}',
        b"null",
    ],
)
def test_a_hello_that_breaks_its_types_is_malformed(body):
    with pytest.raises(Malformed):
        decode(RecordType.HELLO, body)


def manifest_with(**changes):
    return replace(MANIFEST, **changes)


def layout_with(**changes):
    return replace(MANIFEST, layout=replace(MANIFEST.layout, **changes))


@pytest.mark.parametrize(
    "manifest",
    [
        layout_with(leaf_bytes=4096),
        layout_with(segments=(Segment("", 1, Kind.AUX, Free()),) * 2),
        layout_with(segments=(Segment("x" * 1025, 1, Kind.AUX, Free()),) * 2),
        layout_with(segments=(Segment("\ud800", 1, Kind.AUX, Free()),) * 2),
        layout_with(segments=(Segment("x", -1, Kind.AUX, Free()),) * 2),
        layout_with(segments=(Segment("x", 1, Kind.AUX, Append(40)),) * 2),
        layout_with(segments=(Segment("x", 1, Kind.AUX, Ring(0, 2**64)),) * 2),
        layout_with(views=(View("x", "uint8", (1,) * 33, (1,) * 33, 0, 0),)),
        layout_with(views=(View("x", "uint8", (1,), (-1,), 0, 0),)),
        layout_with(views=(View("x", "uint8", (1,), (1,), SEGMENTS_MAX, 0),)),
        manifest_with(placements=(Placement(0, 1, False),)),
        manifest_with(block=-1),
        manifest_with(block=2**64),
    ],
)
def test_a_manifest_beyond_the_limits_is_refused_by_the_writer(manifest):
    with pytest.raises(Malformed):
        encode(ManifestRecord(1, manifest))
    with pytest.raises(Malformed):
        encode_manifest(manifest)


def test_a_manifest_of_thousands_of_segments_passes():
    count = 5000
    manifest = Manifest(
        Layout(
            tuple(Segment(f"world/layer/{n}/k", 1024, Kind.CACHE, Ring(1, 2)) for n in range(count)),
            tuple(View(f"world/layer/{n}/k", "float32", (4, 64), (64, 1), n, 0) for n in range(count)),
            65_536,
        ),
        tuple(Placement(4096 * n, 4096, True) for n in range(count)),
        1,
    )
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert decode_record(encode(ManifestRecord(2, manifest))) == ManifestRecord(2, manifest)


def test_more_segments_than_the_limit_are_refused():
    many = tuple(Segment("x", 1, Kind.AUX, Free()) for _ in range(SEGMENTS_MAX + 1))
    manifest = Manifest(Layout(many, (), 65_536), tuple(Placement(0, 1, False) for _ in many), 1)
    with pytest.raises(Malformed):
        encode_manifest(manifest)


@pytest.mark.parametrize("item", [b"0", b"[]", b'""', b"{}"])
def test_a_manifest_of_many_tiny_items_is_refused_before_it_grows(item):
    start = b'{"layout":{"segments":[],"views":[{"path":"x","dtype":"y","shape":['
    count = (MANIFEST_BYTES_MAX - len(start)) // (len(item) + 1)
    data = start + (item + b",") * count
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode_manifest(data)
        assert tracemalloc.get_traced_memory()[1] < 2 * MANIFEST_BYTES_MAX
    finally:
        tracemalloc.stop()


def test_a_manifest_larger_than_a_record_is_not_read():
    with pytest.raises(Malformed):
        decode_manifest(b" " * (MANIFEST_BYTES_MAX + 1))


def test_a_count_that_does_not_match_its_body_is_malformed_before_anything_is_built():
    for kind in (RecordType.DIGESTS, RecordType.SHARED):
        with pytest.raises(Malformed):
            decode(kind, bytes(4) + b"\xff\xff\xff\xff" + bytes(28 * 16))
    with pytest.raises(Malformed):
        decode(RecordType.COPY, bytes(8) + b"\xff\xff\xff\xff" + bytes(4 + 24 * 16))
    with pytest.raises(Malformed):
        decode(RecordType.ROWS, bytes(8) + b"\1" + bytes(7) + b"\1" + bytes(7) + b"\xff\xff\xff\xff" + bytes(4 + 64))


@pytest.mark.parametrize("extent", [Extent(0, 0), Extent(2**63 - 1, 1), Extent(2**64 - 1, 2**32 - 1)])
def test_an_empty_extent_or_one_that_overflows_is_malformed(extent):
    for record in (Digests(1, (LeafDigest(extent, bytes(16)),)), Shared((extent,))):
        with pytest.raises(Malformed):
            decode_record(encode(record))


@pytest.mark.parametrize(
    "record",
    [
        RoundEnd(2**32, 0),
        RoundEnd(0, -1),
        Prepared(bytes(31)),
        Seal(bytes(33), bytes(32), 0, 0, 0, 0),
        Seal(bytes(32), bytes(32), 2**64, 0, 0, 0),
        Digests(1, (LeafDigest(Extent(0, 1), bytes(15)),)),
        Digests(1, (LeafDigest(Extent(0, 2**32), bytes(16)),)),
        Chunk(Extent(0, 64 * 1024 * 1024 + 1)),
        Shared(()),
        CopyRecord(Copy(0, 0, ())),
        CopyRecord(Copy(2**32, 0, (Shift(0, 1, 1),))),
        CopyRecord(Copy(0, -1, (Shift(0, 1, 1),))),
        CopyRecord(Copy(0, 0, (Shift(0, 1, 0),))),
        CopyRecord(Copy(0, 0, (Shift(2**63 - 1, 0, 1),))),
        CopyRecord(Copy(0, 0, (Shift(0, 4, 2), Shift(0, 5, 1)))),
        CopyRecord(Copy(0, 0, tuple(Shift(0, n, 1) for n in range(SHIFTS_MAX + 1)))),
        RowsRecord(Runs(0, 2, 2, 1), b"x"),
        RowsRecord(Runs(0, 2, 1, 2), b"abcd"),
        RowsRecord(Runs(0, 1, 2, 1), b"x"),
        RowsRecord(Runs(0, 0, 1, 1), b""),
        RowsRecord(Runs(2**62, 1, 2**61, 2), b"ab"),
        RowsRecord(Runs(0, 2, 2, ROWS_BYTES_MAX // 2 + 1), bytes(ROWS_BYTES_MAX + 2)),
        Refused("", "x"),
        Refused("X", "x" * (SENTENCE_CHARS_MAX + 1)),
        Hello(SessionId("S"), Epoch(1), MoveId("m"), Mode.FREEZE),
    ],
)
def test_a_value_beyond_its_field_is_refused_by_the_writer(record):
    with pytest.raises(Malformed):
        encode(record)


def test_a_chunk_whose_payload_is_not_its_extent_is_malformed():
    with pytest.raises(Malformed, match="payload"):
        decode_record(build_header(Header(RecordType.CHUNK, True, 16, 33)) + body_of(Chunk(Extent(0, 32))))


def test_an_optional_record_of_an_unknown_type_is_skipped():
    assert decode_record(build_header(Header(77, False, 3)) + b"abc") is None


def test_a_refusal_carries_an_error_across():
    refused = Refused.of(Corrupt("x" * 10_000, leaf=3))
    assert decode_record(encode(refused)) == Refused("CORRUPT", "x" * SENTENCE_CHARS_MAX)


def test_a_sentence_of_the_widest_characters_fits_its_record():
    for octets in ("\x01", "\U0001f600", "\u2028", '"'):
        record = Refused("X" * 64, octets * SENTENCE_CHARS_MAX)
        assert decode_record(encode(record)) == record


def test_a_layout_that_says_the_same_is_the_same_object_and_is_not_read_again():
    first = decode_record(encode(ManifestRecord(1, MANIFEST)))
    second = decode_record(encode(ManifestRecord(2, replace(MANIFEST, block=8))))
    assert first.manifest.layout == MANIFEST.layout
    assert second.manifest.layout is first.manifest.layout
    assert second.manifest.block == 8


def test_a_layout_is_read_strictly_within_its_manifest():
    data = encode_manifest(MANIFEST)
    for wrong in (data.replace(b"65536", b"65535.0"), data.replace(b"[8,1]", b'"8"')):
        assert wrong != data
        with pytest.raises(Malformed):
            decode_manifest(wrong)
