"""Unix sockets between processes of one user."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

from worldline.errors import BadValue, Unauthenticated

PATH_BYTES_MAX = 107
BACKLOG = 16
QUEUE_FULL_S = 0.005
"""Before the next try to connect."""
_CREDENTIALS = struct.Struct("3i")


def private_listener() -> tuple[socket.socket, str, Callable[[], None]]:
    """A non-blocking listening socket in a directory that this user alone may enter, its path, and what removes it."""
    directory = Path(tempfile.mkdtemp(prefix="worldline-"))  # mode 0700

    def clean_up() -> None:
        shutil.rmtree(directory, ignore_errors=True)

    path = str(directory / "link")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        check_path(path)
        sock.setblocking(False)
        sock.bind(path)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        clean_up()
        raise
    return sock, path, clean_up


def check_path(path: str) -> None:
    """Raises `BadValue`."""
    if not path.startswith("/") or "\0" in path:
        raise BadValue(f"a link on one machine goes to the path of a Unix socket, not to {path[:80]!r}")
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise BadValue(f"the path of a Unix socket has at most {PATH_BYTES_MAX} bytes; set TMPDIR to a shorter one")


async def connect_to(sock: socket.socket, path: str) -> None:
    """A Unix socket whose queue is full says EAGAIN, which means "not yet" and never becomes "connected" by itself."""
    while True:
        try:
            sock.connect(path)
        except BlockingIOError:
            await asyncio.sleep(QUEUE_FULL_S)
        else:
            return


def check_same_user(sock: socket.socket) -> None:
    """Asks the kernel who the other side is. Raises `Unauthenticated` for a process of another user."""
    _, uid = _credentials(sock)
    if uid != os.geteuid():
        raise Unauthenticated(f"the peer runs as user {uid}, and this process as user {os.geteuid()}", uid=uid)


def peer_pid(sock: socket.socket) -> int:
    """The process that connected, or listened, at the other side."""
    return _credentials(sock)[0]


def _credentials(sock: socket.socket) -> tuple[int, int]:
    """The other side's process and user."""
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid
