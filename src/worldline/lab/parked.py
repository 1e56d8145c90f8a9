"""The states of parked sessions, read where they lie on disk."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worldline.schema.ids import SessionId
from worldline.schema.layout import Extent
from worldline.verify.compare import Difference, State, first_difference
from worldline.verify.image import open_image


class _FileBytes:
    """The segments of an image file, addressed as its manifest addresses them."""

    def __init__(self, mapped: mmap.mmap, segments_offset: int) -> None:
        self._bytes = memoryview(mapped)[segments_offset:]

    def bytes_at(self, extent: Extent) -> memoryview:
        return self._bytes[extent.offset : extent.offset + extent.nbytes]

    def release(self) -> None:
        self._bytes.release()


@contextmanager
def parked_state(path: Path, session: str) -> Iterator[State]:
    """The state in an image, mapped read-only. Header and manifest are checked, the bytes are as they lie."""
    image = open_image(path, SessionId(session))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        lying = _FileBytes(mapped, image.segments_offset)
        try:
            yield State(image.manifest, lying)
        finally:
            lying.release()


def compare_parked(path: Path, session: str, other_path: Path, other_session: str) -> Difference | None:
    """The first difference of two parked states: dtype, shape, strides, then raw bytes. None where they are equal."""
    with parked_state(path, session) as left, parked_state(other_path, other_session) as right:
        return first_difference(left, right)
