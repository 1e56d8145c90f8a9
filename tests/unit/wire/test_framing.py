import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline.errors import Malformed, VersionUnknown
from worldline.wire.framing import (
    CHUNK_PAYLOAD_BYTES_MAX,
    HEADER_BYTES,
    LIMITS,
    RECORD_BYTES_MAX,
    UNKNOWN_BODY_BYTES_MAX,
    Header,
    Numberer,
    Reader,
    RecordType,
    build_header,
    parse_header,
    split_record,
)

GOLDEN = bytes.fromhex("574c444c0103010010000000efcdab0000000000080706050403020100000000")


def changed(at, octet):
    return GOLDEN[:at] + bytes([octet]) + GOLDEN[at + 1 :]


def test_the_octets_of_a_header_never_change():
    header = Header(RecordType.CHUNK, True, 16, 0xABCDEF, 0x0102030405060708)
    assert build_header(header) == GOLDEN
    assert parse_header(GOLDEN) == header


def test_a_header_has_no_padding():
    assert len(GOLDEN) == HEADER_BYTES == 32


@pytest.mark.parametrize("at", range(4))
def test_another_magic_number_is_malformed(at):
    with pytest.raises(Malformed, match="magic"):
        parse_header(changed(at, 0))


def test_a_newer_version_is_told_from_rubbish():
    with pytest.raises(VersionUnknown) as caught:
        parse_header(changed(4, 2))
    assert caught.value.facts["version"] == 2
    with pytest.raises(Malformed):
        parse_header(changed(4, 0))


@pytest.mark.parametrize(("at", "octet"), [(6, 3), (7, 1), (28, 1), (31, 0x80)])
def test_reserved_bits_must_be_zero(at, octet):
    with pytest.raises(Malformed, match="reserved"):
        parse_header(changed(at, octet))


def test_a_mandatory_record_of_an_unknown_type_is_malformed():
    with pytest.raises(Malformed, match="mandatory"):
        parse_header(changed(5, 250))


def test_an_optional_record_of_an_unknown_type_is_read_and_skipped_up_to_a_limit():
    header = Header(200, False, UNKNOWN_BODY_BYTES_MAX)
    assert parse_header(build_header(header)) == header
    with pytest.raises(Malformed):
        build_header(Header(200, False, UNKNOWN_BODY_BYTES_MAX + 1))
    with pytest.raises(Malformed):
        build_header(Header(200, False, 0, payload_bytes=1))


@pytest.mark.parametrize("kind", list(RecordType))
def test_a_body_beyond_the_limits_of_its_type_is_refused_on_both_sides(kind):
    limit = LIMITS[kind]
    for body_bytes in (limit.body_bytes_min - 1, limit.body_bytes_max + 1):
        with pytest.raises(Malformed):
            build_header(Header(kind, True, body_bytes, limit.payload_bytes_max))
        octets = GOLDEN[:5] + bytes([kind]) + GOLDEN[6:8] + (body_bytes % 2**32).to_bytes(4, "little") + bytes(20)
        with pytest.raises(Malformed):
            parse_header(octets)


def test_only_a_chunk_has_a_payload_and_it_is_bounded_and_never_empty():
    build_header(Header(RecordType.CHUNK, True, 16, CHUNK_PAYLOAD_BYTES_MAX))
    for header in (
        Header(RecordType.CHUNK, True, 16, CHUNK_PAYLOAD_BYTES_MAX + 1),
        Header(RecordType.CHUNK, True, 16, 0),
        Header(RecordType.PREPARED, True, 32, 1),
    ):
        with pytest.raises(Malformed):
            build_header(header)


def test_no_record_can_be_larger_than_a_record_may_be():
    assert max(limit.body_bytes_max for limit in LIMITS.values()) + HEADER_BYTES <= RECORD_BYTES_MAX


def test_a_record_with_a_cut_or_trailing_body_is_malformed():
    record = build_header(Header(RecordType.PREPARED, True, 32)) + bytes(32)
    assert split_record(record).record == record
    for broken in (record[:-1], record + b"\0", record[:31], b""):
        with pytest.raises(Malformed):
            split_record(broken)


def numbered(numberer, record):
    return numberer.stamp(record[:HEADER_BYTES]) + record[HEADER_BYTES:]


def drive(stream):
    """Frames of a stream of records without payloads, as a link cuts it."""
    reader, frames = Reader(), []
    while True:
        wanted = reader.wanted_bytes
        assert 0 < wanted <= RECORD_BYTES_MAX
        if len(stream) < wanted:
            return frames, reader
        frame, stream = reader.take(stream[:wanted]), stream[wanted:]
        if frame is not None:
            frames.append(frame)


def test_a_stream_is_cut_into_the_records_that_were_sent():
    numberer = Numberer()
    records = [
        build_header(Header(RecordType.PREPARED, True, 32)) + bytes(range(32)),
        build_header(Header(99, False, 0)),
        build_header(Header(RecordType.PREPARED, True, 32)) + bytes(32),
    ]
    frames, reader = drive(b"".join(numbered(numberer, record) for record in records))
    assert [frame.record for frame in frames] == records
    assert [frame.header.sequence for frame in frames] == [0, 1, 2]
    assert reader.at_boundary


@pytest.mark.parametrize("order", [[1], [0, 0], [0, 2], [1, 0]])
def test_a_lost_repeated_or_swapped_record_is_malformed(order):
    numberer = Numberer()
    records = [numbered(numberer, build_header(Header(99, False, 0))) for _ in range(3)]
    with pytest.raises(Malformed, match="due"):
        drive(b"".join(records[number] for number in order))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_stream_of_frames_or_a_typed_error(data):
    with contextlib.suppress(Malformed, VersionUnknown):
        drive(data)


@given(st.binary(min_size=32, max_size=32).map(lambda tail: GOLDEN[:5] + tail[:27]))
def test_any_header_behind_the_magic_number_is_read_within_limits_or_refused(data):
    try:
        header = parse_header(data)
    except (Malformed, VersionUnknown):
        return
    assert header.body_bytes + HEADER_BYTES <= RECORD_BYTES_MAX
    assert header.payload_bytes <= CHUNK_PAYLOAD_BYTES_MAX
    assert build_header(header) == data
