"""The gateway's middle: links to the controller and the hosts, and a `Play` for each session that somebody plays.

Invariant: play needs no controller. While it is away, sessions go on at their owners, verbs answer `CONTROLLER_GONE`,
and what it tells when it is back replaces what was known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, assert_never, overload

from worldline.clock import Clock
from worldline.errors import ControllerGone, HostGone
from worldline.runtime.fleet_messages import OperationChanged
from worldline.runtime.gateway_play import Play
from worldline.runtime.gateway_twin import Mirror
from worldline.runtime.messages import (
    Block,
    GetSession,
    Host,
    HostChanged,
    Move,
    MoveChanged,
    Rejected,
    ResumeRequest,
    Session,
    SessionChanged,
    SessionFailed,
    Snapshot,
    Subscribe,
)
from worldline.runtime.rpc import Reconnecting
from worldline.runtime.rpc_peer import Peer
from worldline.runtime.run_dir import controller_socket, host_socket

READ_WAIT_S = 10.0
WAKE_WAIT_S = 60.0
MOVES_KEPT = 50
SWEEP_S = 30.0
"""How often plays that nobody needs are dropped."""

Change: TypeAlias = SessionChanged | MoveChanged | HostChanged | OperationChanged
FromHost: TypeAlias = Block | Rejected | SessionFailed
T = TypeVar("T")

log = logging.getLogger(__name__)


class Listener(Protocol):
    """Who is told of every change. Must not block, and must not raise."""

    def tell(self, told: Snapshot | Change) -> None: ...


class Gateway:
    """Made inside the event loop; `close` at the end."""

    def __init__(self, run_dir: Path, clock: Clock) -> None:
        self._run_dir = run_dir
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._hosts: dict[str, Host] = {}
        self._moves: dict[str, Move] = {}
        self._links: dict[str, Reconnecting] = {}
        self._plays: dict[str, Play] = {}
        self._beginning = asyncio.Lock()
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        socket = controller_socket(run_dir)
        gone = ControllerGone("the controller can't be reached; sessions play on")
        self._controller = Reconnecting(socket, Change, self._on_change, gone, self._on_controller)
        self._sweeping = asyncio.create_task(self._sweep(), name="sweep")

    # ---- verbs

    @overload
    async def ask(self, message: object, answer: None, timeout_s: float | None) -> None: ...
    @overload
    async def ask(self, message: object, answer: type[T], timeout_s: float | None) -> T: ...
    async def ask(self, message: object, answer: Any, timeout_s: float | None) -> Any:
        """The controller's answer. Raises what it answers, or `ControllerGone`, which says nothing about what was
        done.
        """
        return await self._controller.call(message, answer, timeout_s)

    @property
    def controller_connected(self) -> bool:
        return self._controller.connected

    @property
    def hosts(self) -> list[Host]:
        return [self._hosts[host] for host in sorted(self._hosts)]

    @property
    def sessions(self) -> list[Session]:
        """Those that are not closed, as last told."""
        return list(self._sessions.values())

    # ---- changes

    def listen(self, listener: Listener) -> None:
        """Tells a snapshot now, if the controller was ever reached, and every change from now on."""
        self._listeners.append(listener)
        if self._controller.connected:
            listener.tell(Snapshot(self.sessions, self.hosts, list(self._moves.values())))

    def unlisten(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def _on_controller(self, peer: Peer) -> None:
        snapshot = await peer.call(Subscribe(), Snapshot, READ_WAIT_S)
        self._hosts = {host.id: host for host in snapshot.hosts}
        self._moves = {move.id: move for move in snapshot.moves}
        known = {session.id: session for session in snapshot.sessions}
        for closed in self._plays.keys() - known.keys():
            known[closed] = await peer.call(GetSession(closed), Session, READ_WAIT_S)
        self._sessions = {}
        for session in known.values():
            self._take(session)
        self._tell(snapshot)

    async def _on_change(self, _peer: Peer, change: Change) -> None:
        match change:
            case SessionChanged(session):
                self._take(session)
            case MoveChanged(move):
                self._moves[move.id] = move
                while len(self._moves) > MOVES_KEPT:
                    del self._moves[next(iter(self._moves))]
            case HostChanged(host):
                self._hosts[host.id] = host
            case OperationChanged():
                pass  # it is only passed on: who wants all of them asks the controller
            case _:
                assert_never(change)
        self._tell(change)

    def _take(self, session: Session) -> None:
        if session.status == "closed":
            self._sessions.pop(session.id, None)
        else:
            self._sessions[session.id] = session
        play = self._plays.get(session.id)
        if play is not None:
            play.session_changed(session)
            if session.status == "closed":
                self._drop(session.id)

    def _tell(self, told: Snapshot | Change) -> None:
        for listener in tuple(self._listeners):
            listener.tell(told)

    # ---- play

    async def play(self, session: str) -> Play:
        """The session's traffic, begun if it is not yet, and its twin's. Raises `UnknownSession`."""
        async with self._beginning:  # a session is not played before its twin can be given the same actions
            found = self._plays.get(session)
            if found is None:
                row = await self._row(session)
                twin = None if row.twin is None else await self._row(row.twin)
                found = self._begin(row)
                if twin is not None:
                    Mirror(found, self._begin(twin))
            return found

    async def _row(self, session: str) -> Session:
        known = self._sessions.get(session)
        return known if known is not None else await self.ask(GetSession(session), Session, READ_WAIT_S)

    def _begin(self, row: Session) -> Play:
        play = self._plays.get(row.id)
        if play is None:
            play = self._plays[row.id] = Play(row, self._link_to, self._wake, self._clock)
            play.session_changed(row)
        return play

    async def _wake(self, session: str) -> Session:
        return await self.ask(ResumeRequest(session, None), Session, WAKE_WAIT_S)

    def _link_to(self, host: str) -> Reconnecting:
        link = self._links.get(host)
        if link is None:
            gone = HostGone(f"host {host} can't be reached", host=host)

            async def heard(_peer: Peer, message: FromHost) -> None:
                self._on_host_message(host, message)

            async def connected(peer: Peer) -> None:
                self._spawn(self._tell_when_down(host, peer))

            link = self._links[host] = Reconnecting(host_socket(self._run_dir, host), FromHost, heard, gone, connected)
        return link

    def _on_host_message(self, host: str, message: FromHost) -> None:
        play = self._plays.get(message.session)
        if play is None:
            return
        match message:
            case Block():
                play.on_block(host, message)
            case Rejected():
                play.on_rejected(message)
            case SessionFailed():
                play.on_failed(message)
            case _:
                assert_never(message)

    async def _tell_when_down(self, host: str, peer: Peer) -> None:
        await peer.wait_closed()
        for play in tuple(self._plays.values()):
            play.on_link_down(host)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for session, play in tuple(self._plays.items()):
                if play.idle and play.mirror is None:  # a mirror counts equal blocks for as long as its session lives
                    self._drop(session)

    def _drop(self, session: str) -> None:
        self._spawn(self._plays.pop(session).close())

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Lets go of everything; sessions play on."""
        self._sweeping.cancel()
        for play in self._plays.values():
            await play.close()
        await self._controller.close()
        for link in self._links.values():
            await link.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
