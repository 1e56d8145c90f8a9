"""A minimal controller, gateway and fleet for scenarios of hosts: everything over the real RPC, decisions in ten lines.

`Hall` keeps hosts in this process, `Processes` as processes of their own; both give a `Stage` with one connection to
each.
"""

import asyncio
import contextlib
import secrets
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from worldline.clock import SystemClock
from worldline.errors import HostGone, WorldlineError
from worldline.runtime import messages as wire
from worldline.runtime import rpc
from worldline.runtime.host_service import Host, HostConfig
from worldline.runtime.messages import Act, Attach, Block, HostFacts, SessionFacts, SessionSpec, ToHost
from worldline.runtime.run_dir import host_socket, make_run_dir
from worldline.schema.contract import Contract
from worldline.schema.receipt import Mode, Receipt
from worldline.transport.registry import open_transport

TINY = "worldline.testing.tiny:TinyWorld"
WAIT_S = 60
NOTICES = wire.Progress | wire.SessionFailed | wire.Rejected | Block


def spec(world=TINY, seed=7, contract=None, **options):
    return SessionSpec(world, seed, options, contract or Contract(pause_bound_s=20.0, completion_deadline_s=60.0))


@dataclass
class Player:
    """A gateway's part: numbered actions in, blocks out, in order, over changes of owner."""

    session: str
    actions: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    sent: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, block):
        if block.block == len(self.blocks) + 1:
            self.blocks.append(block)
            self.arrived.set()

    async def wait_for(self, block):
        async with asyncio.timeout(WAIT_S):
            while len(self.blocks) < block:
                self.arrived.clear()
                await self.arrived.wait()


class Stage:
    """Connections to some hosts, and who owns which session with which epoch."""

    def __init__(self):
        self.peers = {}
        self.owners = {}
        self.players = {}
        self.notices = []

    async def connect(self, name, path):
        self.peers[name] = await rpc.connect(path, NOTICES, self._on_notice, HostGone(f"host {name} is gone"))

    async def close(self):
        for peer in self.peers.values():
            await peer.close()

    async def _on_notice(self, _, notice):
        if isinstance(notice, Block):
            player = self.players.get(notice.session)
            if player is not None:
                player.take(notice)
        else:
            self.notices.append(notice)

    async def call(self, host, message, answer=None):
        return await self.peers[host].call(message, answer, WAIT_S)

    async def facts(self, host):
        return await self.call(host, wire.Describe(), HostFacts)

    # ---- play

    async def open(self, session, host, what=None, witness=True, raw=False):
        what = what or spec()
        facts = await self.call(host, wire.OpenSession(session, 1, what, witness), SessionFacts)
        self.owners[session] = (host, 1, what, witness)
        self.players[session] = Player(session)
        await self.attach(session, raw)
        return facts

    async def attach(self, session, raw=False):
        host, epoch, *_ = self.owners[session]
        player = self.players[session]
        facts = await self.call(host, Attach(session, epoch, raw=raw, after=len(player.blocks)), SessionFacts)
        for number in range(facts.number + 1, player.sent + 1):
            self.peers[host].notify(Act(session, epoch, number, player.actions[number - 1]))
        return facts

    def act(self, session, action):
        host, epoch, *_ = self.owners[session]
        player = self.players[session]
        player.actions.append(action)
        player.sent += 1
        self.peers[host].notify(Act(session, epoch, player.sent, action))

    async def play(self, session, blocks):
        """Plays `blocks` more, one at a time."""
        for _ in range(blocks):
            self.act(session, len(self.players[session].actions) % 5)
            await self.players[session].wait_for(self.players[session].sent)

    # ---- the controller's part

    async def prepare(self, session, target, transport, mode=Mode.PRECOPY, fault=None, **change):
        move = f"m{secrets.token_hex(4)}"
        source, epoch, what, witness = self.owners[session]
        (facts,) = [found for found in (await self.facts(source)).sessions if found.session == session]
        order = {
            "move": move,
            "session": session,
            "epoch": epoch,
            "spec": what,
            "witness": witness,
            "source": source,
            "target": target,
            "mode": mode,
            "transport": transport,
            "state_bytes": facts.state_bytes,
            "source_plan": facts.plan,
            "qualification": None,
            "fault": fault,
        }
        endpoint = await self.call(target, wire.PrepareTarget(**(order | change)), wire.Endpoint)
        return move, endpoint

    async def move(self, session, target, transport, mode=Mode.PRECOPY, fault=None, codec="auto", **change):
        """The whole move. On a refusal target and source are put in order, and the refusal is raised."""
        source, epoch, *_ = self.owners[session]
        move, endpoint = await self.prepare(session, target, transport, mode, fault, **change)
        proof = asyncio.create_task(self.call(target, wire.AwaitPrepared(move), Receipt))
        try:
            seal = await self.call(
                source, wire.RunSource(move, session, epoch, mode, endpoint, fault, codec=codec), wire.SourceSealed
            )
            receipt = await proof
            assert receipt.source_root == receipt.target_root == seal.root
            assert receipt.epoch == epoch + 1
        except WorldlineError:
            proof.cancel()
            await asyncio.gather(proof, return_exceptions=True)
            with contextlib.suppress(HostGone):
                await self.call(target, wire.Discard(move))
            await self.call(source, wire.Thaw(move, session))
            raise
        await self.commit(session, move, target, transport)
        return receipt, seal

    async def commit(self, session, move, target, transport):
        source, epoch, what, witness = self.owners[session]
        self.owners[session] = (target, epoch + 1, what, witness)  # the swap
        retire, activate = wire.Retire(move, session, epoch), wire.Activate(move, epoch + 1)
        if transport == "shm":
            await self.call(source, retire)
            await self.call(target, activate, SessionFacts)
        else:
            await self.call(target, activate, SessionFacts)
            await self.call(source, retire)
        await self.attach(session)


@contextlib.asynccontextmanager
async def hall(run_dir, *names, memory_bytes=4_000_000_000, allow_faults=True):
    """Hosts in this process: `stage.hosts` are the objects themselves, `stage.transports` what they move by."""
    stage = Stage()
    stage.hosts, stage.servers, stage.transports = {}, {}, {}
    images = make_run_dir(make_run_dir(run_dir / "run") / "images")
    try:
        for name in names:
            transports = {kind: open_transport(kind) for kind in ("shm", "tcp", "memory")}
            host = Host(HostConfig(name, memory_bytes, images, allow_faults), transports, SystemClock())
            stage.hosts[name], stage.transports[name] = host, transports
            path = host_socket(run_dir / "run", name)
            stage.servers[name] = await rpc.serve(path, ToHost, host.handle, host.closed)
            await stage.connect(name, path)
        yield stage
    finally:
        await stage.close()
        for server in stage.servers.values():
            await server.close()
        for host in stage.hosts.values():
            await host.close()


def start(run_dir, *names, arguments=()):
    """Host processes by name, ready or not; their logs lie beside the run directory."""
    started = {}
    for name in names:
        command = ["-m", "worldline.runtime.host", "--name", name, "--dir", str(run_dir / "run")]
        options = ["--memory", "3GB", "--faults", "--die-with-parent", *arguments]
        with (run_dir / f"{name}.log").open("wb") as log:
            started[name] = subprocess.Popen([sys.executable, *command, *options], stdout=subprocess.PIPE, stderr=log)
    return started


def stop(started):
    """SIGTERM to those that still run, and the end of all."""
    for process in started.values():
        if process.poll() is None:
            process.terminate()
    for process in started.values():
        process.wait(WAIT_S)
        process.stdout.close()


@contextlib.asynccontextmanager
async def connected(run_dir, started):
    """A stage over host processes, once they listen: `stage.processes` has them by name."""
    stage = Stage()
    stage.processes = started
    try:
        for name in started:
            path = host_socket(run_dir / "run", name)
            async with asyncio.timeout(WAIT_S):
                while not path.exists() and started[name].poll() is None:  # noqa: ASYNC110 - a file tells nobody
                    await asyncio.sleep(0.02)
            assert started[name].poll() is None, (run_dir / f"{name}.log").read_text()
            await stage.connect(name, path)
        yield stage
        for name, process in started.items():
            for found in (await stage.facts(name)).sessions if process.poll() is None else ():
                await stage.call(name, wire.CloseSession(found.session, found.epoch))
    finally:
        await stage.close()


@contextlib.asynccontextmanager
async def processes(run_dir, *names, arguments=()):
    """`start`, `connected` and `stop` in one."""
    started = start(run_dir, *names, arguments=arguments)
    try:
        async with connected(run_dir, started) as stage:
            yield stage
    finally:
        await asyncio.to_thread(stop, started)


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))
