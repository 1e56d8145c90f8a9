"""Every kernel gives the same bytes, at every length and alignment, and writes nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from worldline.kernel.operations import GRANULE_BYTES, Kernel, Octets
from worldline.kernel.plain import Plain

SAME_KERNEL = [HealthCheck.function_scoped_fixture]
LENGTHS = [*range(300), *range(960, 1100), 2047, 2048, 2049, 4095, 4096, 4097, 65_535, 65_536, 65_537, 262_144]
CHANCE = np.random.default_rng(7)
RANDOM = CHANCE.integers(0, 256, 300_000, np.uint8)
FENCE = 0xA5


def places(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([at for at, _ in pairs], np.int64), np.array([size for _, size in pairs], np.int64)


def bf16(count: int, spread: float = 1.0) -> Octets:
    values = (CHANCE.standard_normal(count) * np.exp(CHANCE.standard_normal(count) * spread)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


MIXED = np.concatenate([bf16(4096), np.zeros(4096, np.uint8), RANDOM[:4100]])


def test_leaf_digests_are_those_of_the_wheel_at_every_length(kernel: Kernel) -> None:
    pairs = [(start, length) for length in LENGTHS for start in (0, 1, 16, 33)]
    expected = b"".join(xxh3_128_digest(RANDOM[start : start + length]) for start, length in pairs)
    assert kernel.leaf_digests(RANDOM, *places(*pairs)) == expected


@pytest.mark.parametrize("shift", [0, 1, 16, 31])
def test_a_copy_with_digests_copies_what_it_digests_and_nothing_else(kernel: Kernel, shift: int) -> None:
    for length in (0, 1, 15, 240, 241, 1024, 1025, 4096, 70_001):
        target = np.full(length + 200, FENCE, np.uint8)
        digest = kernel.copy_digests(target[shift:], RANDOM[5:], *places((64, length)))
        copied = RANDOM[69 : 69 + length]
        assert digest == xxh3_128_digest(copied)
        np.testing.assert_array_equal(target[shift + 64 : shift + 64 + length], copied)
        assert (target[: shift + 64] == FENCE).all()
        assert (target[shift + 64 + length :] == FENCE).all()


@settings(max_examples=60, suppress_health_check=SAME_KERNEL, deadline=None)
@given(length=st.integers(0, 40_000), source_at=st.integers(0, 70), target_at=st.integers(0, 70))
def test_a_copy_copies_every_byte_at_every_alignment(
    kernel: Kernel, length: int, source_at: int, target_at: int
) -> None:
    target = np.full(length + 200, FENCE, np.uint8)
    kernel.copy(target[target_at : target_at + length], RANDOM[source_at : source_at + length])
    np.testing.assert_array_equal(target[target_at : target_at + length], RANDOM[source_at : source_at + length])
    assert (target[:target_at] == FENCE).all()
    assert (target[target_at + length :] == FENCE).all()


@settings(max_examples=60, suppress_health_check=SAME_KERNEL, deadline=None)
@given(length=st.integers(0, 20_000), granule=st.integers(1, 5000), flips=st.lists(st.integers(0, 19_999), max_size=4))
def test_maps_of_differences_and_zeros_name_the_granules(
    kernel: Kernel, length: int, granule: int, flips: list[int]
) -> None:
    changed = np.zeros(length, np.uint8)
    named = {flip for flip in flips if flip < length}
    changed[list(named)] = 128
    touched = {flip // granule for flip in named}
    expected = [number in touched for number in range(-(-length // granule))]
    assert kernel.differences(np.zeros(length, np.uint8), changed, granule).tolist() == expected
    assert kernel.zeros(changed, granule).tolist() == [not one for one in expected]


@pytest.mark.parametrize(
    "memory",
    [
        np.empty(0, np.uint8),
        np.zeros(3 * GRANULE_BYTES + 17, np.uint8),
        RANDOM[: 5 * GRANULE_BYTES + 1],
        bf16(40_000),
        bf16(40_000, spread=3.0),
        np.concatenate([bf16(4096), np.zeros(10_000, np.uint8), bf16(4096, 9.0)]),
        np.tile(np.arange(65_536, dtype=np.uint16), 2).view(np.uint8),
    ],
    ids=["nothing", "zeros", "noise", "values", "wide-values", "mixed", "every-bf16"],
)
@pytest.mark.parametrize("window", [False, True])
def test_the_granule_code_is_the_same_of_every_kernel_and_gives_the_bytes_back(
    kernel: Kernel, memory: Octets, window: bool
) -> None:
    encoded = kernel.encode_granules(memory, window)
    assert encoded.tobytes() == Plain().encode_granules(memory, window).tobytes()
    back = np.full(memory.nbytes + 64, FENCE, np.uint8)
    assert kernel.decode_granules(encoded, back[: memory.nbytes])
    assert back[: memory.nbytes].tobytes() == memory.tobytes()
    assert (back[memory.nbytes :] == FENCE).all()


@settings(max_examples=150, suppress_health_check=SAME_KERNEL, deadline=None)
@given(data=st.data())
def test_a_changed_granule_code_is_refused_or_decodes_alike_and_writes_nowhere_else(
    kernel: Kernel, data: st.DataObject
) -> None:
    memory = MIXED
    encoded = Plain().encode_granules(memory, True).copy()
    for at in data.draw(st.lists(st.integers(0, 19) | st.integers(0, encoded.size - 1), max_size=3)):
        encoded[at] = data.draw(st.integers(0, 255))
    encoded = encoded[: data.draw(st.sampled_from([encoded.size, encoded.size - 1, 19, 0]))]
    outs = [np.full(memory.nbytes + 64, FENCE, np.uint8) for _ in range(2)]
    done = [each.decode_granules(encoded, out[: memory.nbytes]) for each, out in zip((kernel, Plain()), outs)]  # noqa: B905
    assert done[0] == done[1]
    assert (outs[0][memory.nbytes :] == FENCE).all()
    if done[0]:
        assert outs[0].tobytes() == outs[1].tobytes()


def test_planes_of_bf16_are_the_same_of_every_kernel_and_join_again(kernel: Kernel) -> None:
    memory = np.arange(65_536, dtype=np.uint16).view(np.uint8)
    exponents, rest = kernel.split_planes(memory)
    assert [each.tobytes() for each in (exponents, rest)] == [each.tobytes() for each in Plain().split_planes(memory)]
    back = np.empty_like(memory)
    kernel.join_planes(exponents, rest, back)
    assert back.tobytes() == memory.tobytes()


def test_stretches_outside_the_memory_are_refused(kernel: Kernel) -> None:
    for pair in ((0, 300_001), (-1, 4), (299_999, 2), (4, -1), (2**62, 2**62)):
        with pytest.raises(ValueError, match="memory"):
            kernel.leaf_digests(RANDOM, *places(pair))


def test_unequal_lengths_and_read_only_targets_are_refused(kernel: Kernel) -> None:
    frozen = np.zeros(8, np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="length"):
        kernel.copy(np.zeros(4, np.uint8), np.zeros(5, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        kernel.copy(frozen, np.zeros(8, np.uint8))
    with pytest.raises(ValueError, match="a granule has"):
        kernel.zeros(frozen, 0)
