"""What a process holds, read from /proc: what must be as it was when everything it did is over.

Invariant: a process of a fleet that has served before holds no more descriptors, threads, shared-memory files and
memory than it held after its first runs. A process that was started meanwhile is another one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

RUNS_BEFORE = 3
"""Censuses of a process that set what it may hold: caches fill, and threads that stay are begun."""
SPARE_FILES = 6
"""Connections of others come and go, and one more may be on its way out."""
SPARE_THREADS = 4
SPARE_BYTES = 64 << 20
"""Allocators keep what was freed."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Of one process."""

    files: int
    threads: int
    shared: int
    """Shared-memory files, open or mapped."""
    own_bytes: int
    """Resident memory without files, whose pages come when they are first looked at."""


def holding(pid: int) -> Holding | None:
    """None where the process has ended."""
    proc = Path(f"/proc/{pid}")
    try:
        files = list((proc / "fd").iterdir())
        shared = {inode for entry in files if (inode := _shared_inode(entry)) is not None}
        maps = (line.split(maxsplit=5) for line in (proc / "maps").read_text().splitlines() if "/memfd:" in line)
        shared |= {int(mapped[4]) for mapped in maps}
        threads = len(list((proc / "task").iterdir()))
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        own_bytes = 1024 * int(status["RssAnon"].split()[0])
    except (OSError, KeyError):
        return None
    return Holding(len(files), threads, len(shared), own_bytes)


def _shared_inode(entry: Path) -> int | None:
    """Of an open shared-memory file; None for another file, and for one that was closed meanwhile."""
    try:
        return entry.stat().st_ino if os.readlink(entry).startswith("/memfd:") else None  # noqa: PTH115 - no path
    except OSError:
        return None


@dataclass(slots=True)
class Census:
    """Of all processes of a fleet, by pid."""

    _first: dict[int, list[Holding]] = field(default_factory=dict)

    def leaks(self, members: dict[str, int]) -> list[str]:
        """What members, by name and pid, hold beyond what they held at first. Nobody is at work now."""
        found: list[str] = []
        for name, pid in members.items():
            now = holding(pid)
            if now is None:
                continue
            first = self._first.setdefault(pid, [])
            if len(first) < RUNS_BEFORE:
                continue
            found += [f"{name}: {line}" for line in _beyond(now, first)]
        return found

    def settle(self, members: dict[str, int]) -> None:
        """These holdings are right, as far as is known."""
        for pid in members.values():
            first, now = self._first.setdefault(pid, []), holding(pid)
            if len(first) < RUNS_BEFORE and now is not None:
                first.append(now)


def _beyond(now: Holding, first: list[Holding]) -> list[str]:
    found = []
    for what, spare in (
        ("files", SPARE_FILES),
        ("threads", SPARE_THREADS),
        ("shared", 0),
        ("own_bytes", SPARE_BYTES),
    ):
        most = max(getattr(one, what) for one in first)
        if getattr(now, what) > most + spare:
            found.append(f"{getattr(now, what)} {what}, and {most} at first")
    return found
