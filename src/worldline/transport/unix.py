"""Unix sockets between processes of one user."""

from __future__ import annotations

import os
import socket
import struct

from worldline.errors import Unauthenticated

PATH_BYTES_MAX = 107
_CREDENTIALS = struct.Struct("3i")


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
