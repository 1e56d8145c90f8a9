"""Every codec passes the one suite, whichever kernel is under it."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from worldline.codecs.protocol import Codec
from worldline.codecs.registry import CODECS, available, codec, codec_of
from worldline.errors import BadValue, Malformed
from worldline.testing.codecs import CodecSuite, samples, values


class TestCodecs(CodecSuite):
    @pytest.fixture(params=CODECS)
    def codec(self, request: pytest.FixtureRequest) -> Codec:
        return codec(request.param)


def ratio(name: str, octets: np.ndarray) -> float:
    return octets.nbytes / codec(name).encode(octets.data).nbytes


def test_zero_granules_cost_next_to_nothing() -> None:
    for name in ("zeros", "window", "exponents"):
        assert ratio(name, np.zeros(1 << 20, np.uint8)) > 500


def test_values_shrink_as_the_codec_says() -> None:
    octets = values(1 << 19)
    assert ratio("zeros", octets) == pytest.approx(1, abs=0.01)
    assert ratio("window", octets) > 1.28
    assert ratio("exponents", octets) > 1.4


def test_noise_grows_by_no_more_than_a_granules_header() -> None:
    noise = samples()["noise"]
    assert ratio("window", noise) > 0.998
    assert ratio("exponents", noise) > 0.99


def test_codecs_are_found_by_name_and_by_number() -> None:
    assert {codec_of(each.number).name for each in map(codec, CODECS)} == set(CODECS)
    assert available() == tuple(CODECS)
    with pytest.raises(BadValue, match="there are raw"):
        codec("gzip")
    with pytest.raises(Malformed):
        codec_of(0)


def test_a_frame_that_claims_gigabytes_is_refused_unbelieved() -> None:
    """A zstd frame of 4096 exponents whose header says 2^40 bytes and a window as large."""
    frame = bytes.fromhex("28b52ffd") + bytes([0xC0, 0xF8]) + struct.pack("<Q", 1 << 40) + bytes.fromhex("030000")
    encoded = struct.pack("<I", 8192) + b"\x03" + struct.pack("<I", len(frame)) + frame + bytes(4096)
    with pytest.raises(Malformed):
        codec("exponents").decode_into(memoryview(encoded), memoryview(bytearray(8192)))
