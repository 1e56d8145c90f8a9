import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline.errors import Malformed
from worldline.runtime.gateway_told import Shown
from worldline.runtime.messages import Block
from worldline.service.octets import (
    HEADER_BYTES,
    LEFT_OUT,
    SENT_AGAIN,
    AckSent,
    ActionSent,
    read_block,
    read_sent,
    write_ack,
    write_action,
    write_block,
)

U64 = st.integers(0, 2**64 - 1)


def a_block(**change):
    fields = {
        "session": "s-1",
        "epoch": 0x01020304,
        "block": 5,
        "number": 6,
        "frame": 7,
        "frames": 3,
        "encoding": "jpeg",
        "height": 8,
        "width": 9,
        "payload": b"\xff\xd8",
        "digest": "d",
        "root": None,
        "raw": None,
        "step_ms": 1.5,
    }
    return Shown("host-a", Block(**(fields | change)))


def test_a_block_has_the_octets_of_the_table():
    message = write_block(a_block(), SENT_AGAIN)
    assert message[:2] == b"WL"
    assert message[2:4] == bytes([1, 1])
    assert message[4:8] == bytes([4, 3, 2, 1])
    assert [int.from_bytes(message[at : at + 8], "little") for at in (8, 16, 24)] == [5, 6, 7]
    assert [int.from_bytes(message[at : at + 2], "little") for at in (32, 34, 36)] == [3, 8, 9]
    assert list(message[38:40]) == [1, SENT_AGAIN]
    assert message[44:48] == bytes([2, 0, 0, 0])
    assert message[48:64] == b"host-a" + bytes(10)
    assert message[HEADER_BYTES:] == b"\xff\xd8"


def test_a_block_is_read_as_it_was_written():
    header, payload = read_block(write_block(a_block(), 0))
    assert (header.epoch, header.block, header.number, header.frame) == (0x01020304, 5, 6, 7)
    assert (header.frames, header.height, header.width, header.step_ms, header.host) == (3, 8, 9, 1.5, "host-a")
    assert payload == b"\xff\xd8"


def test_a_picture_that_is_left_out_leaves_the_numbers():
    header, payload = read_block(write_block(a_block(), LEFT_OUT))
    assert (header.block, header.encoding, payload) == (5, 0, b"")


def test_a_long_host_name_is_cut_to_its_field():
    shown = Shown("h" * 40, a_block().block)
    assert read_block(write_block(shown, 0))[0].host == "h" * 16


@given(number=U64, action=st.integers(-(2**31), 2**31 - 1))
def test_actions_and_acks_are_read_as_they_were_written(number, action):
    assert read_sent(write_action(number, action)) == ActionSent(number, action)
    assert read_sent(write_ack(number)) == AckSent(number)


@given(st.binary(max_size=80))
def test_any_other_bytes_are_malformed_and_nothing_worse(message):
    for read in (read_sent, read_block):
        try:
            read(message)
        except Malformed:
            continue
        assert read is read_sent
        assert len(message) in {9, 13}


def test_a_block_that_is_cut_or_of_another_version_is_malformed():
    message = write_block(a_block(), 0)
    for wrong in (message[:-1], message + b"x", message[:2] + b"\x02" + message[3:], b"XX" + message[2:]):
        with pytest.raises(Malformed):
            read_block(wrong)
