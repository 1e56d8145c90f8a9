"""The controller's process: verbs in, changes of owner decided and recorded, everybody told.

    python -m worldline.runtime.controller --dir RUN_DIR --hosts a,b,c

It may end at any moment and be started again: what it promised is in its record, sessions play on without it, and
orders that were under way are finished or undone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import logging
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random, SystemRandom
from typing import TypeAlias, assert_never

import msgspec

from worldline.clock import Clock, SystemClock
from worldline.control.lifecycle import Status, Verb, begin
from worldline.errors import BadValue, KeyReused, RecordFailed, UnknownMove, WorldlineError
from worldline.runtime.controller_book import Book
from worldline.runtime.controller_grants import Grants
from worldline.runtime.controller_hosts import PLAN_WAIT_S, HostEvents, HostLink, Hosts, Notice
from worldline.runtime.controller_moves import Moves, owner_of
from worldline.runtime.controller_operations import Operations
from worldline.runtime.controller_sessions import Sessions
from worldline.runtime.controller_told import Subscribers
from worldline.runtime.fleet_messages import (
    CancelOperation,
    CordonRequest,
    FleetRequest,
    GetOperation,
    ListOperations,
    OperationRequest,
    PrewarmRequest,
)
from worldline.runtime.messages import (
    CloseRequest,
    FlipBit,
    GetMove,
    GetReceipt,
    GetSession,
    Host,
    Keyed,
    ListHosts,
    ListSessions,
    ListSigners,
    Move,
    MoveRequest,
    OpenRequest,
    ParkRequest,
    Prewarm,
    Prewarmed,
    Progress,
    Qualify,
    ResumeRequest,
    SabotageRequest,
    Session,
    SessionFailed,
    Signer,
    Snapshot,
    Subscribe,
    ToController,
    VerbRequest,
)
from worldline.runtime.rpc import Server, serve
from worldline.runtime.rpc_peer import Peer
from worldline.runtime.run_dir import controller_socket
from worldline.runtime.store import Claim, Store
from worldline.runtime.store_sqlite import SqliteStore
from worldline.runtime.trouble import Trouble
from worldline.schema.fault import FaultName, Step
from worldline.schema.ids import SessionId, check_name

RECORD = "record.sqlite"
SNAPSHOT_MOVES = 50
Asked: TypeAlias = ToController | FleetRequest
SABOTAGE_WAIT_S = 10.0
LIST_WAIT_S = 1.0
KEY_LENGTH_MAX = 200
ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
ID_LENGTH = 10

log = logging.getLogger(__name__)


class Controller:
    """`start` before anything is asked of it; `close` at the end."""

    def __init__(
        self,
        run_dir: Path,
        store: Store,
        clock: Clock,
        random: Random,
        faults: bool = False,
        port_bytes_per_s: float | None = None,
    ) -> None:
        """`port_bytes_per_s`: what each host's port carries each way; moves then need grants (`controller_grants`)."""
        self._run_dir = run_dir
        self._store = store
        self._clock = clock
        self._random = random
        self._faults = faults
        self._subscribers = Subscribers()
        self._book = Book(store, self._subscribers)
        self._sessions = Sessions(self._book, self._spawn)
        grants = Grants(clock, port_bytes_per_s)
        self._moves = Moves(self._sessions, self._book, clock, faults, self._subscribers.pid, grants)
        self._keyed: dict[str, asyncio.Future[Session | Move]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._recovered = asyncio.Event()
        """The sessions of unfinished orders are held: what hosts have, and don't, may be judged."""
        self._hosts: Hosts
        self._operations: Operations
        self._server: Server

    async def start(self, hosts: list[str]) -> None:
        """Reads the record, takes up unfinished orders, reaches for the hosts and listens."""
        await self._book.load()
        events = HostEvents(
            self._on_host,
            self._on_host_described,
            self._on_host_changed,
            self._on_host_gone,
            self._on_notice,
            self._store.keep_cordon,
        )
        seen = {incarnation.host: incarnation for incarnation in await self._store.incarnations()}
        self._hosts = self._sessions.hosts = Hosts(self._run_dir, events, seen)
        await self._moves.recover(self._spawn)
        self._recovered.set()
        for host in hosts:
            self._hosts.add(host)
        for host, cordon in (await self._store.cordons()).items():
            self._hosts.add(host).cordon = cordon
        for row in self._book.rows():
            if row.host is not None and self._hosts.is_gone(row.host):
                self._sessions.doom(row.id, f"host {row.host} ended while the controller was away")
        await self._sessions.settle()
        self._operations = Operations(self._hosts, self._moves, self._book, self._clock, self._new_id)
        await self._operations.load(self._spawn)
        self._server = await serve(controller_socket(self._run_dir), Asked, self._on_message, self._on_closed)

    async def close(self) -> None:
        """Stops without finishing what is under way, as the end of the process would."""
        await self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._hosts.close()
        await self._store.close()

    # ---- what is asked

    async def _on_message(self, peer: Peer, message: Asked) -> object:
        match message:
            case OpenRequest() | MoveRequest() | ParkRequest() | ResumeRequest() | CloseRequest():
                return await self._verb(message, self._draw(message))
            case Keyed(key, verb):
                return await self._once(key, verb)
            case SabotageRequest(session, bit):
                await self._sabotage(session, bit)
                return None
            case ListSessions():
                return self._book.views()
            case ListHosts():
                return await self._hosts_as_they_are()
            case GetSession(session):
                return self._book.view(session)
            case GetMove(move):
                return await self._book.move(move)
            case GetReceipt(receipt):
                return await self._book.receipt(receipt)
            case ListSigners():
                return await self._store.signers()
            case Qualify(qualification):
                await self._store.qualify(qualification)
                return None
            case Subscribe():
                return self._subscribe(peer)
            case (
                OperationRequest()
                | CordonRequest()
                | PrewarmRequest()
                | GetOperation()
                | ListOperations()
                | CancelOperation()
            ):
                return await self._fleet(message)
            case _:
                assert_never(message)

    async def _hosts_as_they_are(self) -> list[Host]:
        """Each host by its own word of now, or, where it doesn't answer soon, by its last one."""
        living = [link for link in self._hosts.all() if link.alive]
        asked = (asyncio.wait_for(link.describe(), LIST_WAIT_S) for link in living)
        await asyncio.gather(*asked, return_exceptions=True)
        return [link.view() for link in self._hosts.all()]

    async def _fleet(self, message: FleetRequest) -> object:
        match message:
            case OperationRequest():
                return await self._operations.begin(message, self._spawn)
            case GetOperation(operation):
                return self._operations.get(operation)
            case ListOperations():
                return self._operations.all()
            case CancelOperation(operation):
                return await self._operations.cancel(operation)
            case CordonRequest(host, cordoned):
                if cordoned:
                    await self._operations.cordon(host, released=False)
                else:
                    await self._operations.uncordon(host)
                return self._hosts.get(host).view()
            case PrewarmRequest(host, world, options, slots):
                link = self._hosts.living(host)
                return await link.call_while_it_answers(Prewarm(world, options, slots), Prewarmed, PLAN_WAIT_S)
            case _:
                assert_never(message)

    async def _verb(self, verb: VerbRequest, drawn: str) -> Session | Move:
        """`drawn` is the id of the session or move that the verb makes."""
        match verb:
            case OpenRequest():
                return await self._sessions.open(verb, drawn)
            case MoveRequest():
                return await self._moves.move(verb, drawn)
            case ParkRequest():
                return await self._moves.park(verb, drawn)
            case ResumeRequest():
                return await self._moves.resume(verb, drawn)
            case CloseRequest():
                return await self._sessions.close(verb)
            case _:
                assert_never(verb)

    def _draw(self, verb: VerbRequest) -> str:
        if isinstance(verb, OpenRequest) and verb.session is not None:
            return verb.session
        return self._new_id("s" if isinstance(verb, OpenRequest) else "m")

    def _new_id(self, kind: str) -> str:
        """In letters that are not mistaken for each other."""
        return f"{kind}-" + "".join(self._random.choice(ID_LETTERS) for _ in range(ID_LENGTH))

    async def _sabotage(self, session: str, bit: int) -> None:
        if not self._faults:
            raise BadValue("a bit is flipped only in a fleet that was started with faults allowed")
        row = self._book.view(session)
        begin(SessionId(session), Status(row.status), Verb.SABOTAGE, row.why)
        await self._hosts.living(owner_of(row)).call(FlipBit(session, bit), None, SABOTAGE_WAIT_S)

    # ---- once for each key

    async def _once(self, key: str, verb: VerbRequest) -> Session | Move:
        """The verb's answer, the recorded one where the key was used before. Raises `KeyReused`.

        A verb that raised has changed nothing, so its key is free again.
        """
        if not 1 <= len(key) <= KEY_LENGTH_MAX:
            raise BadValue(f"an idempotency key has 1 to {KEY_LENGTH_MAX} characters, not {len(key)}")
        digest = hashlib.sha256(msgspec.json.encode(verb, order="sorted")).digest()
        drawn = self._draw(verb)
        trouble = self._trouble_of(verb)
        trouble.spoil(Step.CLAIM, self._store)
        older = await self._store.claim(Claim(key, digest, drawn, None))
        if older is not None and older.verb != digest:
            raise KeyReused("this idempotency key was used with another request", key=key)
        if older is not None and older.answer is not None:
            return msgspec.json.decode(older.answer, type=Session | Move)
        if key not in self._keyed:
            answering = (
                self._answer(key, verb, drawn, trouble) if older is None else self._answer_again(key, verb, older.id)
            )
            self._keyed[key] = task = asyncio.create_task(answering)
            task.add_done_callback(lambda _: self._keyed.pop(key, None))
        return await asyncio.shield(self._keyed[key])

    async def _answer_again(self, key: str, verb: VerbRequest, drawn: str) -> Session | Move:
        """For a key whose verb was begun by a controller that then ended, or begun again after it was done."""
        found = await self._found(verb, drawn)
        if found is None:
            return await self._answer(key, verb, drawn, Trouble(None, _nobody))
        await self._keep(key, found)
        return found

    async def _answer(self, key: str, verb: VerbRequest, drawn: str, trouble: Trouble) -> Session | Move:
        try:
            answer = await self._verb(verb, drawn)
        except WorldlineError:
            try:
                await self._store.release(key)
            except RecordFailed as error:  # the key stays claimed, and asking again finds that nothing was done
                log.warning("the key of a verb that changed nothing is not released: %s", error)
            raise
        trouble.spoil(Step.ANSWER, self._store)
        await self._keep(key, answer)
        return answer

    async def _keep(self, key: str, answer: Session | Move) -> None:
        """What was done stays done where its answer can't be written: the key finds it by the id that was drawn."""
        try:
            await self._store.answer(key, msgspec.json.encode(answer))
        except RecordFailed as error:
            log.warning("an answer is not kept beside its key: %s", error)

    def _trouble_of(self, verb: VerbRequest) -> Trouble:
        """Of the rows of the verb's key. A fault that is none is refused by the verb itself."""
        fault = None
        if isinstance(verb, MoveRequest | ParkRequest | ResumeRequest):
            with contextlib.suppress(BadValue):
                fault = self._moves.planted(verb)
        return Trouble(fault, _nobody)

    async def _found(self, verb: VerbRequest, drawn: str) -> Session | Move | None:
        """What a controller that ended before it could answer has left behind under the id that it had drawn."""
        match verb:
            case OpenRequest():
                return self._book.find(drawn)
            case CloseRequest(session):
                row = self._book.find(session)
                return row if row is not None and row.status == "closed" else None
            case MoveRequest() | ParkRequest() | ResumeRequest():
                try:
                    move = await self._moves.ended(drawn)
                except UnknownMove:
                    return None
                if move.error is not None and not isinstance(verb, MoveRequest):
                    return None
                return move if isinstance(verb, MoveRequest) else self._book.view(verb.session)
            case _:
                assert_never(verb)

    # ---- who is told

    def _subscribe(self, peer: Peer) -> Snapshot:
        self._subscribers.add(peer)
        sessions = [view for view in self._book.views() if view.status != "closed"]
        hosts = [link.view() for link in self._hosts.all()]
        return Snapshot(sessions, hosts, self._book.moves()[-SNAPSHOT_MOVES:])

    async def _on_closed(self, peer: Peer) -> None:
        self._subscribers.discard(peer)

    # ---- what hosts do

    async def _on_host(self, link: HostLink, peer: Peer) -> None:
        assert link.incarnation is not None
        await self._recovered.wait()
        await self._store.remember(link.incarnation)
        await self._record_signer(link)
        await self._sessions.reconcile(link)

    async def _record_signer(self, link: HostLink) -> None:
        """Before the host is used: no receipt under a key that is not in the record is ever committed."""
        key = None if link.facts is None else link.facts.signer
        if key is None:
            return
        known = any(signer.host == link.id for signer in await self._store.signers())
        if await self._store.add_signer(Signer(link.id, key, self._clock.wall_s())) and known:
            log.warning("host %s signs with a new key, %s: it has lost the one it had", link.id, key)

    def _on_host_described(self, link: HostLink) -> None:
        self._sessions.close_strays(link)
        self._moves.discard_strays(link, self._spawn)

    def _on_host_changed(self, link: HostLink) -> None:
        self._book.tell_host(link.view())

    def _on_host_gone(self, host: str, generation: str) -> None:
        log.warning("host %s, generation %s, has ended", host, generation)
        self._moves.check_hosts()
        self._sessions.host_gone(host, generation)
        self._spawn(self._sessions.settle())

    def _on_notice(self, _host: str, notice: Notice) -> None:
        match notice:
            case Progress():
                self._moves.on_progress(notice)
            case SessionFailed(session, epoch, sentence):
                row = self._book.find(session)
                if row is not None and row.epoch == epoch:
                    self._sessions.doom(session, f"its engine failed inside a block: {sentence}")
                    self._spawn(self._sessions.settle())
            case _:
                assert_never(notice)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _nobody(_fault: FaultName) -> None:
    """No process is struck where a key's row is written."""


async def _logged(work: Coroutine[object, object, None]) -> None:
    """The root of a background task: what goes wrong in it is told, and ends it alone."""
    try:
        await work
    except Exception:
        log.exception("a task of the controller failed")


async def run(
    run_dir: Path,
    hosts: list[str],
    faults: bool,
    stopped: Callable[[asyncio.Event], None],
    port_bytes_per_s: float | None = None,
) -> None:
    """Serves until the event that `stopped` was given is set."""
    store = await SqliteStore.open(run_dir / RECORD)
    controller = Controller(run_dir, store, SystemClock(), SystemRandom(), faults, port_bytes_per_s)
    await controller.start(hosts)
    stop = asyncio.Event()
    stopped(stop)
    await stop.wait()
    await controller.close()


def _on_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser(prog="python -m worldline.runtime.controller")
    parser.add_argument("--dir", type=Path, required=True, help="the fleet's run directory")
    parser.add_argument("--hosts", default="", help="names, with commas between them")
    parser.add_argument("--faults", action="store_true", help="planted faults and sabotage are accepted")
    parser.add_argument("--port-bytes-per-s", type=float, help="of each host, each way; moves then need grants")
    words = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    hosts = [check_name(host, "the host") for host in words.hosts.split(",") if host]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(words.dir, hosts, words.faults, _on_signals, words.port_bytes_per_s))


if __name__ == "__main__":
    main()
