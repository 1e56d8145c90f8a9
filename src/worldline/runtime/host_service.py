"""A host: its sessions, and what it does with each message. The middle of the process, below its entry.

Invariants
  A session lives here under one epoch at a time; an order of another epoch has no effect on it.
  Memory is reserved before it is touched and given back after it was freed.
  Silence decides nothing: a lost controller or gateway changes no session.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from worldline.clock import Clock
from worldline.errors import AlreadyThere, BadValue, MoveInProgress, StaleEpoch, Unavailable, UnknownSession
from worldline.runtime import messages as wire
from worldline.runtime.host_engine import Engine
from worldline.runtime.host_memory import HostMemory
from worldline.runtime.host_moves import MoveDesk, Moves
from worldline.runtime.host_worlds import Built, Engines, MemoryLedger
from worldline.runtime.hosting import EngineThread, HostedSession, Identity
from worldline.runtime.rpc_peer import Peer
from worldline.schema.ids import check_name
from worldline.transport.protocol import Transport
from worldline.verify.budget import Budget, default_cores
from worldline.verify.lanes import Lanes
from worldline.verify.signing import SigningKey
from worldline.worlds.registry import known_worlds

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostConfig:
    """What a host is told at its start. `image_dir` is shared by the hosts of a fleet."""

    name: str
    memory_bytes: int
    image_dir: Path
    allow_faults: bool = False
    lanes: int = 1
    move_cores: float | None = None
    """What moves may take of the processors while a session plays here; None: half of them."""
    signing: SigningKey | None = None
    """With which receipts are signed; None: one that is new and ends with the process."""


class Host:
    """`handle` answers one message, `closed` hears of a lost peer, `close` ends everything."""

    def __init__(self, config: HostConfig, transports: Mapping[str, Transport], clock: Clock) -> None:
        self.config = config
        self.generation = secrets.token_hex(8)
        self.sessions: dict[str, HostedSession] = {}
        self.memory = HostMemory(MemoryLedger(config.memory_bytes))
        self._clock = clock
        self._engines = Engines(clock)
        budget = Budget(config.move_cores or default_cores(), self.moves_are_urgent, clock)
        self._lanes = Lanes(config.lanes, clock=clock, budget=budget)
        self._opening: set[str] = set()
        self._peers: set[Peer] = set()
        self._transports = transports
        self._signing = config.signing or SigningKey.generate()
        desk = MoveDesk(
            host=config.name,
            image_dir=config.image_dir,
            allow_faults=config.allow_faults,
            transports=transports,
            engines=self._engines,
            lanes=self._lanes,
            budget=budget,
            memory=self.memory,
            clock=clock,
            signing=self._signing,
        )
        self._moves = Moves(desk, self)

    async def handle(self, peer: Peer, message: wire.ToHost) -> object:
        """The answer to one message; what is raised is answered as an error."""
        self._peers.add(peer)
        match message:
            case wire.Act():
                self._act(peer, message)
            case wire.Attach():
                return self.session(message.session).attach(peer, message)
            case wire.Detach():
                self._detach(peer, message)
            case wire.Describe():
                return self.facts()
            case wire.PlanOf():
                return (await self._engines.get(message.spec)).plan
            case wire.OpenSession():
                return await self._open(message)
            case wire.Prewarm():
                return await self.memory.prewarm(message, self._engines, self._clock)
            case wire.CloseSession():
                await self._close_session(message)
            case wire.FlipBit():
                await self._flip(message)
            case _:
                return await self._moves.handle(peer, message)
        return None

    async def closed(self, peer: Peer) -> None:
        """A peer is gone: it watches nothing any more, and nothing else changes."""
        self._peers.discard(peer)
        for session in self.sessions.values():
            session.detach(peer)

    async def close(self) -> None:
        """Ends every attempt and session and joins every thread; the order is that of an orderly end."""
        await self._moves.close()
        for name in tuple(self.sessions):
            await self.forget(name)
        self.memory.close()
        self._lanes.close()
        self._engines.close()

    def facts(self) -> wire.HostFacts:
        return wire.HostFacts(
            host=self.config.name,
            pid=os.getpid(),
            generation=self.generation,
            memory_bytes=self.memory.ledger.limit_bytes,
            memory_used_bytes=self.memory.ledger.used_bytes,
            slot_bytes=self.memory.slot_bytes,
            worlds=sorted({*known_worlds(), *self._engines.names}),
            transports=sorted(self._transports),
            sessions=[session.facts() for session in self.sessions.values() if not session.closed],
            signer=self._signing.public,
            lane_bytes_per_s=self._lanes.rate_bytes_per_s,
            arrivals=self._moves.arrivals,
        )

    def moves_are_urgent(self) -> bool:
        """Whether moves may take all the processor time there is: one has a session frozen, or no session plays here.

        From any thread.
        """
        sessions = tuple(self.sessions.values())
        return not sessions or any(each.held_by is not None for each in sessions) or self._moves.awaited

    # ---- sessions, also for moves

    def session(self, name: str) -> HostedSession:
        """Raises `UnknownSession`: nothing is ever made in its place."""
        found = self.sessions.get(name)
        if found is None:
            raise UnknownSession(f"session {name[:80]!r} is not on host {self.config.name}", session=name[:80])
        return found

    def session_of(self, name: str, epoch: int) -> HostedSession:
        """The session, if it is here under `epoch`. Raises `UnknownSession`, `StaleEpoch`."""
        found = self.session(name)
        if found.identity.epoch != epoch:
            raise StaleEpoch(
                f"session {name} is here under epoch {found.identity.epoch}, not {epoch}",
                asked=epoch,
                here=found.identity.epoch,
            )
        return found

    def adopt(self, session: HostedSession) -> None:
        """Lets a session play here from now on. Its memory is in the ledger under its name already."""
        assert session.identity.session not in self.sessions, "one session, one place"
        self.sessions[session.identity.session] = session
        session.start()

    async def forget(self, name: str) -> None:
        """The session ends here: thread joined, arena unmapped, memory given back. Idempotent: of two who wait for the
        end one gives back, and a later session of that name keeps what it has.
        """
        session = self.sessions.get(name)
        if session is None:
            return
        await session.close()
        if self.sessions.get(name) is session:
            del self.sessions[name]
            self.memory.release(name)

    @contextlib.contextmanager
    def new_name(self, name: str) -> Iterator[None]:
        """Keeps a session's name while it comes into being. Raises `AlreadyThere`, `MoveInProgress`."""
        check_name(name, "the session")
        if name in self.sessions:
            raise AlreadyThere(f"session {name} is on host {self.config.name} already", session=name)
        if name in self._opening:
            raise MoveInProgress(f"session {name} is being opened", session=name)
        self._opening.add(name)
        try:
            yield
        finally:
            self._opening.discard(name)

    def tell_failed(self, failure: wire.SessionFailed) -> None:
        """Everybody who is connected may have to act on it."""
        for peer in tuple(self._peers):
            with contextlib.suppress(Unavailable):
                peer.notify(failure)

    # ---- verbs

    async def _open(self, order: wire.OpenSession) -> wire.SessionFacts:
        with self.new_name(order.session):
            built = await self._engines.get(order.spec)
            self.memory.reserve(order.session, built.world.state_bytes_max)
            thread = EngineThread(order.session)
            try:
                engine = await thread.do(lambda: self._open_engine(built, order))
            except BaseException:
                thread.join()
                self.memory.release(order.session)
                raise
            identity = Identity(order.session, order.epoch, order.spec, order.witness)
            self.adopt(HostedSession(identity, built, engine, thread, self.tell_failed))
        log.info("session %s epoch %d: opened in world %s", order.session, order.epoch, order.spec.world)
        return self.sessions[order.session].facts()

    def _open_engine(self, built: Built, order: wire.OpenSession) -> Engine:
        arena = self.memory.arena(order.session, built.world.state_bytes_max)
        try:
            return Engine.open(built.world, order.spec.seed, arena, self._clock, self._lanes)
        except BaseException:
            arena.close()
            raise

    async def _close_session(self, order: wire.CloseSession) -> None:
        found = self.sessions.get(order.session)
        if found is None:
            return
        if found.identity.epoch > order.epoch:
            raise StaleEpoch(f"session {order.session} is here under a later epoch than {order.epoch}")
        await self._moves.drop_session(order.session)
        await self.forget(order.session)
        log.info("session %s epoch %d: closed", order.session, order.epoch)

    async def _flip(self, order: wire.FlipBit) -> None:
        if not self.config.allow_faults:
            raise BadValue("this host was started without faults: it flips no bits")
        session = self.session(order.session)
        async with session.at_boundary():
            path = await session.do(lambda engine: engine.flip(order.bit))
        log.warning("session %s: one bit of %s was flipped, as asked", order.session, path)

    # ---- play

    def _act(self, peer: Peer, action: wire.Act) -> None:
        session = self.sessions.get(action.session)
        if session is None:
            sentence = f"session {action.session[:80]!r} is not on host {self.config.name}"
            rejected: wire.Rejected | None = wire.Rejected(
                action.session, action.epoch, action.number, action.number, UnknownSession.code, sentence
            )
        else:
            rejected = session.act(action)
        if rejected is not None:
            with contextlib.suppress(Unavailable):
                peer.notify(rejected)

    def _detach(self, peer: Peer, message: wire.Detach) -> None:
        session = self.sessions.get(message.session)
        if session is not None:
            session.detach(peer)
