"""A parked session's file, written and read by a host. The octets are in docs/format.md; `reader` is the second
opinion.

Invariants:
- Under an image's name there is at any time nothing, or one whole image that was read back and verified after it was
  flushed.
- Reading installs nothing: bytes go to an arena of the caller's, are digested where they landed, and the arena is
  zeroed when anything differs.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, Self

from blake3 import blake3

from worldline.errors import BadValue, ByteOrderRefused, Corrupt, Malformed, NoCapacity, VersionUnknown, WrongSession
from worldline.schema.ids import Epoch, HostId, SessionId, check_name
from worldline.schema.layout import ALIGN_BYTES, Extent, Manifest, Placement, Segment, leaves_of
from worldline.snapshot.checks import check_layout
from worldline.verify import reader
from worldline.verify.digests import (
    DIGEST_BYTES,
    BytesAt,
    Digested,
    layout_digest,
    leaf_digests,
    root,
)
from worldline.verify.disk import Disk, RealDisk
from worldline.verify.durable import replacing
from worldline.wire.body import Body, decode_json, encode_json
from worldline.wire.manifest import ManifestBody, manifest_from_body, manifest_to_body

MAGIC: Final = b"WLIMAGE\0"
VERSION: Final = 1
BYTE_ORDER_MARK: Final = 0x01020304
HEADER: Final = struct.Struct("<8sIIQQQQQQQQ32s32s32s3888x")
HEADER_BYTES: Final = 4096
MANIFEST_BYTES_MAX: Final = 32 * 1024 * 1024
_READ_BYTES: Final = 1024 * 1024
_WRITE_BYTES: Final = 64 * 1024 * 1024

assert HEADER.size == HEADER_BYTES - 32


class Identity(Body, frozen=True):
    """Whose state an image holds. `plan` is the digest of the kernel plan under which it was generated."""

    session: SessionId
    epoch: Epoch
    """The owner's number when the image was written."""
    number: int
    """The last action number applied."""
    world: str
    plan: str
    made_by: HostId
    made_at_s: float

    def check(self) -> None:
        """Raises `BadValue` for what can't be a name, an owner's number or an action's."""
        for name, what in ((self.session, "a session"), (self.world, "a world"), (self.made_by, "a host")):
            check_name(name, what)
        if self.epoch < 1 or self.number < 0:
            raise BadValue(f"epoch {self.epoch} and action number {self.number} can't be an owner's")


class _Described(Body, frozen=True):
    identity: Identity
    manifest: ManifestBody


class WritableBytes(Protocol):
    """An arena to load into."""

    @property
    def capacity(self) -> int: ...

    def bytes_at(self, extent: Extent) -> memoryview: ...

    def zero(self, extent: Extent) -> None: ...


def write_image(path: Path, identity: Identity, digested: Digested, arena: BytesAt, disk: Disk | None = None) -> None:
    """Writes, flushes, reads back, verifies and renames the state that `digested` found in `arena`.

    After success `path` is a verified image of exactly the digested state, durable. After failure `path` is what it
    was and no temporary file is left. Raises `NoCapacity` for a full disk, `Corrupt` when what was read back has
    another root (the state changed after it was digested, or the disk lies) and `OSError` for other troubles of the
    disk.
    """
    if sys.byteorder != "little":
        raise ByteOrderRefused("images are written on little-endian machines only")
    identity.check()
    disk = disk or RealDisk()
    manifest = digested.manifest
    file_manifest = _place(manifest, lambda nbytes, _: _padded(nbytes))
    described = encode_json(_Described(identity, manifest_to_body(file_manifest)), MANIFEST_BYTES_MAX)
    header = Header.of(digested, described)
    try:
        with replacing(path) as draft:
            with draft.open("xb", buffering=0) as file:
                _write(disk, file.fileno(), 0, header.encode())
                _write(disk, file.fileno(), HEADER_BYTES, described)
                _write(disk, file.fileno(), header.digests_offset, b"".join(digested.digests))
                for segment, here, there in _both(manifest, file_manifest):
                    at = header.segments_offset + there.offset
                    _write(disk, file.fileno(), at, arena.bytes_at(Extent(here.offset, segment.nbytes)))
                os.ftruncate(file.fileno(), header.total_bytes)
                disk.flush(file.fileno())
            report = reader.verify_image(draft, identity.session)
            if report.root != digested.root.hex():
                raise Corrupt("the image read back has another root than the state", found=report.root)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise NoCapacity(f"no room on the disk for the image {path.name}", image=path.name) from error
        raise


@dataclass(frozen=True, slots=True)
class Image:
    """An open image whose header, manifest and digests are consistent. `load` reads and verifies the state itself."""

    path: Path
    identity: Identity
    manifest: Manifest
    """Placements are offsets from `segments_offset` in the file."""
    digests: tuple[bytes, ...]
    root: bytes
    segments_offset: int
    total_bytes: int


def open_image(path: Path, session: SessionId, disk: Disk | None = None) -> Image:
    """Reads everything but the state. `session` is whose image this must be.

    Raises `Malformed`, `VersionUnknown`, `ByteOrderRefused`, `Corrupt`, `WrongSession`, `LayoutRefused`, and
    `OSError`.
    """
    disk = disk or RealDisk()
    with path.open("rb") as file:
        header = Header.decode(_read(disk, file.fileno(), 0, HEADER_BYTES), os.fstat(file.fileno()).st_size)
        described_bytes = _read(disk, file.fileno(), HEADER_BYTES, header.manifest_bytes)
        digests = _read(disk, file.fileno(), header.digests_offset, header.leaf_count * DIGEST_BYTES)
        for start, end in header.gaps():
            _check_zero(_read(disk, file.fileno(), start, end - start))
    if blake3(described_bytes).digest() != header.manifest_digest:
        raise Corrupt("the image's manifest differs from its digest", image=path.name)
    described = decode_json(described_bytes, _Described, MANIFEST_BYTES_MAX)
    try:
        described.identity.check()
    except BadValue as error:
        raise Malformed(f"the image's identity is none: {error.sentence}") from error
    if described.identity.session != session:
        found = described.identity.session
        raise WrongSession(f"the image is of session {found}, not {session}", found=found)
    manifest = manifest_from_body(described.manifest)
    check_layout(manifest.layout)
    header.check(manifest)
    leaves = tuple(digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
    if root(header.layout, leaves) != header.root or layout_digest(manifest.layout) != header.layout:
        raise Corrupt("the image's layout or leaf digests differ from its root", image=path.name)
    return Image(path, described.identity, manifest, leaves, header.root, header.segments_offset, header.total_bytes)


def load(image: Image, arena: WritableBytes, disk: Disk | None = None) -> Digested:
    """Reads the state into a fresh arena and digests it where it landed. Placements of the result are in the arena.

    After success the arena's state has the image's root. After failure the arena is zero. Raises `Corrupt`,
    `Malformed`, `OSError`, and `NoCapacity` when the arena is too small.
    """
    disk = disk or RealDisk()
    manifest = _place(image.manifest, _place_bytes)
    if manifest.placements[-1].offset + manifest.placements[-1].capacity > arena.capacity:
        raise NoCapacity("the arena is too small for the image", image=image.path.name, capacity=arena.capacity)
    expected = iter(image.digests)
    try:
        with image.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != image.total_bytes:
                raise Malformed("the image was cut or grew while it was read", image=image.path.name)
            for segment, here, there in _both(manifest, image.manifest):
                start = image.segments_offset + there.offset
                for batch in _batches(list(leaves_of(segment, here, manifest.layout.leaf_bytes))):
                    _read_into(disk, file.fileno(), start + batch[0].offset - here.offset, arena, batch)
                    if any(found != next(expected) for found in leaf_digests(arena, batch)):
                        raise Corrupt(f"the image's segment {segment.name!r} differs from its digests")
                _check_zero(_read(disk, file.fileno(), start + segment.nbytes, there.capacity - segment.nbytes))
    except BaseException:
        arena.zero(Extent(0, arena.capacity))
        raise
    return Digested(manifest, image.digests)


@dataclass(frozen=True, slots=True)
class Header:
    """The first 4096 bytes. What follows from other fields is computed, and checked when read."""

    manifest_bytes: int
    leaf_count: int
    state_bytes: int
    total_bytes: int
    block: int
    manifest_digest: bytes
    layout: bytes
    root: bytes

    @classmethod
    def of(cls, digested: Digested, described: bytes) -> Self:
        """The header of a state whose manifest is written as `described`."""
        layout = digested.manifest.layout
        segments_bytes = sum(_padded(segment.nbytes) for segment in layout.segments)
        header = cls(
            len(described),
            len(digested.digests),
            layout.nbytes,
            0,
            digested.manifest.block,
            blake3(described).digest(),
            layout_digest(layout),
            digested.root,
        )
        return replace(header, total_bytes=header.segments_offset + segments_bytes)

    @property
    def digests_offset(self) -> int:
        return HEADER_BYTES + _padded(self.manifest_bytes)

    @property
    def segments_offset(self) -> int:
        return self.digests_offset + _padded(self.leaf_count * DIGEST_BYTES)

    def encode(self) -> bytes:
        """The header with its own digest."""
        fields = HEADER.pack(
            MAGIC,
            BYTE_ORDER_MARK,
            VERSION,
            self.total_bytes,
            HEADER_BYTES,
            self.manifest_bytes,
            self.digests_offset,
            self.leaf_count,
            self.segments_offset,
            self.state_bytes,
            self.block,
            self.manifest_digest,
            self.layout,
            self.root,
        )
        return fields + blake3(fields).digest()

    @classmethod
    def decode(cls, data: bytes, file_bytes: int) -> Self:
        """Raises `Malformed`, `VersionUnknown`, `ByteOrderRefused` and `Corrupt`, before anything else of the file
        is read.
        """
        magic, mark, version, total, _, manifest, _, leaves, _, state, block, *digests = HEADER.unpack(
            data[: HEADER.size]
        )
        if magic != MAGIC:
            raise Malformed("the file is no image")
        if mark == int.from_bytes(BYTE_ORDER_MARK.to_bytes(4, "little"), "big"):
            raise ByteOrderRefused("the image was written on a big-endian machine")
        if mark != BYTE_ORDER_MARK:
            raise Malformed("the image's byte-order mark is none")
        if version > VERSION:
            raise VersionUnknown(f"the image has version {version}; this program reads {VERSION}", version=version)
        if blake3(data[: HEADER.size]).digest() != data[HEADER.size :]:
            raise Corrupt("the image's header differs from its digest")
        header = cls(manifest, leaves, state, total, block, *digests)
        if not 0 < manifest <= MANIFEST_BYTES_MAX or total != file_bytes or header.segments_offset > total:
            raise Malformed("the image is cut, or longer than it says", total_bytes=total, file_bytes=file_bytes)
        if header.encode() != data:
            raise Malformed("the image's parts are not where they belong")
        return header

    def gaps(self) -> list[tuple[int, int]]:
        """The padding after the manifest and after the digests."""
        digests_end = self.digests_offset + self.leaf_count * DIGEST_BYTES
        return [(HEADER_BYTES + self.manifest_bytes, self.digests_offset), (digests_end, self.segments_offset)]

    def check(self, manifest: Manifest) -> None:
        """Holds the header against the manifest that it describes. Raises `Malformed`."""
        layout = manifest.layout
        expected = _place(manifest, lambda nbytes, _: _padded(nbytes))
        last = expected.placements[-1]
        if (
            (self.block, self.state_bytes, self.leaf_count) != (manifest.block, layout.nbytes, layout.leaf_count)
            or manifest != expected
            or self.segments_offset + last.offset + last.capacity != self.total_bytes
        ):
            raise Malformed("the image's header and manifest don't agree")


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES


def _place_bytes(nbytes: int, resident: bool) -> int:
    return nbytes if resident else _padded(nbytes)


def _place(manifest: Manifest, capacity_of: Callable[[int, bool], int]) -> Manifest:
    """The manifest with its segments one after the other, each at a multiple of `ALIGN_BYTES`."""
    placements = []
    offset = 0
    for segment, place in zip(manifest.layout.segments, manifest.placements, strict=True):
        placements.append(Placement(offset, capacity_of(segment.nbytes, place.resident), place.resident))
        offset += _padded(segment.nbytes)
    return replace(manifest, placements=tuple(placements))


def _both(here: Manifest, there: Manifest) -> Iterator[tuple[Segment, Placement, Placement]]:
    return zip(here.layout.segments, here.placements, there.placements, strict=True)


def _batches(leaves: list[Extent]) -> Iterator[list[Extent]]:
    """Leaves of one segment in runs that are read at once and digested while they are in the processor's cache."""
    count = max(_READ_BYTES // leaves[0].nbytes, 1) if leaves else 1
    for start in range(0, len(leaves), count):
        yield leaves[start : start + count]


def _write(disk: Disk, fd: int, at: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        done = disk.write(fd, view[:_WRITE_BYTES], at)
        view, at = view[done:], at + done


def _read(disk: Disk, fd: int, at: int, nbytes: int) -> bytes:
    data = bytearray(nbytes)
    with memoryview(data) as view:
        _fill(disk, fd, at, view)
    return bytes(data)


def _read_into(disk: Disk, fd: int, at: int, arena: WritableBytes, batch: list[Extent]) -> None:
    nbytes = batch[-1].offset + batch[-1].nbytes - batch[0].offset
    _fill(disk, fd, at, arena.bytes_at(Extent(batch[0].offset, nbytes)))


def _fill(disk: Disk, fd: int, at: int, view: memoryview) -> None:
    while view:
        done = disk.read(fd, view, at)
        if done == 0:
            raise Malformed("the image is cut", offset=at)
        view, at = view[done:], at + done


def _check_zero(data: bytes) -> None:
    if any(data):
        raise Malformed("the image has bytes between its parts")
