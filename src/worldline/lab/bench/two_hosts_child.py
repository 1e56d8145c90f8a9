"""One host of a bench, as a process of its own: `python -m worldline.lab.bench.two_hosts_child DIR NAME LANES`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from worldline.clock import SystemClock
from worldline.runtime.host import prepare_torch

MEMORY_BYTES = 1 << 36
"""More than a bench uses: the pair's memory is the person's to watch."""


async def serve(folder: Path, name: str, lanes: int) -> None:
    """Until SIGTERM."""
    from worldline.lab.bench.shm_copy import ShmCopyTransport
    from worldline.runtime import rpc
    from worldline.runtime.host_service import Host, HostConfig
    from worldline.runtime.messages import ToHost
    from worldline.runtime.run_dir import host_socket, make_run_dir
    from worldline.transport.registry import open_transport

    run_dir = make_run_dir(folder)
    transports = {kind: open_transport(kind) for kind in ("shm", "tcp")} | {"shm-copy": ShmCopyTransport()}
    config = HostConfig(name, MEMORY_BYTES, make_run_dir(run_dir / "images"), allow_faults=False, lanes=lanes)
    host = Host(config, transports, SystemClock())
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await rpc.serve(host_socket(run_dir, name), ToHost, host.handle, host.closed)
    print("listens", flush=True)  # noqa: T201 - whoever started us waits for it
    await ended.wait()
    await server.close()
    await host.close()


def main() -> None:
    """See the module."""
    folder, name, lanes = sys.argv[1:]
    prepare_torch(None)
    asyncio.run(serve(Path(folder), name, int(lanes)))
    os._exit(0)  # as a host ends: what the interpreter would still do is take torch apart


if __name__ == "__main__":
    main()
