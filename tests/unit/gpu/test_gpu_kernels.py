"""The kernels for cards give the bytes that the CPU gives, under Triton's interpreter, and compile without a card."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.errors import Corrupt, Malformed
from worldline.gpu import window
from worldline.gpu.copies import Stretch, copy_stretches
from worldline.gpu.digests import leaf_digests
from worldline.gpu.mirror import Bus, Mirror
from worldline.kernel import kernel
from worldline.schema.layout import Extent

EDGES = [1, 8, 17, 240, 241, 248, 255, 256, 300, 511, 512, 1023, 1024, 1025, 1087, 1088, 1089, 2047, 2049, 4096, 5003]


def memory(nbytes, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8))


def laid(sizes):
    extents, end = [], 0
    for size in sizes:
        extents.append(Extent(end, size))
        end += -(-size // 8) * 8
    return extents, end + 8


def test_leaves_of_every_length_at_an_edge_have_the_wheels_digests():
    extents, end = laid(EDGES)
    octets = memory(end)
    wanted = [xxhash.xxh3_128_digest(octets[e.offset : e.offset + e.nbytes].numpy()) for e in extents]
    assert leaf_digests(octets, extents) == wanted
    assert leaf_digests(octets, []) == []


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 4000), min_size=1, max_size=20), seed=st.integers(0, 9))
def test_leaves_of_any_length_have_the_wheels_digests(sizes, seed):
    extents, end = laid(sizes)
    octets = memory(end, seed)
    wanted = [xxhash.xxh3_128_digest(octets[e.offset : e.offset + e.nbytes].numpy()) for e in extents]
    assert leaf_digests(octets, extents) == wanted


@pytest.mark.parametrize("extent", [Extent(4, 8), Extent(0, 65), Extent(64, 8)])
def test_an_extent_off_a_word_or_outside_is_refused(extent):
    with pytest.raises(ValueError, match="extent"):
        leaf_digests(memory(64), [extent])


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(0, 20000), min_size=1, max_size=6), data=st.data())
def test_stretches_are_copied_to_the_last_byte_and_not_one_further(sizes, data):
    extents, end = laid(sizes)
    order = data.draw(st.permutations(range(len(sizes))))
    places, target_end = laid([sizes[index] for index in order])
    source, target = memory(end), memory(target_end, seed=2)
    wanted = target.clone()
    stretches = []
    for index, place in zip(order, places, strict=True):
        stretches.append(Stretch(extents[index].offset, place.offset, place.nbytes))
        wanted[place.offset : place.offset + place.nbytes] = source[extents[index].offset :][: place.nbytes]
    copy_stretches(source, target, stretches)
    assert torch.equal(target, wanted)


def test_a_stretch_outside_its_memory_is_refused():
    for stretch in (Stretch(0, 0, 65), Stretch(60, 0, 4), Stretch(0, 64, 8)):
        with pytest.raises(ValueError, match="stretch"):
            copy_stretches(memory(64), memory(64), [stretch])


LEAF_BYTES = 2048


def a_mirror(nbytes, seed=1, staging_bytes=3000):
    bus = Bus(torch.device("cpu"), staging_bytes)
    return Mirror(memory(nbytes, seed), np.zeros(nbytes, np.uint8), bus, LEAF_BYTES), bus


@pytest.mark.parametrize("nbytes", [0, 5, 8, 4 * LEAF_BYTES, 4 * LEAF_BYTES + 1003])
def test_a_mirror_brings_down_what_changed_and_nothing_else(nbytes):
    mirror, bus = a_mirror(nbytes)
    mirror.down()
    assert mirror.host.tobytes() == mirror.device.numpy().tobytes()
    before = bus.bytes_down
    for at in (at for at in (LEAF_BYTES + 7, nbytes - 1) if 0 <= at < nbytes):
        mirror.device[at] ^= 1
    mirror.down()
    assert mirror.host.tobytes() == mirror.device.numpy().tobytes()
    assert bus.bytes_down - before <= 2 * LEAF_BYTES


def test_a_mirror_brings_the_host_up():
    mirror, _ = a_mirror(2 * LEAF_BYTES + 13)
    mirror.host[:] = memory(mirror.host.nbytes, seed=3).numpy()
    mirror.up()
    assert mirror.host.tobytes() == mirror.device.numpy().tobytes()


class TornBus(Bus):
    """One bit arrives wrong."""

    def down(self, extents, memory, host):
        super().down(extents, memory, host)
        host[extents[0].offset] ^= 4


def test_a_bus_that_changes_a_bit_is_refused():
    with pytest.raises(Corrupt, match="copy"):
        Mirror(memory(4096), np.zeros(4096, np.uint8), TornBus(torch.device("cpu"))).down()


REGISTERS_MAX = 128
"""At 128 threads a program: four programs on a multiprocessor at least, and nothing spilled."""


def test_the_kernels_compile_for_cards_that_are_not_here_within_their_registers(tmp_path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET")
    run = [sys.executable, "-m", "worldline.gpu.compiled", "80", "90", "100"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True, timeout=100)
    told = json.loads(done.stdout)
    assert {(one["kernel"], one["sm"]) for one in told} >= {
        (name, sm)
        for name in ("digest_leaves", "copy_words", "encode_granules", "move_together", "decode_granules")
        for sm in (80, 90, 100)
    }
    assert all(0 < one["registers"] <= REGISTERS_MAX and one["stack_bytes"] == 0 for one in told)


def keys_and_values(elements, seed):
    """bf16 as attention leaves it: exponents near one another, some far off."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 1, elements).astype(np.float32) * np.where(rng.random(elements) < 0.02, 1e-20, 1.0)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize(
    "octets",
    [
        np.empty(0, np.uint8),
        np.zeros(3 * 4096 + 5, np.uint8),
        np.arange(2 * 4096 + 7, dtype=np.uint32).astype(np.uint8),
        keys_and_values(4 * 2048, 1).view(np.uint8),
        np.concatenate([keys_and_values(2048, 2).view(np.uint8), np.zeros(4096, np.uint8), memory(4096 + 3).numpy()]),
        np.full(4096, 0xFF, np.uint8),
    ],
)
def test_the_window_codec_on_a_device_gives_the_kernels_bytes_and_takes_them(octets):
    wanted = kernel().encode_granules(octets, True)
    encoded = window.encode(torch.from_numpy(octets.copy()))
    assert encoded.numpy().tobytes() == wanted.tobytes()
    into = torch.full((octets.nbytes,), 7, dtype=torch.uint8)
    window.decode_into(encoded, into)
    assert into.numpy().tobytes() == octets.tobytes()


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_damaged_window_code_is_refused_or_decodes_as_the_kernel_does(data):
    octets = keys_and_values(2048 * 2, 3).view(np.uint8)
    encoded = np.array(kernel().encode_granules(octets, True))
    at = data.draw(st.integers(0, encoded.nbytes - 1) | st.integers(0, 7))
    encoded[at] ^= data.draw(st.integers(1, 255))
    cut = encoded[: encoded.nbytes - data.draw(st.integers(0, 2))]
    there, here = torch.zeros(octets.nbytes, dtype=torch.uint8), np.zeros(octets.nbytes, np.uint8)
    if kernel().decode_granules(cut, here):
        window.decode_into(torch.from_numpy(cut.copy()), there)
        assert there.numpy().tobytes() == here.tobytes()
    else:
        with pytest.raises(Malformed):
            window.decode_into(torch.from_numpy(cut.copy()), there)
