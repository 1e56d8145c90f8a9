"""The start of every process of a fleet: it ends when its supervisor ends, however that happens.

    python -m worldline.runtime.fleet_child SUPERVISOR_PID MODULE [ARGUMENT...]

The kernel sends SIGKILL when the supervisor's thread that started this process is gone (`PR_SET_PDEATHSIG`), so that
a killed supervisor leaves no host behind that would own a session nobody can reach.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with(supervisor_pid: int) -> None:
    """From here on this process does not outlive `supervisor_pid`, its parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != supervisor_pid:  # it ended before the call above
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
