"""The run directory: where the processes of a fleet find each other. Closed to all but its user."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from worldline.errors import BadValue

GATEWAY_ADDRESS = "gateway.address"
"""The file in which the gateway tells its address once it listens."""


def make_run_dir(path: Path) -> Path:
    """Creates `path` for this user alone, or checks that it is. Raises `BadValue` where it can't be made or others may
    enter.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadValue(f"the folder {path} can't be made: {error.strerror}") from error
    found = path.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise BadValue(f"{path} must belong to this user and be closed to others (mode 0700)")
    return path


def controller_socket(run_dir: Path) -> Path:
    """Where the controller listens."""
    return run_dir / "controller.sock"


def host_socket(run_dir: Path, host: str) -> Path:
    """Where a host listens."""
    return run_dir / f"host-{host}.sock"


def hosts_in(run_dir: Path) -> Iterator[str]:
    """Names of the hosts that listen, or did and ended without a word."""
    for socket in run_dir.glob("host-*.sock"):
        yield socket.name.removeprefix("host-").removesuffix(".sock")
