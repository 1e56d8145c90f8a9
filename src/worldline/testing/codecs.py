"""One conformance suite for every codec: a subclass names the codec, and inherits the tests.

class TestMine(CodecSuite):
    @pytest.fixture
    def codec(self) -> Codec:
        return Mine()
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worldline.codecs.protocol import STRETCH_BYTES_MAX, Codec, encoded_bytes_max
from worldline.errors import Malformed

FENCE = 0xA5
FENCE_BYTES = 64
EACH = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def values(count: int, seed: int = 0) -> np.ndarray:
    """bf16 as caches hold it: normal, of scales that differ from row to row."""
    chance = np.random.default_rng(seed)
    scales = np.exp(chance.standard_normal(-(-count // 64))).repeat(64)[:count]
    wide = (chance.standard_normal(count) * scales).astype(np.float32)
    return (wide.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def every_bf16() -> np.ndarray:
    """All 65,536 patterns: every NaN, both infinities and zeros, subnormals."""
    return np.arange(65_536, dtype=np.uint16).view(np.uint8)


def samples() -> dict[str, np.ndarray]:
    """Stretches that tell codecs apart."""
    chance = np.random.default_rng(1)
    noise = chance.integers(0, 256, 70_001, np.uint8)
    holes = values(40_000)
    holes[8192:40_960] = 0
    return {
        "nothing": np.empty(0, np.uint8),
        "one": np.array([7], np.uint8),
        "zeros": np.zeros(100_000, np.uint8),
        "noise": noise,
        "values": values(50_000),
        "holes": holes,
        "odd-tail": np.concatenate([values(4096), noise[:4095]]),
        "zero-tail": np.concatenate([values(2048), np.zeros(100, np.uint8)]),
        "every-bf16": every_bf16(),
        "shuffled-bf16": chance.permutation(every_bf16().view(np.uint16)).view(np.uint8),
    }


class CodecSuite:
    """What must hold of a codec."""

    def roundtrip(self, codec: Codec, octets: np.ndarray) -> memoryview:
        """Encodes, decodes between fences, compares; the code."""
        before = octets.tobytes()
        encoded = codec.encode(octets.data)
        assert octets.tobytes() == before, "encoding changes nothing"
        assert encoded.nbytes <= encoded_bytes_max(octets.nbytes)
        fenced = np.full(octets.nbytes + 2 * FENCE_BYTES, FENCE, np.uint8)
        into = fenced[FENCE_BYTES : FENCE_BYTES + octets.nbytes]
        codec.decode_into(encoded, into.data)
        assert into.tobytes() == before
        self.check_fences(fenced)
        return encoded

    @staticmethod
    def check_fences(fenced: np.ndarray) -> None:
        """Nothing was written outside."""
        assert (fenced[:FENCE_BYTES] == FENCE).all()
        assert (fenced[-FENCE_BYTES:] == FENCE).all()

    @pytest.mark.parametrize("name", samples())
    def test_every_stretch_comes_back(self, codec: Codec, name: str) -> None:
        self.roundtrip(codec, samples()[name])

    @EACH
    @given(octets=st.binary(max_size=9000), zeros=st.integers(0, 9000))
    def test_bytes_by_chance_come_back(self, codec: Codec, octets: bytes, zeros: int) -> None:
        self.roundtrip(codec, np.frombuffer(octets + bytes(zeros), np.uint8))

    @EACH
    @given(seed=st.integers(0, 2**32 - 1), count=st.integers(0, 8000), at=st.integers(0, 3))
    def test_values_come_back_at_every_length_and_alignment(self, codec: Codec, seed: int, count: int, at: int) -> None:
        self.roundtrip(codec, values(count, seed)[at:])

    def test_equal_stretches_have_equal_codes(self, codec: Codec) -> None:
        assert codec.encode(values(9000).data) == codec.encode(values(9000).data)

    def test_a_code_cut_anywhere_is_malformed(self, codec: Codec) -> None:
        encoded = bytes(codec.encode(values(4096).data))
        for keep in [*range(24), *range(24, len(encoded), 997), len(encoded) - 1]:
            with pytest.raises(Malformed):
                codec.decode_into(memoryview(encoded[:keep]), memoryview(bytearray(8192)))

    def test_a_code_of_another_length_is_malformed(self, codec: Codec) -> None:
        encoded = codec.encode(values(4096).data)
        for nbytes in (0, 1, 4096, 8191, 8193, 12_288, 1 << 20):
            with pytest.raises(Malformed):
                codec.decode_into(encoded, memoryview(bytearray(nbytes)))
        with pytest.raises(Malformed):
            codec.decode_into(memoryview(bytes(encoded) + b"\0"), memoryview(bytearray(8192)))

    @EACH
    @given(data=st.data())
    def test_a_changed_code_is_malformed_or_decodes_inside_its_stretch(self, codec: Codec, data: st.DataObject) -> None:
        octets = samples()["holes"][:20_483]
        encoded = bytearray(codec.encode(octets.data))
        places = st.integers(0, 31) | st.integers(0, len(encoded) - 1)
        for at in data.draw(st.lists(places, min_size=1, max_size=4)):
            encoded[at] = data.draw(st.integers(0, 255))
        self.decode_anything(codec, bytes(encoded), octets.nbytes)

    @EACH
    @given(encoded=st.binary(max_size=300), nbytes=st.sampled_from([0, 1, 100, 4096, 8192, 8200]))
    def test_bytes_by_chance_are_malformed_or_decode_inside_their_stretch(
        self, codec: Codec, encoded: bytes, nbytes: int
    ) -> None:
        self.decode_anything(codec, encoded, nbytes)

    def decode_anything(self, codec: Codec, encoded: bytes, nbytes: int) -> None:
        """Decodes, or is refused; either way nothing outside is touched."""
        fenced = np.full(nbytes + 2 * FENCE_BYTES, FENCE, np.uint8)
        with suppress(Malformed):
            codec.decode_into(memoryview(encoded), fenced[FENCE_BYTES : FENCE_BYTES + nbytes].data)
        self.check_fences(fenced)

    def test_a_stretch_over_the_limit_is_the_callers_fault(self, codec: Codec) -> None:
        with pytest.raises(ValueError, match="at most"):
            codec.encode(np.zeros(STRETCH_BYTES_MAX + 1, np.uint8).data)
