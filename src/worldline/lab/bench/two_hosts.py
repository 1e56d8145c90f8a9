"""Two hosts in processes of their own and one session that plays without end between them, moved by the bench itself.

The bench is controller and gateway at once: no store, no HTTP. A pause is what the contract calls one: from the last
boundary at the source to the target's answer that it plays, by the machine's one monotonic clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from worldline.clock import Clock
from worldline.errors import HostGone, Internal, TimedOut
from worldline.runtime import messages as wire
from worldline.runtime import rpc
from worldline.runtime.messages import Act, Attach, Block, HostFacts, SessionFacts, SessionSpec
from worldline.runtime.rpc_peer import Peer
from worldline.runtime.run_dir import host_socket
from worldline.schema.contract import Contract
from worldline.schema.plan import Plan
from worldline.schema.receipt import Mode, Receipt
from worldline.worlds.protocol import OptionValue

NAMES = ("a", "b")
CALL_S = 120.0
START_S = 180.0
GRANT_S = 0.2
AHEAD = 2
"""Actions that wait at the owner, so that the session never stands idle."""
SESSION = "w"
NOTICES = wire.Progress | wire.SessionFailed | wire.Rejected | Block


@dataclass(frozen=True, slots=True)
class Moved:
    """One committed move. `fence_s`: the source's answer to its retirement, within the pause where memory is shared."""

    pause_s: float
    sealed_s: float
    """From the boundary to the source's seal."""
    proven_s: float
    """To the target's receipt, installation included."""
    fence_s: float
    began_at_s: float
    ended_at_s: float
    receipt: Receipt

    @property
    def took_s(self) -> float:
        """The whole attempt, listening included."""
        return self.ended_at_s - self.began_at_s


@dataclass(slots=True)
class Pair:
    """The session and its owner. Made by `two_hosts`."""

    peers: Mapping[str, Peer]
    clock: Clock
    spec: SessionSpec
    owner: str = NAMES[0]
    epoch: int = 1
    sent: int = 0
    made: int = 0
    block_at_s: list[float] = field(default_factory=list)
    """When each block came."""
    playing: bool = False
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    async def on_notice(self, _: Peer, notice: object) -> None:
        """A block, or what ends the bench."""
        match notice:
            case Block(epoch=epoch) if epoch == self.epoch:
                self.made = notice.number
                self.block_at_s.append(self.clock.monotonic_s())
                self._came.set()
                self._act()
            case wire.SessionFailed() | wire.Rejected():
                raise Internal(f"the bench's session: {notice}")
            case _:
                pass

    async def open(self) -> None:
        await self.peers[self.owner].call(wire.OpenSession(SESSION, 1, self.spec, False), SessionFacts, CALL_S)
        await self._attach()

    async def blocks(self, count: int) -> None:
        """Returns when so many more have come; the session plays on after that."""
        self.playing = True
        self._act()
        until = self.made + count
        while self.made < until:
            await self._one_block()

    async def still(self) -> None:
        """Returns when every action sent is applied; no other follows."""
        self.playing = False
        while self.made < self.sent:
            await self._one_block()

    async def _one_block(self) -> None:
        self._came.clear()
        async with _within(CALL_S, "no block came"):
            await self._came.wait()

    async def move(self, transport: str, mode: Mode, bytes_per_s: float | None = None) -> Moved:
        """To the other host, its source granted `bytes_per_s`, or whatever it can send. Raises what refuses it."""
        source, target = self.owner, next(name for name in NAMES if name != self.owner)
        move = f"m{secrets.token_hex(4)}"
        facts = await self.peers[source].call(wire.Describe(), HostFacts, CALL_S)
        (session,) = facts.sessions
        order = wire.PrepareTarget(
            move=move,
            session=SESSION,
            epoch=self.epoch,
            spec=self.spec,
            witness=False,
            source=source,
            target=target,
            mode=mode,
            transport=transport,
            state_bytes=session.state_bytes,
            source_plan=session.plan,
            qualification=None,
        )
        began_s = self.clock.monotonic_s()
        endpoint = await self.peers[target].call(order, wire.Endpoint, CALL_S)
        proof = asyncio.create_task(self.peers[target].call(wire.AwaitPrepared(move), Receipt, CALL_S))
        grant_bytes = None if bytes_per_s is None else round(bytes_per_s * GRANT_S / 2)
        run = wire.RunSource(move, SESSION, self.epoch, mode, endpoint, grant_bytes=grant_bytes)
        granting = asyncio.create_task(self._grant(source, move, bytes_per_s))
        try:
            seal = await self.peers[source].call(run, wire.SourceSealed, CALL_S)
            sealed_s = self.clock.monotonic_s() - seal.frozen_at_s
            receipt = await proof
        finally:
            granting.cancel()
            proof.cancel()  # once it has answered, nothing
        proven_s = self.clock.monotonic_s() - seal.frozen_at_s
        if not receipt.source_root == receipt.target_root == seal.root:
            raise Internal("the roots differ")
        fence_s = 0.0
        if transport == "shm":
            fence_s = await self._retire(source, move)
        await self.peers[target].call(wire.Activate(move, self.epoch + 1), SessionFacts, CALL_S)
        pause_s = self.clock.monotonic_s() - seal.frozen_at_s
        if transport != "shm":
            fence_s = await self._retire(source, move)
        self.owner, self.epoch = target, self.epoch + 1
        await self._attach()
        return Moved(pause_s, sealed_s, proven_s, fence_s, began_s, self.clock.monotonic_s(), receipt)

    async def _grant(self, source: str, move: str, bytes_per_s: float | None) -> None:
        """Again and again, in the controller's place."""
        while bytes_per_s is not None:
            self.peers[source].notify(wire.Grant(move, bytes_per_s, GRANT_S))
            await asyncio.sleep(GRANT_S / 4)

    async def _retire(self, source: str, move: str) -> float:
        began_s = self.clock.monotonic_s()
        await self.peers[source].call(wire.Retire(move, SESSION, self.epoch), None, CALL_S)
        return self.clock.monotonic_s() - began_s

    async def _attach(self) -> None:
        wish = Attach(SESSION, self.epoch, raw=False, after=self.made, frames=False)
        facts = await self.peers[self.owner].call(wish, SessionFacts, CALL_S)
        self.made = max(self.made, facts.number)
        for number in range(facts.number + 1, self.sent + 1):
            self.peers[self.owner].notify(Act(SESSION, self.epoch, number, number % 5))

    def _act(self) -> None:
        while self.playing and self.sent < self.made + AHEAD:
            self.sent += 1
            self.peers[self.owner].notify(Act(SESSION, self.epoch, self.sent, self.sent % 5))


@contextlib.asynccontextmanager
async def _within(seconds: float, what: str) -> AsyncIterator[None]:
    """Raises `TimedOut` where the body takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"{what} within {seconds:.0f} s: the machine is too busy for a bench") from None


@contextlib.asynccontextmanager
async def two_hosts(
    folder: Path, world: str, options: dict[str, OptionValue], clock: Clock, lanes: int = 1
) -> AsyncIterator[Pair]:
    """Starts both hosts and opens the session on the first; ends all of it."""
    contract = Contract(pause_bound_s=30.0, completion_deadline_s=CALL_S)
    peers: dict[str, Peer] = {}
    made = Pair(peers, clock, SessionSpec(world, 7, options, contract))
    children: list[subprocess.Popen[str]] = []
    try:
        for name in NAMES:
            command = [sys.executable, "-m", "worldline.lab.bench.two_hosts_child", str(folder), name, str(lanes)]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - nothing else runs yet
            children.append(child)
        for name, child in zip(NAMES, children, strict=True):
            assert child.stdout is not None, "it is a pipe"
            async with _within(START_S, f"host {name} did not start"):
                await asyncio.to_thread(child.stdout.readline)
            gone = HostGone(f"host {name} is gone")
            peers[name] = await rpc.connect(host_socket(folder, name), NOTICES, made.on_notice, gone)
        for peer in peers.values():
            await peer.call(wire.PlanOf(made.spec), Plan, CALL_S)
        await made.open()
        yield made
    finally:
        made.playing = False
        for peer in peers.values():
            await peer.close()
        for child in children:
            child.terminate()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
