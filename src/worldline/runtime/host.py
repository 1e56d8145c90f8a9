"""The process of one host: `python -m worldline.runtime.host --name a --dir RUN_DIR --memory 4GB`.

Listens at RUN_DIR/host-NAME.sock and prints one line when it does. SIGTERM and SIGINT are an orderly end: every
engine thread joined, every arena unmapped, the socket gone. What decides the bits that torch computes is set here,
before torch is imported: it is part of the plan.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worldline.clock import SystemClock
from worldline.errors import BadValue, WorldlineError
from worldline.runtime.fleet_child import end_with
from worldline.runtime.fleet_plan import CPU_CAPABILITIES
from worldline.schema.ids import check_name
from worldline.units import parse_bytes
from worldline.verify.budget import check_cores

IMAGES = "images"
"""The directory of images, beside the sockets."""
KEYS = "keys"
"""The directory of the hosts' signing keys, beside the sockets: NAME.key is secret, NAME.pub is not."""
MEMORY_PART = 0.25
"""Of the machine's memory, where the host is not told how much it has."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the command line says, checked."""

    name: str
    run_dir: Path
    memory_bytes: int
    allow_faults: bool
    lanes: int
    move_cores: float | None
    cpu_capability: str | None
    die_with_parent: bool
    tls: Path | None = None
    """The folder of certificates; without it links are not encrypted and stay on loopback."""
    data_listen: str = "127.0.0.1"
    fabric_private: bool = False
    """`data_listen` is on an emulated fabric, and links there need no certificates if the kernel shows that it is."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the host until it is told to end. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        arguments = read_arguments(argv)
        if arguments.die_with_parent:
            end_with(os.getppid())
        prepare_torch(arguments.cpu_capability)
        asyncio.run(serve(arguments))
    except WorldlineError as error:
        log.error("%s: %s", error.code, error)  # noqa: TRY400 - a sentence for a person; the traceback says nothing more
        return error.exit_code
    return 0


def read_arguments(argv: Sequence[str] | None) -> Arguments:
    """Raises `BadValue`; what argparse itself refuses ends the process with status 2."""
    parser = argparse.ArgumentParser(prog="worldline.runtime.host", description="One host of a fleet.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--dir", required=True, type=Path, help="run directory: sockets and images")
    parser.add_argument("--memory", help="what sessions may use, as 4GB")
    parser.add_argument("--memory-bytes", type=int)
    parser.add_argument("--faults", "--allow-faults", action="store_true", help="accept planted faults and sabotage")
    parser.add_argument("--lanes", type=int, default=1, help="threads that digest what arrives")
    parser.add_argument(
        "--move-cores", type=float, help="processors that moves may take while a session plays here; else half of them"
    )
    parser.add_argument("--cpu-capability", choices=CPU_CAPABILITIES, help="which of torch's kernels to use")
    parser.add_argument("--die-with-parent", action="store_true")
    parser.add_argument("--tls", type=Path, help="a folder of `worldline fleet certs`: tcp links are mutual TLS")
    parser.add_argument("--data-listen", default="127.0.0.1", help="where tcp links are taken; with --tls any address")
    parser.add_argument(
        "--fabric-private", action="store_true", help="--data-listen without --tls, on an emulated fabric alone"
    )
    read = parser.parse_args(argv)
    memory_bytes = parse_bytes(read.memory) if read.memory else read.memory_bytes or _default_memory_bytes()
    if memory_bytes <= 0 or not 1 <= read.lanes <= 64:
        raise BadValue("a host needs memory, and 1 to 64 lanes")
    if read.move_cores is not None:
        check_cores(read.move_cores)
    return Arguments(
        name=check_name(read.name, "the host"),
        run_dir=read.dir,
        memory_bytes=memory_bytes,
        allow_faults=read.faults,
        lanes=read.lanes,
        move_cores=read.move_cores,
        cpu_capability=read.cpu_capability,
        die_with_parent=read.die_with_parent,
        tls=read.tls,
        data_listen=read.data_listen,
        fabric_private=read.fabric_private,
    )


def prepare_torch(cpu_capability: str | None) -> None:
    """One thread, deterministic algorithms, and the kernels asked for. Must run before torch is imported anywhere.

    What torch is made of is then left out of garbage collections: a whole one took 0.15 s, often within a pause.
    """
    assert "torch" not in sys.modules, "torch has chosen its kernels already"
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    if cpu_capability is not None:
        os.environ["ATEN_CPU_CAPABILITY"] = cpu_capability
    import torch

    from worldline.worlds.plan import be_deterministic

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    be_deterministic()
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs a pass, hides bugs
    torch.set_grad_enabled(False)
    gc.collect()
    gc.freeze()


def _tell_of_the_watch(name: str) -> None:
    """A host that can't see which pages are written reads every state whole, at every boundary: exact, and slower."""
    from worldline.snapshot.arena import PAGE_BYTES, Arena

    with Arena.create(PAGE_BYTES, "probe") as arena:
        if arena.watch() is None:
            log.warning("host %s can't watch writes (userfaultfd, PAGEMAP_SCAN): every boundary is read whole", name)


async def serve(arguments: Arguments) -> None:
    """Listens until SIGTERM or SIGINT."""
    from worldline.runtime import rpc
    from worldline.runtime.host_service import Host, HostConfig
    from worldline.runtime.messages import ToHost
    from worldline.runtime.run_dir import host_socket, make_run_dir
    from worldline.transport.registry import FLEET, open_transport
    from worldline.transport.tcp import TcpTransport
    from worldline.transport.tls import TlsIdentity
    from worldline.verify.signing import SigningKey

    run_dir = make_run_dir(arguments.run_dir)
    image_dir = make_run_dir(run_dir / IMAGES)
    config = HostConfig(
        name=arguments.name,
        memory_bytes=arguments.memory_bytes,
        image_dir=image_dir,
        allow_faults=arguments.allow_faults,
        lanes=arguments.lanes,
        move_cores=arguments.move_cores,
        signing=SigningKey.load_or_make(make_run_dir(run_dir / KEYS), arguments.name),
    )
    transports = {name: open_transport(name) for name in FLEET}
    identity = None if arguments.tls is None else TlsIdentity(arguments.tls, arguments.name)
    transports["tcp"] = TcpTransport(identity, arguments.data_listen, fabric_private=arguments.fabric_private)
    host = Host(config, transports, SystemClock())
    _tell_of_the_watch(arguments.name)
    ended = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, ended.set)
    server = await rpc.serve(host_socket(run_dir, arguments.name), ToHost, host.handle, host.closed)
    try:
        with contextlib.suppress(BrokenPipeError):
            print(f"host {arguments.name} listens at {server.path}", flush=True)  # noqa: T201 - whoever started us waits for it
        await ended.wait()
    finally:
        await server.close()
        await host.close()
    log.info("host %s has ended in order", arguments.name)


def _default_memory_bytes() -> int:
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY_PART)


if __name__ == "__main__":
    code = main()
    # Everything of ours is closed by now. What the interpreter would still do is take torch apart, for seconds.
    logging.shutdown()
    os._exit(code)
