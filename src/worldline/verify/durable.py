"""Files that are whole or absent, whenever the machine stops."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def draft_of(path: Path) -> Path:
    """A name beside `path` that nobody else draws."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.part")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a draft to write and flush. After success `path` is the draft, durably; after failure it is what it was.

    No draft is left either way.
    """
    draft = draft_of(path)
    try:
        yield draft
        draft.replace(path)
        flush_directory(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def flush_directory(path: Path) -> None:
    """Makes the names in it durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
