"""The start of a program inside a network namespace that only a file descriptor holds.

    python -m worldline.runtime.network_child PARENT_PID NAMESPACE_FD PROGRAM [ARGUMENT...]

The program ends when its parent ends, however that happens, and then nothing holds the namespace any more.
"""

from __future__ import annotations

import ctypes
import os
import sys

from worldline.runtime.fleet_child import end_with

_CLONE_NEWNET = 0x40000000


def enter_network(namespace_fd: int) -> None:
    """The calling thread's sockets are made in that namespace from here on. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace_fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{os.strerror(code)}: entering a network namespace")


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    enter_network(int(sys.argv[2]))
    os.close(int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
