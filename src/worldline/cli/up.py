"""`worldline up`: a fleet on this machine."""

from __future__ import annotations

import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingDirectory, ExistingFile

from worldline.cli.output import print_json, progress
from worldline.errors import BadValue
from worldline.lab.check import check_fleet
from worldline.runtime.face import Face
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan, lettered_hosts
from worldline.service.client import Client
from worldline.service.tokens import Token
from worldline.units import format_bytes, parse_bytes, parse_rate

RUN_DIR = Path(".worldline")
PORT = 8700
PORT_MAX = 65_535
MEMORY_BYTES_MIN = 1 << 20


def up(
    *,
    hosts: int = 3,
    port: int = PORT,
    listen: str = Face().address,
    name: Annotated[tuple[str, ...], Parameter(name="--name", negative="")] = (),
    token_file: ExistingFile | None = None,
    tls_cert: ExistingFile | None = None,
    tls_key: ExistingFile | None = None,
    tls: ExistingDirectory | None = None,
    dir: Path | None = None,
    memory: str | None = None,
    port_rate: str | None = None,
    move_cores: float | None = None,
    plan: Annotated[tuple[str, ...], Parameter(name="--plan", negative="")] = (),
    world: Annotated[tuple[str, ...], Parameter(name="--world", negative="")] = (),
    faults: bool = True,
    check: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Starts a controller with its gateway and hosts, each a process of its own, and prints one address.

    Runs until interrupted, then ends them all. Sessions that were parked are there again at the next start.

    Parameters
    ----------
    hosts: int
        How many; they are named a, b, c ...
    port: int
        Of the gateway; 0 takes any free one.
    listen: str
        The gateway's address. Any but a loopback one needs --token-file, --tls-cert and --tls-key.
    name: str
        A name under which clients reach the gateway, beside its address and localhost; may be repeated.
    token_file: Path
        Its one line, 16 characters or more, is the token that clients must show (--token, WORLDLINE_TOKEN); mode 0600.
    tls_cert: Path
        The gateway's certificate, with its chain, for https.
    tls_key: Path
        The certificate's key.
    tls: Path
        A folder of `worldline fleet certs` with a certificate for each host: moves over tcp are then mutual TLS.
    dir: Path
        Sockets, record, images and logs; .worldline here by default.
    memory: str
        What each host may use for sessions, like 4GB; by default a quarter of the machine's.
    port_rate: str
        What each host's port carries each way, like 1GB/s or 10Gbit: moves over it are then promised by a calendar, or
        refused with the time at which they would be, and their sources send under its grants alone.
    move_cores: float
        Processors that the work of moves (sending, receiving, codecs, digests) may take on each host while a session
        plays there; by default half of the machine's. Nothing holds it back while a session is frozen for a move.
    plan: str
        A host on another kernel plan, as HOST=CAPABILITY (default, avx2), like c=default; may be repeated. Under T0
        no session moves between it and the others.
    world: str
        A world of your own at module:factory that may be opened beside those of `worldline worlds`; may be repeated.
    faults: bool
        Accept planted faults and sabotage, for the page's panel and for trying things out.
    check: bool
        Start, play, move and compare once on any free port, in a temporary folder, and end.
    json: bool
        Print one JSON object: with the address, or with what was checked.
    """
    face = Face(listen, name, *(path and path.resolve() for path in (token_file, tls_cert, tls_key)))
    face.check_tls()
    if face.token_file is not None:
        Token.read(face.token_file)
    if not 0 <= port <= PORT_MAX:
        raise BadValue(f"a port is 0 to {PORT_MAX}, and is {port}", port=port)
    names = lettered_hosts(hosts)
    memory_bytes = None if memory is None else parse_bytes(memory)
    if memory_bytes is not None and memory_bytes < MEMORY_BYTES_MIN:
        raise BadValue(
            f"--memory {memory} is {format_bytes(memory_bytes)}, which holds no session: write 4GB or the like"
        )
    capabilities = dict(_capability(pair) for pair in plan)
    found = FleetPlan(
        hosts=names,
        run_dir=dir or RUN_DIR,
        port=port,
        faults=faults,
        memory_bytes=memory_bytes,
        port_bytes_per_s=None if port_rate is None else parse_rate(port_rate),
        move_cores=move_cores,
        worlds=world,
        cpu_capabilities=capabilities,
        face=face,
        tls=tls and tls.resolve(),
    )
    if check:
        with tempfile.TemporaryDirectory(prefix="worldline-check-") as folder:
            return _check(replace(found, run_dir=Path(folder), port=0, faults=True, face=Face()), json)
    return _serve(found, json)


def _capability(pair: str) -> tuple[str, str]:
    host, equals, capability = pair.partition("=")
    if not (host and equals and capability):
        raise BadValue(f"a plan is written HOST=CAPABILITY, like c=default, not {pair!r}")
    return host, capability


def _serve(plan: FleetPlan, as_json: bool) -> int:
    over = Event()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: either ends the start in the middle
    progress(f"starting a controller, a gateway and hosts {', '.join(plan.hosts)} ...")
    with Fleet.start(plan) as fleet:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        if as_json:
            print_json({"url": fleet.url, "hosts": list(plan.hosts), "dir": str(fleet.run_dir)})
        else:
            print(fleet.url, flush=True)
        progress("open the address in a browser; Ctrl-C ends the fleet")
        over.wait()
        progress("ending")
    return 0


def _check(plan: FleetPlan, as_json: bool) -> int:
    with Fleet.start(plan) as fleet, Client(fleet.url) as client:
        report = check_fleet(client, plan.hosts, progress if as_json else _held)
    if as_json:
        print_json(report)
    return 0


def _held(step: str) -> None:
    print(f"  ok  {step}", flush=True)
