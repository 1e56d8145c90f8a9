"""Planted faults of the disk under the record: SQLite itself meets them, and its own words tell of them.

Invariant: afterwards the file and the process are as before; what was spoiled is rolled back whole.
"""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from worldline.schema.fault import FaultName

PART_BYTES = 1000
"""Of a log that was emptied before: its header, and a part of its first page."""
FILLER_BYTES = 1024 * 1024


@contextmanager
def spoiling(db: sqlite3.Connection, how: FaultName | None) -> Iterator[None]:
    """The disk under the commit inside, with rows already written in its transaction."""
    if how is None:
        yield
    elif how is FaultName.ENOSPC:
        with _full(db):
            yield
    else:
        with _taking(0 if how is FaultName.EIO else PART_BYTES):
            yield


def empty_log(db: sqlite3.Connection) -> None:
    """Begins the write-ahead log anew, outside of any transaction."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@contextmanager
def _full(db: sqlite3.Connection) -> Iterator[None]:
    (before,) = db.execute("PRAGMA max_page_count").fetchone()
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {int(pages)}").fetchall()
    try:
        db.execute("CREATE TABLE filler AS SELECT zeroblob(?) AS filling", (FILLER_BYTES,))
        yield
    finally:
        db.execute(f"PRAGMA max_page_count = {int(before)}").fetchall()


@contextmanager
def _taking(nbytes: int) -> Iterator[None]:
    """No file of this process takes a byte beyond its first `nbytes`: the kernel cuts the write that reaches there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
