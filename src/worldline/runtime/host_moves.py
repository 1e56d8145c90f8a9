"""Sessions on their way into a host and out of it, by link or by image, and the controller's words about them.

Invariants
  Memory is reserved before an arena is made, and given back after it is gone.
  A session comes into force here only by `Activate` with the epoch that its attempt leads to.
  Whatever is asked twice is answered twice the same, for as long as it is remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from worldline.clock import Clock
from worldline.control.admission import check_plans
from worldline.errors import (
    BadValue,
    Conflict,
    IncastRefused,
    Internal,
    MoveInProgress,
    NoCapacity,
    StaleEpoch,
    Unavailable,
    UnknownMove,
)
from worldline.runtime import messages as wire
from worldline.runtime.host_memory import HostMemory
from worldline.runtime.host_worlds import Built, Engines
from worldline.runtime.hosting import HostedSession, refuse_if_held
from worldline.runtime.imaging import ImageArrival, ImageDeparture, ImageTools
from worldline.runtime.mover_source import SourceRun, SourceTools
from worldline.runtime.mover_target import Landing, TargetAttempt, TargetTools
from worldline.runtime.rpc_peer import Peer
from worldline.schema.fault import Fault, Verb, parse_fault
from worldline.schema.receipt import Receipt
from worldline.snapshot.arena import Arena
from worldline.snapshot.memory import arena_capacity
from worldline.transport.coding import AUTO, check_choice
from worldline.transport.named_faults import PLANTED, plant
from worldline.transport.protocol import KEY_BYTES, Transport
from worldline.transport.tcp import TcpTransport
from worldline.units import format_bytes
from worldline.verify.budget import Budget
from worldline.verify.lanes import Lanes
from worldline.verify.signing import SigningKey

if TYPE_CHECKING:
    from worldline.runtime.host_service import Host

ARRIVALS_MAX = 8
"""Attempts that may be under way into one host at once."""
REMEMBERED_MAX = 256
"""Ended attempts whose outcome is still answered."""

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MoveDesk:
    """What moves need of their host."""

    host: str
    image_dir: Path
    allow_faults: bool
    transports: Mapping[str, Transport]
    engines: Engines
    lanes: Lanes
    budget: Budget
    memory: HostMemory
    clock: Clock
    signing: SigningKey


class Arrival(Protocol):
    """A session on its way in. `receipt` is its proof; `activate` makes it a session of this host, not yet playing."""

    receipt: asyncio.Future[Receipt]

    @property
    def over(self) -> bool: ...

    @property
    def awaited(self) -> bool:
        """Its session stands still meanwhile, as far as is known here."""
        ...

    async def activate(self, epoch: int) -> HostedSession: ...

    async def discard(self) -> None: ...

    async def drop(self) -> None: ...


class Departure(Protocol):
    """A session on its way out. After `thaw` it plays; after a `retire` that is True it is gone."""

    @property
    def over(self) -> bool: ...

    async def thaw(self, code: str, sentence: str) -> None: ...

    async def retire(self) -> bool: ...

    async def drop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Incoming:
    """`epoch` is the one that comes into force with the session."""

    arrival: Arrival
    session: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    departure: Departure
    session: str


class Moves:
    """All attempts of one host, by the move's id."""

    def __init__(self, desk: MoveDesk, host: Host) -> None:
        self._desk = desk
        self._host = host
        self._incoming: OrderedDict[str, Incoming] = OrderedDict()
        self._lately_under_way: tuple[Arrival, ...] = ()
        """Arrivals that were not over when the last one was added, and that one: each step of a move asks them."""
        self._outgoing: OrderedDict[str, Outgoing] = OrderedDict()
        self._given_up: OrderedDict[str, None] = OrderedDict()
        """Moves that the controller has called off: a call of theirs that arrives late begins nothing."""
        self._activating = asyncio.Lock()

    @property
    def arrivals(self) -> list[str]:
        """See `HostFacts`."""
        return [move for move, incoming in self._incoming.items() if not incoming.arrival.over]

    async def handle(self, peer: Peer, message: wire.ToHost) -> object:
        """The answer to a message about a move."""
        match message:
            case wire.PrepareTarget():
                return await self._prepare(message)
            case wire.RunSource():
                return await self._run_source(peer, message)
            case wire.AwaitPrepared():
                return await asyncio.shield(self._arriving(message.move).arrival.receipt)
            case wire.SourceEnded():
                self._source_ended(message)
            case wire.Grant():
                self._grant(message)
            case wire.Activate():
                return await self._activate(message)
            case wire.WriteImage():
                return await self._write_image(message)
            case wire.LoadImage():
                return await self._load_image(message)
            case wire.RemoveImage(image):
                await asyncio.to_thread(self._image_tools().remove, image)
            case wire.Discard():
                await self._discard(message)
            case wire.Retire():
                await self._retire(message)
            case wire.Thaw():
                await self._thaw(message)
            case _:
                raise Internal(f"a host does not know {type(message).__name__}")
        return None

    @property
    def awaited(self) -> bool:
        """Whether a session stands still until it is here. From any thread."""
        return any(arrival.awaited for arrival in self._lately_under_way)

    async def drop_session(self, session: str) -> None:
        """Ends what is under way out of here with a session that is being closed."""
        for outgoing in self._outgoing.values():
            if outgoing.session == session and not outgoing.departure.over:
                await outgoing.departure.drop()

    async def close(self) -> None:
        """Ends everything, for the end of the host."""
        for outgoing in self._outgoing.values():
            await outgoing.departure.drop()
        for incoming in self._incoming.values():
            await incoming.arrival.drop()

    # ---- in

    async def _prepare(self, order: wire.PrepareTarget) -> wire.Endpoint:
        transport = self._planted(order.transport, self._fault(order.fault))
        self._refuse_arrival(order.move)
        with self._host.new_name(order.session):
            built = await self._desk.engines.get(order.spec)
            check_plans(order.spec.contract, order.source_plan, built.plan, order.qualification)
            self._reserve(order.move, order.state_bytes, built)
            try:
                attempt, endpoint = await self._listen(order, built, transport)
            except BaseException:
                self._gone(order.move)
                raise
        self._expect(order.move, Incoming(attempt, order.session, order.epoch + 1))
        log.info("session %s epoch %d move %s: prepared for it", order.session, order.epoch, order.move)
        return endpoint

    async def _listen(
        self, order: wire.PrepareTarget, built: Built, transport: Transport
    ) -> tuple[TargetAttempt, wire.Endpoint]:
        capacity = arena_capacity(built.world.state_bytes_max)
        arena = None if transport.hands_over else self._arena(order.move, built)
        key = secrets.token_bytes(KEY_BYTES)
        try:
            listener = await transport.listen(key, arena)
        except BaseException:
            if arena is not None:
                arena.close()
            raise
        desk = self._desk
        tools = TargetTools(
            desk.host, desk.lanes, desk.clock, self._host.tell_failed, self._gone, desk.signing, desk.budget
        )
        early_bytes = min(order.state_bytes, capacity) if transport.name == TcpTransport.name else 0
        attempt = TargetAttempt(order, built, Landing(listener, arena, capacity, early_bytes), tools)
        return attempt, wire.Endpoint(order.transport, listener.address, key)

    async def _load_image(self, order: wire.LoadImage) -> Receipt:
        known = self._incoming.get(order.move)
        if known is not None:
            return await asyncio.shield(known.arrival.receipt)
        self._fault(order.fault, Verb.RESUME)
        self._refuse_arrival(order.move)
        with self._host.new_name(order.session):
            built = await self._desk.engines.get(order.spec)
            self._reserve(order.move, 0, built)
            arrival = ImageArrival(order, built, self._image_tools())
            self._expect(order.move, Incoming(arrival, order.session, order.epoch + 1))
        return await asyncio.shield(arrival.receipt)

    def _refuse_arrival(self, move: str) -> None:
        self._refuse_given_up(move)
        if move in self._incoming:
            raise MoveInProgress(f"move {move} was prepared here before", move=move)
        if len(self._under_way()) >= ARRIVALS_MAX:
            raise IncastRefused(f"{ARRIVALS_MAX} attempts are under way into host {self._desk.host}")
        _forget_oldest(self._incoming, [move for move, incoming in self._incoming.items() if incoming.arrival.over])

    def _expect(self, move: str, incoming: Incoming) -> None:
        self._incoming[move] = incoming
        self._lately_under_way = (*self._under_way(), incoming.arrival)

    def _under_way(self) -> list[Arrival]:
        return [arrival for arrival in self._lately_under_way if not arrival.over]

    def _reserve(self, move: str, state_bytes: int, built: Built) -> None:
        if state_bytes > built.world.state_bytes_max:
            raise NoCapacity(
                f"the state has {format_bytes(state_bytes)}, and world {built.world.name} announced at most "
                f"{format_bytes(built.world.state_bytes_max)}"
            )
        self._desk.memory.reserve(_holder(move), built.world.state_bytes_max)

    def _arena(self, move: str, built: Built) -> Arena:
        return self._desk.memory.arena(_holder(move), built.world.state_bytes_max)

    def _gone(self, move: str) -> None:
        self._desk.memory.release(_holder(move))

    async def _activate(self, order: wire.Activate) -> wire.SessionFacts:
        async with self._activating:
            incoming = self._arriving(order.move)
            here = self._host.sessions.get(incoming.session)
            if here is not None and here.identity.move == order.move and here.identity.epoch == order.epoch:
                return here.facts()
            if order.epoch != incoming.epoch:
                raise StaleEpoch(f"move {order.move} leads to epoch {incoming.epoch}, not {order.epoch}")
            if not incoming.arrival.receipt.done():
                raise Conflict(f"move {order.move} is not proven yet, so nothing can be activated")
            if here is not None:  # what is left of an earlier epoch: the record says that it is over
                await self.drop_session(incoming.session)
                await self._host.forget(incoming.session)
            session = await incoming.arrival.activate(order.epoch)
            self._desk.memory.hand_on(_holder(order.move), incoming.session)
            self._host.adopt(session)
            log.info("session %s epoch %d move %s: plays here", incoming.session, order.epoch, order.move)
            return session.facts()

    def _source_ended(self, told: wire.SourceEnded) -> None:
        incoming = self._incoming.get(told.move)
        if incoming is not None and isinstance(incoming.arrival, TargetAttempt):
            incoming.arrival.source_ended()

    async def _discard(self, order: wire.Discard) -> None:
        self._give_up(order.move)
        incoming = self._incoming.get(order.move)
        if incoming is not None:
            await incoming.arrival.discard()

    def _arriving(self, move: str) -> Incoming:
        incoming = self._incoming.get(move)
        if incoming is None:
            raise UnknownMove(f"host {self._desk.host} knows no attempt of move {move[:80]!r}", move=move[:80])
        return incoming

    # ---- out

    async def _run_source(self, peer: Peer, order: wire.RunSource) -> wire.SourceSealed:
        def report(progress: wire.Progress) -> None:
            with contextlib.suppress(Unavailable):
                peer.notify(progress)

        known = self._outgoing.get(order.move)
        if known is not None and isinstance(known.departure, SourceRun):
            known.departure.report_to(report)
            return await asyncio.shield(known.departure.sealed)
        if order.endpoint is None:
            raise UnknownMove(f"move {order.move} is not under way at host {self._desk.host}", move=order.move)
        transport = self._planted(order.endpoint.transport, self._fault(order.fault), order.codec)
        session = self._leaving(order.move, order.session, order.epoch)
        tools = SourceTools(transport, self._desk.clock)
        run = SourceRun(order, order.endpoint, session, tools, report)
        self._outgoing[order.move] = Outgoing(run, order.session)
        return await asyncio.shield(run.sealed)

    def _grant(self, grant: wire.Grant) -> None:
        """For a move that has not begun here, or is over, it does nothing: grants come again, and end."""
        outgoing = self._outgoing.get(grant.move)
        if outgoing is not None and isinstance(outgoing.departure, SourceRun):
            outgoing.departure.grant(grant.bytes_per_s, grant.for_s)

    async def _write_image(self, order: wire.WriteImage) -> Receipt:
        known = self._outgoing.get(order.move)
        if known is not None and isinstance(known.departure, ImageDeparture):
            return await asyncio.shield(known.departure.written)
        self._fault(order.fault, Verb.PARK)
        session = self._leaving(order.move, order.session, order.epoch)
        departure = ImageDeparture(order, session, self._image_tools())
        self._outgoing[order.move] = Outgoing(departure, order.session)
        return await asyncio.shield(departure.written)

    def _leaving(self, move: str, name: str, epoch: int) -> HostedSession:
        self._refuse_given_up(move)
        session = self._host.session_of(name, epoch)
        refuse_if_held(session, move)
        for other, outgoing in self._outgoing.items():
            if outgoing.session == name and not outgoing.departure.over:
                raise MoveInProgress(f"session {name} is on its way out by move {other}", move=other)
        _forget_oldest(self._outgoing, [move for move, outgoing in self._outgoing.items() if outgoing.departure.over])
        return session

    async def _thaw(self, order: wire.Thaw) -> None:
        """Raises `UnknownSession` where neither is known: this process is not the one that was to play on."""
        self._give_up(order.move)
        outgoing = self._outgoing.get(order.move)
        if outgoing is None or order.epoch is not None:
            session = self._host.session(order.session)
            if order.epoch is not None:
                session.reign_again(order.move, order.epoch)
        if outgoing is not None:
            called_off = "the controller called the move off" if order.epoch is None else "the target never played"
            await outgoing.departure.thaw("ABORTED" if order.epoch is None else "RETURNED", called_off)

    async def _retire(self, order: wire.Retire) -> None:
        outgoing = self._outgoing.get(order.move)
        if outgoing is not None and not await outgoing.departure.retire():
            log.warning("move %s was given up here, but the record says that it is done", order.move)
        found = self._host.sessions.get(order.session)
        if found is not None and found.identity.epoch <= order.epoch:
            await self._host.forget(order.session)
            log.info("session %s epoch %d move %s: retired here", order.session, order.epoch, order.move)

    # ---- both

    def _give_up(self, move: str) -> None:
        self._given_up[move] = None
        if len(self._given_up) > REMEMBERED_MAX:
            self._given_up.popitem(last=False)

    def _refuse_given_up(self, move: str) -> None:
        if move in self._given_up:
            raise StaleEpoch(f"move {move} was called off before this call of it arrived", move=move)

    def _transport(self, name: str) -> Transport:
        transport = self._desk.transports.get(name)
        if transport is None:
            raise BadValue(f"host {self._desk.host} has no transport {name[:80]!r}", transport=name[:80])
        return transport

    def _planted(self, name: str, fault: Fault | None, codec: str = AUTO) -> Transport:
        """The transport, with the codec in it, and the fault if it is one of the data plane's."""
        transport = self._transport(name)
        check_choice(codec, name)
        if isinstance(transport, TcpTransport):
            transport = transport.coding(codec).within(self._desk.budget)
        return transport if fault is None or fault.name not in PLANTED else plant(transport, fault)

    def _fault(self, text: str | None, verb: Verb = Verb.MOVE) -> Fault | None:
        """Raises `BadValue` for one that is none, and for any where the fleet allows none."""
        if text is None:
            return None
        if not self._desk.allow_faults:
            raise BadValue("this host was started without faults: it plants none")
        return parse_fault(text, verb)

    def _image_tools(self) -> ImageTools:
        desk = self._desk
        return ImageTools(
            desk.host,
            desk.image_dir,
            desk.clock,
            self._host.tell_failed,
            self._gone,
            desk.signing,
            self._arena,
            desk.lanes,
        )


def _holder(move: str) -> str:
    """A move's name in the memory ledger; no session's name has a blank."""
    return f"move {move}"


def _forget_oldest(known: OrderedDict[str, T], ended: list[str]) -> None:
    for move in ended[: max(0, len(known) - REMEMBERED_MAX)]:
        del known[move]
