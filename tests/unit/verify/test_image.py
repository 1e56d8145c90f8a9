"""An image is whole or not there, and two readers that share no code agree on which."""

import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.verify.kit import IDENTITY, Octets, state
from worldline.errors import (
    BadValue,
    ByteOrderRefused,
    Corrupt,
    Malformed,
    NoCapacity,
    Refused,
    VersionUnknown,
    WrongSession,
)
from worldline.schema.layout import Extent
from worldline.verify.digests import digest_state
from worldline.verify.image import load, open_image, write_image
from worldline.verify.reader import verify_image

TESTS = Path(__file__).parents[2]


def write(path, **changes):
    memory, manifest = state(**changes)
    digested = digest_state(memory, manifest)
    write_image(path, IDENTITY, digested, memory)
    return digested


def read(path):
    """The host's reader, from the file to an arena."""
    return load(open_image(path, "walk-1"), Octets(1 << 20))


def second(path):
    return verify_image(path, "walk-1")


READERS = pytest.mark.parametrize("reader", [read, second])


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "a.image")
    return tmp_path / "a.image"


@pytest.fixture(scope="module")
def octets(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "a.image"
    write(path)
    return path.read_bytes()


def resealed(octets, at, new):
    """The file with other octets in its header, and a header digest that is right for them."""
    head = bytearray(octets[:4064])
    head[at : at + len(new)] = new
    return bytes(head) + blake3(head).digest() + octets[4096:]


def with_manifest(octets, change):
    """The file with another manifest of the same length in place of its own, all digests right for it."""
    nbytes = int.from_bytes(octets[32:40], "little")
    text = change(octets[4096 : 4096 + nbytes])
    assert len(text) == nbytes, "a planted manifest keeps its length"
    octets = resealed(octets, 80, blake3(text).digest())
    return octets[:4096] + text + octets[4096 + nbytes :]


def test_what_was_written_is_what_is_read(path):
    digested = write(path)
    found = read(path)
    assert found.root == digested.root
    assert replace(found.manifest, placements=()) == replace(digested.manifest, placements=())
    assert [place.resident for place in found.manifest.placements] == [False, True, False]
    image = open_image(path, "walk-1")
    assert image.identity == IDENTITY


def test_the_state_lands_where_the_manifest_says(path):
    memory, manifest = state()
    arena = Octets(1 << 20)
    found = load(open_image(path, "walk-1"), arena)
    for segment, here, there in zip(
        manifest.layout.segments, manifest.placements, found.manifest.placements, strict=True
    ):
        assert there.offset % 4096 == 0
        assert arena.bytes_at(Extent(there.offset, segment.nbytes)) == memory.bytes_at(
            Extent(here.offset, segment.nbytes)
        )


def test_the_second_reader_reports_what_the_writer_knew(path):
    digested = write(path)
    report = second(path)
    assert report.root == digested.root.hex()
    assert (report.session, report.epoch, report.block, report.number) == ("walk-1", 4, 3, 3)
    assert (report.leaf_count, report.segments, report.tensors) == (4, 3, 3)
    assert report.state_bytes == digested.manifest.layout.nbytes
    assert report.file_bytes == path.stat().st_size
    assert verify_image(path) == report


@READERS
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_flipped_bit_anywhere_is_refused(reader, octets, data, tmp_path_factory):
    at = data.draw(st.integers(0, len(octets) - 1) | st.integers(0, 200) | st.integers(4050, 6000))
    flipped = bytearray(octets)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "flipped.image"
    path.write_bytes(flipped)
    with pytest.raises(Refused):
        reader(path)


@READERS
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_an_image_cut_anywhere_is_malformed(reader, octets, data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "cut.image"
    path.write_bytes(octets[: data.draw(st.integers(0, len(octets) - 1))])
    with pytest.raises(Malformed):
        reader(path)


@READERS
@pytest.mark.parametrize("more", [b"\0", b"x", bytes(4096)])
def test_trailing_bytes_are_refused(reader, path, more):
    path.write_bytes(path.read_bytes() + more)
    with pytest.raises(Malformed):
        reader(path)


@READERS
def test_an_image_of_another_session_is_refused(reader, path, tmp_path):
    other = tmp_path / "b.image"
    memory, manifest = state()
    write_image(other, msgspec.structs.replace(IDENTITY, session="walk-2"), digest_state(memory, manifest), memory)
    other.replace(path)
    with pytest.raises(WrongSession, match="walk-2"):
        reader(path)


@READERS
@pytest.mark.parametrize("seal", [True, False])
def test_a_newer_version_is_told_as_such(reader, path, octets, seal):
    new = (2).to_bytes(4, "little")
    path.write_bytes(resealed(octets, 12, new) if seal else octets[:12] + new + octets[16:])
    with pytest.raises(VersionUnknown):
        reader(path)


@READERS
@pytest.mark.parametrize("seal", [True, False])
def test_the_other_byte_order_is_told_as_such(reader, path, octets, seal):
    new = b"\1\2\3\4"
    path.write_bytes(resealed(octets, 8, new) if seal else octets[:8] + new + octets[12:])
    with pytest.raises(ByteOrderRefused):
        reader(path)


@READERS
@pytest.mark.parametrize("at", [16, 33, 75, 90, 120, 150, 2000, 4090])
def test_a_changed_header_is_corrupt(reader, path, octets, at):
    octets = bytearray(octets)
    octets[at] ^= 1
    path.write_bytes(octets)
    with pytest.raises(Corrupt, match="header"):
        reader(path)


@READERS
def test_a_wrong_leaf_is_corrupt(reader, path, octets):
    octets = bytearray(octets)
    octets[-4096 * 2] ^= 1
    path.write_bytes(octets)
    with pytest.raises(Corrupt, match="'k'"):
        reader(path)


@READERS
@pytest.mark.parametrize(
    ("at", "new"),
    [
        (12, (0).to_bytes(4, "little")),
        (16, (1 << 40).to_bytes(8, "little")),
        (24, (8192).to_bytes(8, "little")),
        (32, (1 << 60).to_bytes(8, "little")),
        (32, (0).to_bytes(8, "little")),
        (40, (0).to_bytes(8, "little")),
        (48, (1 << 60).to_bytes(8, "little")),
        (48, (3).to_bytes(8, "little")),
        (56, (0).to_bytes(8, "little")),
        (64, (7).to_bytes(8, "little")),
        (72, (4).to_bytes(8, "little")),
        (80, bytes(32)),
        (112, bytes(32)),
        (144, bytes(32)),
        (176, b"x"),
        (4063, b"x"),
    ],
    ids=lambda value: str(value)[:24] if isinstance(value, int) else value[:8].hex(),
)
def test_a_header_that_lies_under_a_right_digest_is_refused(reader, path, octets, at, new):
    path.write_bytes(resealed(octets, at, new))
    with pytest.raises((Malformed, Corrupt)):
        reader(path)


@READERS
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"block":3', b'"block":4'),
        (b'"epoch":4', b'"epoch":0'),
        (b'"world":"load"', b'"world":"LOAD"'),
        (b'"made_at_s":1700000000.0', b'"made_at_s":"1700000000"'),
        (b'"resident":true', b'"resident":1   '),
        (b'"offset":4096', b'"offset":8192'),
        (b'"capacity":4096', b'"capacity":4095'),
        (b'"path":"v"', b'"path":"k"'),
        (b'"path":"v"', b'"path":"w"'),
        (b'"dtype":"bfloat16"', b'"dtype":"float160"'),
        (b'"dtype":"uint8"', b'"dtype":"int64"'),
        (b'"strides":[4,1]', b'"strides":[9,9]'),
        (b'"kind":"const"', b'"kind":"xonst"'),
        (b'"rule":"roll"', b'"rule":"poll"'),
        (b'"name":"meta"', b'"name":"atem"'),
        (b'"leaf_bytes":65536', b'"leaf_bytes":65537'),
        (b'"segment":1', b'"segment":7'),
        (b'"nbytes":70', b'"nbytes":60'),
        (b'"keep":1', b'"kepp":1'),
        (b'{"identity"', b' "identity"'),
    ],
    ids=lambda value: value.decode(),
)
def test_a_manifest_that_lies_under_a_right_digest_is_refused(reader, path, octets, old, new):
    path.write_bytes(with_manifest(octets, lambda text: text.replace(old, new.ljust(len(old)), 1)))
    with pytest.raises(Refused):
        reader(path)


@READERS
def test_a_manifest_with_a_key_twice_is_refused_or_means_the_same_to_both(reader, path, octets):
    path.write_bytes(with_manifest(octets, lambda text: text.replace(b'"number":3', b'"epoch":33', 1)))
    with pytest.raises(Malformed):
        reader(path)


@pytest.mark.parametrize(
    "tree",
    [
        {"k": {"$t": 0}, "v": {"$t": 1}},
        {"k": {"$t": 0}, "v": {"$t": 1}, "x": [{"$t": 3}]},
        {"k": {"$t": 1}, "v": {"$t": 0}, "x": [{"$t": 2}]},
        {"k": {"$g": 0}, "v": {"$t": 1}, "x": [{"$t": 2}]},
        {"k": {"$t": 0}, "v": {"$t": 1}, "x": [{"$t": 2}, 0.5]},
        {"k": {"$t": 0}, "v": {"$t": 1}, "x": [{"$t": 2}], "y": {"$t": 2}},
        {"k": {"$t": 0}, "v": {"$p": [1, 2, 1]}, "x": [{"$t": 2}]},
        {"k": {"$t": 0}, "v": {"$p": [1, 0, 65]}, "x": [{"$t": 2}]},
        {"k": {"$t": 0}, "v": {"$p": [1, 0]}, "x": [{"$t": 2}]},
        {"k": {"$t": 0}, "v": {"$p": 1}, "x": [{"$t": 2}]},
    ],
    ids=str,
)
def test_the_second_reader_refuses_a_tree_that_does_not_fit_and_so_none_is_written(tmp_path, tree):
    with pytest.raises(Malformed):
        write(tmp_path / "a.image", tree=tree)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_image_leaves_an_arena_of_zeros(path, octets):
    octets = bytearray(octets)
    octets[-1 - 4096 + 70] ^= 1  # the last leaf
    path.write_bytes(octets)
    arena = Octets(1 << 20)
    image = open_image(path, "walk-1")
    with pytest.raises(Corrupt):
        load(image, arena)
    assert not any(arena.data)


def test_an_arena_too_small_is_no_capacity_and_untouched(path):
    arena = Octets(4096 * 3)
    with pytest.raises(NoCapacity):
        load(open_image(path, "walk-1"), arena)
    assert not any(arena.data)


def test_state_that_changed_after_it_was_digested_never_becomes_an_image(tmp_path):
    path = tmp_path / "a.image"
    before = write(path)
    memory, manifest = state(seed=1)
    digested = digest_state(memory, manifest)
    memory.data[manifest.placements[1].offset] ^= 1
    with pytest.raises(Corrupt):
        write_image(path, IDENTITY, digested, memory)
    assert second(path).root == before.root.hex()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.image"]


def test_an_identity_that_no_reader_would_take_is_not_written(tmp_path):
    memory, manifest = state()
    for wrong in ({"session": "../x"}, {"epoch": 0}, {"number": -1}, {"made_by": ""}):
        with pytest.raises(BadValue):
            identity = msgspec.structs.replace(IDENTITY, **wrong)
            write_image(tmp_path / "a.image", identity, digest_state(memory, manifest), memory)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_at_any_byte_leaves_the_previous_image(path, octets):
    before = second(path)
    memory, manifest = state(seed=7)
    digested = digest_state(memory, manifest)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 1, 4095, 4096, 5000, 8192, 9000, 12_288, 20_000, len(octets) - 4096):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(NoCapacity):
                write_image(path, IDENTITY, digested, memory)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert second(path) == before
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    write_image(path, IDENTITY, digested, memory)
    assert second(path).root == digested.root.hex()


CRASH = """
import os, signal, sys
from pathlib import Path
from unit.verify.kit import IDENTITY, Octets, state
from worldline.verify.digests import digest_state
from worldline.verify.image import write_image

class Dying(Octets):
    left = int(sys.argv[2])
    def bytes_at(self, extent):
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        return super().bytes_at(extent)

memory, manifest = state(seed=7)
digested = digest_state(memory, manifest)
dying = Dying()
dying.data = memory.data
write_image(Path(sys.argv[1]), IDENTITY, digested, dying)
"""


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_crash_while_writing_leaves_the_previous_image(path, reads):
    before = second(path)
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(path), str(reads)], env=environment, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    assert second(path) == before
    write(path, seed=9)
    assert second(path) != before


def test_two_writers_at_once_leave_one_whole_image(path):
    roots = set()
    errors = []

    def go(seed):
        try:
            roots.add(write(path, seed=seed).root.hex())
        except Refused as error:
            errors.append(error)

    threads = [threading.Thread(target=go, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert second(path).root in roots
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_missing_image_is_a_missing_file(tmp_path):
    for reader in (read, second):
        with pytest.raises(FileNotFoundError):
            reader(tmp_path / "none.image")
