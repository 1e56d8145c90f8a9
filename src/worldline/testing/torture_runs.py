"""Crash runs: a fleet of real processes and tiny worlds; a verb, and a process that is killed or stopped in it.

Each run plays a session against a twin that is computed in this process, asks for a move, a park or a resume, and at
one moment of it kills or stops one process. Then everything must come to rest: one owner or a session that is lost with
the process that held it, the world equal to the twin, nothing left behind, and the next move succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import TypeVar

from worldline.clock import SystemClock
from worldline.errors import (
    AlreadyThere,
    HostGone,
    MoveInProgress,
    NotParked,
    SessionClosed,
    Unavailable,
    WorldlineError,
)
from worldline.runtime import rpc
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.runtime.messages import Describe, HostFacts, Session, SessionFacts
from worldline.runtime.run_dir import host_socket
from worldline.schema.contract import Contract
from worldline.schema.fault import Fault
from worldline.service.client import Client, SessionHandle
from worldline.testing.torture_census import Census
from worldline.testing.torture_crash import Crash, Fate
from worldline.testing.torture_player import HANG_S, Broken, Player, Twin, Waiting

WORLD = "worldline.testing.tiny:TinyWorld"
HOSTS = ("a", "b", "c", "d")
OPTIONS = {"block_period_ms": 2.0}
CONTRACT = Contract(pause_bound_s=10.0, completion_deadline_s=20.0)
STRUCK_CONTRACT = Contract(pause_bound_s=1.5, completion_deadline_s=2.0)
"""Of runs with a planted fault, which may have to wait for the deadline."""
BLOCKS_BEFORE = 3
BLOCKS_AFTER = 2
USUAL_S = 0.15
"""How long a verb takes, until one was measured."""
SETTLE_S = 10.0
DESCRIBE_WAIT_S = 5.0

T = TypeVar("T")


class CrashRuns:
    """One fleet for many runs. A context manager."""

    def __init__(self, make_twin: Callable[[int], Twin]) -> None:
        self._make_twin = make_twin
        self._clock = SystemClock()
        self._census = Census()
        self._warm: set[int] = set()
        self._usual_s = USUAL_S
        self._fleet = Fleet.start(FleetPlan(hosts=HOSTS, worlds=(WORLD,), memory_bytes=256 << 20, faults=True))
        self._client = Client(self._fleet.url)

    def __enter__(self) -> CrashRuns:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()
        self._fleet.close()

    def was_planted(self, fault: Fault) -> bool:
        """Whether a process has said that it planted this fault, in any run."""
        logs = (self._fleet.run_dir / "log").glob("*.log")
        return any(f"planted: {fault}" in log.read_text(errors="replace") for log in logs)

    def run(self, crash: Crash) -> Fate:
        """One run, to its end whatever happens."""
        fate, began_s = Fate(crash), self._clock.monotonic_s()
        session: SessionHandle | None = None
        try:
            self._warm_up()
            session = self._open(crash)
            self._run(crash, session, fate)
        except Broken as broken:
            fate.bad.append((broken.count, str(broken)))
        except WorldlineError as error:
            fate.bad.append(("hangs", f"{error.code}: {error.sentence}"))
        try:
            if session is not None:
                self._insist("the session is not closed", session.close)
            self._check_leaks()
        except Broken as broken:
            fate.bad.append((broken.count, str(broken)))
        fate.seconds = self._clock.monotonic_s() - began_s
        return fate

    def _run(self, crash: Crash, session: SessionHandle, fate: Fate) -> None:
        rng = Random(crash.seed)
        with Client(self._fleet.url) as client:
            player = Player(client.session(session.id), self._make_twin(crash.seed), self._waiting)
            player.play(BLOCKS_BEFORE)
            if crash.verb == "resume":
                session.park()
            before = session.describe()
            target = rng.choice([host for host in self._living() if host != before.host])
            victim = {"source": before.host, "target": target}.get(crash.victim, crash.victim)
            assert victim is not None, "a run's victim takes part in it"
            player.go_on()
            fate.refused = self._ask(crash, session, target, victim)
            if crash.killed == "controller":
                fate.recovery_s = self._recovery_s(session)
            after = self._come_to_rest(session)
            fate.returned = (after.host, after.epoch) == (before.host, before.epoch + 2) and after.status != "lost"
            fate.moves += len(after.receipts) - len(before.receipts) - fate.returned
            if after.status == "parked":
                self._insist("the next resume did not succeed", session.resume)
            player.pause()
            if after.status == "lost":
                self._judge_loss(crash, before, after, target, fate)
                return
            player.play(BLOCKS_AFTER)
            self._check_owner(session)
            to = rng.choice([host for host in self._living() if host != session.describe().host])
            self._insist("the next move did not succeed", lambda: session.move(to, transport=crash.transport))
            fate.moves += 1
            player.play(BLOCKS_AFTER)
            self._check_owner(session)

    # ---- the verb and the blow

    def _ask(self, crash: Crash, session: SessionHandle, target: str, victim: str) -> str | None:
        """The verb, and the blow at its moment. The code of a refusal."""
        refused: list[str] = []

        def verb() -> None:
            with Client(self._fleet.url) as client:
                handle = client.session(session.id)
                try:
                    fault = None if crash.fault is None else str(crash.fault)
                    match crash.verb:
                        case "move":
                            handle.move(target, mode=crash.mode, transport=crash.transport, fault=fault)
                        case "park":
                            handle.park(fault=fault)
                        case _:
                            handle.resume(target, fault=fault)
                except WorldlineError as error:
                    refused.append(error.code)

        asking = Thread(target=verb, name="verb", daemon=True)
        began_s = self._clock.monotonic_s()
        asking.start()
        blow = Thread(target=self._strike, args=(crash, victim), name="blow", daemon=True)
        if crash.fault is None:
            blow.start()
        asking.join(HANG_S)
        if crash.fault is None:
            blow.join(HANG_S)
        if asking.is_alive():
            raise Broken("hangs", f"{crash.verb} did not answer within {HANG_S:.0f} s")
        if not refused and crash.moment > 1 and crash.fault is None:
            self._usual_s = min(self._clock.monotonic_s() - began_s, 4 * USUAL_S)
        return refused[0] if refused else None

    def _strike(self, crash: Crash, victim: str) -> None:
        Event().wait(crash.moment * self._usual_s)
        pid = self._fleet.pid(victim)
        if pid is None:
            return
        if crash.kills:
            os.kill(pid, signal.SIGKILL)
            return
        os.kill(pid, signal.SIGSTOP)
        Event().wait(crash.stopped_s)
        os.kill(pid, signal.SIGCONT)

    def _recovery_s(self, session: SessionHandle) -> float:
        """What a person waits for who asks a controller that is back."""
        row = self._patiently("the controller did not come back", session.describe)
        began_s, waiting = self._clock.monotonic_s(), self._waiting()
        while row.status == "moving":
            waiting.check("the order did not end after the controller was back")
            row = self._patiently("the controller did not come back", session.describe)
        return self._clock.monotonic_s() - began_s

    # ---- what must be true afterwards

    def _come_to_rest(self, session: SessionHandle) -> Session:
        """The session once no order holds it, and its owner, if it has one, is known to live."""
        waiting = self._waiting()
        while True:
            waiting.check("the session's order did not end")
            try:
                row = session.describe()
            except Unavailable:
                continue
            if row.status != "moving" and (row.host is None or self._holds(row)):
                return row

    def _holds(self, row: Session) -> bool:
        return any(host == row.host and facts.epoch == row.epoch for host, facts in self._where(row.id))

    def _judge_loss(self, crash: Crash, before: Session, after: Session, target: str, fate: Fate) -> None:
        """Lost is honest where the process that held the state was killed, and a reason is told."""
        committed = len(after.receipts) > len(before.receipts)
        holder = target if committed else before.host
        killed = {"source": before.host, "target": target}.get(crash.killed or "")
        if killed != holder or not after.why:
            raise Broken(
                "lost", f"{after.id} is lost, {holder} held it and {killed or 'nobody'} was killed: {after.why}"
            )
        fate.died_with_host = True
        fate.source_stood = committed and self._never_played(after)

    def _never_played(self, lost: Session) -> bool:
        """Whether the last commit was of a copied move, or of a resume, whose target was never known to play."""
        receipt = self._patiently("the receipt is not told", lambda: self._client.receipt(lost.receipts[-1]))
        move = self._patiently("the move is not told", lambda: self._client.move(receipt.move))
        return move.transport != "shm" and not any("ACTIVATED" in line for line in move.story)

    def _check_owner(self, session: SessionHandle) -> None:
        """Exactly one process has the session: the record's owner, with the record's epoch."""
        waiting = Waiting(self._clock, self._clock.monotonic_s() + SETTLE_S)
        while True:
            row = self._patiently("the record did not answer", session.describe)
            where = self._where(session.id)
            if [(host, facts.epoch) for host, facts in where] == [(row.host, row.epoch)]:
                return
            playing = [host for host, facts in where if not facts.frozen]
            if len(playing) > 1:
                raise Broken("two_owners", f"{' and '.join(playing)} can both play {session.id}")
            try:
                waiting.check("")
            except Broken:
                held = ", ".join(f"{host} with epoch {facts.epoch}" for host, facts in where) or "nobody"
                raise Broken("leaks", f"{row.host} owns {session.id}, epoch {row.epoch}; {held} hold it") from None

    def _where(self, session: str) -> list[tuple[str, SessionFacts]]:
        """Hosts that have the session, asked one by one and not through the controller."""
        asked = asyncio.run(_describe(self._fleet.run_dir, HOSTS))
        return [(facts.host, held) for facts in asked for held in facts.sessions if held.session == session]

    def _check_leaks(self) -> None:
        names = (*HOSTS, "controller", "gateway")
        pids = {name: pid for name in names if (pid := self._fleet.pid(name)) is not None}
        # A host that was started meanwhile may still be reading its modules: it counts from when it has served.
        members = {name: pid for name, pid in pids.items() if name not in HOSTS or pid in self._warm}
        waiting = Waiting(self._clock, self._clock.monotonic_s() + SETTLE_S)
        while leaks := self._census.leaks(members):
            try:
                waiting.check("")
            except Broken:
                raise Broken("leaks", "; ".join(leaks)) from None
        self._census.settle(members)

    # ---- patience

    def _open(self, crash: Crash) -> SessionHandle:
        waiting, contract = self._waiting(), CONTRACT if crash.fault is None else STRUCK_CONTRACT
        while True:
            waiting.check("no session could be opened")
            try:
                living = self._living()
                if len(living) >= 3:
                    host = Random(crash.seed).choice(living)
                    return self._client.open(WORLD, seed=crash.seed, options=OPTIONS, contract=contract, host=host)
            except Unavailable:
                continue

    def _warm_up(self) -> None:
        """Every host has played, sent and received before a run: what its first session leaves behind is no leak."""
        living = self._living()
        for host in living:
            pid, other = self._fleet.pid(host), next(other for other in living if other != host)
            if pid is None or pid in self._warm:
                continue
            session = self._client.open(WORLD, seed=1, options=OPTIONS, contract=CONTRACT, host=host)
            with contextlib.suppress(Unavailable):
                for to in (other, host):
                    session.step(0, frames="raw")
                    session.move(to, transport="tcp")
                self._warm.add(pid)
            self._insist("the session is not closed", session.close)

    def _living(self) -> list[str]:
        """Hosts that run and that the controller reaches."""
        hosts = self._patiently("the hosts are not told", self._client.hosts)
        return [host.id for host in hosts if host.alive and self._fleet.pid(host.id) is not None]

    def _patiently(self, what: str, ask: Callable[[], T]) -> T:
        """Asks until it is answered. Raises `Broken` where it is not, or is refused."""
        waiting = self._waiting()
        while True:
            try:
                return ask()
            except Unavailable as error:
                waiting.check(f"{what}: {error.code}: {error.sentence}")
            except WorldlineError as error:
                raise Broken("hangs", f"{what}: {error.code}: {error.sentence}") from error

    def _insist(self, what: str, verb: Callable[[], object]) -> None:
        """Asks for a verb until it is done: an answer that was lost may have been a yes."""
        waiting = self._waiting()
        while True:
            try:
                verb()
            except (AlreadyThere, NotParked, SessionClosed):
                return
            except (Unavailable, MoveInProgress) as error:
                waiting.check(f"{what}: {error.code}: {error.sentence}")
            except WorldlineError as error:
                raise Broken("hangs", f"{what}: {error.code}: {error.sentence}") from error
            else:
                return

    def _waiting(self) -> Waiting:
        return Waiting(self._clock, self._clock.monotonic_s() + HANG_S)


async def _describe(run_dir: Path, hosts: Sequence[str]) -> list[HostFacts]:
    """What the hosts that answer say of themselves."""
    found = []
    for host in hosts:
        try:
            peer = await rpc.connect(host_socket(run_dir, host), HostFacts, None, HostGone(f"host {host} is gone"))
        except WorldlineError:
            continue
        try:
            found.append(await peer.call(Describe(), HostFacts, DESCRIBE_WAIT_S))
        except WorldlineError:
            continue
        finally:
            await peer.close()
    return found
