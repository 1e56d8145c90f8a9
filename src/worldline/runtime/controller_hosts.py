"""The controller's view of the hosts: alive, silent, out of reach, or gone.

*Silent* is a host that is connected and has not described itself when it was asked to; it takes nothing that is begun
until it does. Silent and out of reach say nothing about a host's sessions. *Gone* is a fact: the kernel said that the
process has ended (its pidfd became readable, or its pid now belongs to nobody or to a younger process), or a process of
another generation answers in its name. Only `gone` lets a session be declared lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

from worldline.errors import HostCordoned, HostGone, PlanMismatch, TimedOut, UnknownHost, WorldlineError
from worldline.runtime.messages import Cordon, Describe, Host, HostFacts, PlanOf, Progress, SessionFailed, SessionSpec
from worldline.runtime.rpc import Reconnecting
from worldline.runtime.rpc_peer import Peer
from worldline.runtime.run_dir import host_socket, hosts_in
from worldline.runtime.store import Incarnation
from worldline.schema.plan import Plan

DESCRIBE_WAIT_S = 10.0
PLAN_WAIT_S = 120.0
"""Building a world's weights is slow on a busy core."""
REFRESH_S = 1.0
SCAN_S = 0.5
GENERATIONS_MAX = 64
"""Generations of one host that are remembered as gone."""

Notice: TypeAlias = Progress | SessionFailed
T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostEvents:
    """Whom a host's link tells. `connected` runs before the host is used; the others must not wait for the host."""

    connected: Callable[[HostLink, Peer], Awaitable[None]]
    described: Callable[[HostLink], None]
    """It has just said which sessions it has, and which are to come."""
    changed: Callable[[HostLink], None]
    gone: Callable[[str, str], None]
    """Host and generation: the process has ended."""
    notice: Callable[[str, Notice], None]
    cordoned: Callable[[str, Cordon | None], Awaitable[None]]
    """Makes a change of a cordon durable."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a session needs of a host: its state's size, and what is reserved for it there (0: not known)."""

    state_bytes: int
    arena_bytes: int


NO_ROOM = Room(0, 0)


class HostLink:
    """One host: its link, its facts, and the plans it told."""

    def __init__(self, host: str, socket: Path, events: HostEvents, seen: Incarnation | None) -> None:
        self.id = host
        self.facts: HostFacts | None = None
        self.incarnation = seen
        self.cordon: Cordon | None = None
        self._events = events
        self._plans: dict[SpecKey, Plan] = {}
        self._over: list[str] = []
        self._silent = asyncio.Event()
        self._pidfd: int | None = None
        if seen is not None and not _lives(seen):
            self._over.append(seen.generation)
        gone = HostGone(f"host {host} can't be reached", host=host)
        self._link = Reconnecting(socket, Notice, self._on_message, gone, self._on_connected)
        self._refreshing = asyncio.create_task(self._refresh(), name=f"refresh {host}")

    @property
    def alive(self) -> bool:
        return self._link.connected and self.facts is not None and not self._silent.is_set()

    @property
    def generation(self) -> str | None:
        """Of the process that was last heard of."""
        return None if self.incarnation is None else self.incarnation.generation

    @property
    def free_bytes(self) -> int:
        return 0 if self.facts is None else self.facts.free_bytes

    def room_bytes(self, arena_bytes: int) -> int:
        """See `HostFacts`; 0 while nothing is known of it."""
        return 0 if self.facts is None else self.facts.room_bytes(arena_bytes)

    @property
    def session_count(self) -> int:
        return 0 if self.facts is None else len(self.facts.sessions)

    def is_over(self, generation: str) -> bool:
        """Whether the process of this generation is known to have ended."""
        return generation in self._over

    def view(self) -> Host:
        plan = next(iter(self._plans.values()), None)
        digest = None if plan is None else plan.host_digest
        gone = self.generation is not None and self.is_over(self.generation)
        return Host(self.id, self.alive, self.facts, digest, self.cordon, gone)

    @overload
    async def call(self, message: object, answer: None, timeout_s: float) -> None: ...
    @overload
    async def call(self, message: object, answer: type[T], timeout_s: float) -> T: ...
    async def call(self, message: object, answer: Any, timeout_s: float) -> Any:
        """Asks the host. Raises what it answers, `HostGone` while it can't be reached, `TimedOut`."""
        return await self._link.call(message, answer, timeout_s)

    @overload
    async def call_while_it_answers(self, message: object, answer: None, timeout_s: float) -> None: ...
    @overload
    async def call_while_it_answers(self, message: object, answer: type[T], timeout_s: float) -> T: ...
    async def call_while_it_answers(self, message: object, answer: Any, timeout_s: float) -> Any:
        """As `call`, for what may take long: raises `HostGone` as soon as the host falls silent, and where it is so
        already once it was sent. What it does of it later is not known here.
        """
        calling = asyncio.ensure_future(self.call(message, answer, timeout_s))
        silence = asyncio.ensure_future(self._silent.wait())
        try:
            await asyncio.wait({calling, silence}, return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                raise self.not_alive()
            return calling.result()
        finally:
            calling.cancel()
            silence.cancel()

    def not_alive(self) -> HostGone:
        """Why nothing is begun with it."""
        why = "is connected and does not answer" if self._silent.is_set() else "can't be reached"
        return HostGone(f"host {self.id} {why}", host=self.id)

    async def reached(self, wait_s: float) -> None:
        """Raises `HostGone` where it can't be reached for so long."""
        await self._link.ready(wait_s)

    def tell(self, notice: object) -> None:
        """Tells the host, if it can be reached now; whatever hangs on it must end without it too."""
        with contextlib.suppress(HostGone):
            self._link.peer.notify(notice)

    def plans(self) -> list[Plan]:
        return list(self._plans.values())

    async def plan_of(self, spec: SessionSpec) -> Plan:
        """The host's plan for a world; asked once a process and world."""
        key = spec_key(spec)
        known = self._plans.get(key)
        if known is None:
            known = await self.call_while_it_answers(PlanOf(spec), Plan, PLAN_WAIT_S)
            self._plans[key] = known
        return known

    async def close(self) -> None:
        self._refreshing.cancel()
        await self._link.close()
        self._unwatch()

    async def _on_connected(self, peer: Peer) -> None:
        facts = await peer.call(Describe(), HostFacts, DESCRIBE_WAIT_S)
        if facts.host != self.id:
            raise UnknownHost(f"the socket of host {self.id} is answered by {facts.host!r}", host=self.id)
        if self.generation is not None and self.generation != facts.generation:
            self._declare_gone(self.generation)
        if self.generation != facts.generation:
            self._plans.clear()
        self._silent.clear()
        self.facts = facts
        self.incarnation = Incarnation(self.id, facts.generation, facts.pid, _born(facts.pid) or 0)
        self._watch(facts.pid, facts.generation)
        self._note_plans(facts)
        await self._events.connected(self, peer)
        asyncio.get_running_loop().call_soon(self._events.changed, self)
        self._closing = asyncio.create_task(self._tell_when_closed(peer))

    async def _tell_when_closed(self, peer: Peer) -> None:
        await peer.wait_closed()
        self._events.changed(self)

    async def _on_message(self, _peer: Peer, notice: Notice) -> None:
        self._events.notice(self.id, notice)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            if not self._link.connected:
                continue
            try:
                await self.describe()
            except WorldlineError as error:
                log.info("host %s did not describe itself: %s", self.id, error)

    def _falls_silent(self) -> None:
        if not self._silent.is_set():
            log.warning("host %s is connected and has not answered for %g s", self.id, DESCRIBE_WAIT_S)
            self._silent.set()
            self._events.changed(self)

    async def describe(self) -> HostFacts:
        """Its facts as they are now. Raises `HostGone`, also where it is connected and does not answer."""
        try:
            facts = await self.call(Describe(), HostFacts, DESCRIBE_WAIT_S)
        except TimedOut as error:
            self._falls_silent()
            raise self.not_alive() from error
        if facts.generation != self.generation:
            return facts
        if facts != self.facts or self._silent.is_set():
            self._silent.clear()
            self.facts = facts
            self._note_plans(facts)
            self._events.changed(self)
        self._events.described(self)
        return facts

    def _note_plans(self, facts: HostFacts) -> None:
        for session in facts.sessions:
            self._plans.setdefault(spec_key(session.spec), session.plan)

    def _watch(self, pid: int, generation: str) -> None:
        self._unwatch()
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:  # it has ended already; its next generation, or nobody, will answer
            self._declare_gone(generation)
            return
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit, generation)

    def _unwatch(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _on_exit(self, generation: str) -> None:
        self._unwatch()
        self._declare_gone(generation)

    def _declare_gone(self, generation: str) -> None:
        if generation in self._over:
            return
        self._over = [*self._over, generation][-GENERATIONS_MAX:]
        self._events.gone(self.id, generation)


SpecKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


def spec_key(spec: SessionSpec) -> SpecKey:
    """What of a spec decides its plan: the world and its options, not the seed."""
    return (spec.world, tuple(sorted((name, repr(value)) for name, value in spec.options.items())))


class Hosts:
    """All hosts: those named at start, and those whose sockets appear in the run directory later."""

    def __init__(self, run_dir: Path, events: HostEvents, seen: dict[str, Incarnation]) -> None:
        self._run_dir = run_dir
        self._events = events
        self._seen = seen
        self._links: dict[str, HostLink] = {}
        self.cordoning = asyncio.Lock()
        """Held from reading a cordon to changing it."""
        for host in seen:
            self.add(host)
        self._scanning = asyncio.create_task(self._scan(), name="scan for hosts")

    def add(self, host: str) -> HostLink:
        """The link to `host`, made if it is new."""
        if host not in self._links:
            socket = host_socket(self._run_dir, host)
            self._links[host] = HostLink(host, socket, self._events, self._seen.get(host))
        return self._links[host]

    def get(self, host: str) -> HostLink:
        """Raises `UnknownHost`, which lists the known ones."""
        link = self._links.get(host)
        if link is None:
            known = ", ".join(sorted(self._links))
            raise UnknownHost(f"there is no host {host[:80]!r}; known are {known}", host=host[:80], known=known)
        return link

    def all(self) -> list[HostLink]:
        return [self._links[host] for host in sorted(self._links)]

    def living(self, host: str) -> HostLink:
        """Raises `UnknownHost`, or `HostGone` while the host can't be reached."""
        link = self.get(host)
        if not link.alive:
            raise link.not_alive()
        return link

    def receiving(self, host: str) -> HostLink:
        """A living host that takes sessions. Raises as `living`, and `HostCordoned`."""
        link = self.living(host)
        if link.cordon is not None:
            how = "was given back" if link.cordon.released else "is cordoned"
            raise HostCordoned(f"host {host} {how} and takes no sessions; uncordon it first", host=host)
        return link

    def check_takes(self, host: str) -> None:
        """To be called when nothing is awaited any more before a session is sent there. Raises `HostCordoned`; a host
        that was given back takes sessions.
        """
        cordon = self.get(host).cordon
        if cordon is not None and not cordon.released:
            raise HostCordoned(f"host {host} was cordoned meanwhile and takes no sessions", host=host)

    def candidates(self, wish: str | None) -> list[HostLink]:
        """The host wished for, or all that take sessions, most free memory first, those given back last.

        Never empty: raises `HostGone`, `HostCordoned`.
        """
        if wish is not None:
            return [self.receiving(wish)]
        living = [link for link in self.all() if link.alive]
        if not living:
            raise HostGone("no host of the fleet can be reached, or answers")
        found = [link for link in living if link.cordon is None or link.cordon.released]
        if not found:
            raise HostCordoned("every host that can be reached is cordoned")
        return sorted(found, key=lambda link: (link.cordon is not None, -link.free_bytes, link.session_count, link.id))

    async def set_cordon(self, link: HostLink, cordon: Cordon | None) -> None:
        """Durable when it returns, and then told. To be called with `cordoning` held."""
        await self._events.cordoned(link.id, cordon)
        link.cordon = cordon
        self._events.changed(link)

    async def take_back(self, host: str) -> None:
        """A session comes to this host: if it was given back, it is in use again. Raises `RecordFailed`."""
        link = self.get(host)
        async with self.cordoning:
            if link.cordon is not None and link.cordon.released:
                await self.set_cordon(link, None)

    async def equal(self, spec: SessionSpec, plan_digest: str, not_on: str | None, room: Room = NO_ROOM) -> HostLink:
        """The first of `candidates` whose plan is the given one and which has `room`, be it in a warm slot; where all
        are full, the emptiest of them. Raises `PlanMismatch`, or `HostGone` where one could not say.
        """
        full: HostLink | None = None
        silent: HostGone | None = None
        for link in self.candidates(None):
            if link.id == not_on:
                continue
            try:
                plan = await link.plan_of(spec)
            except HostGone as error:
                silent = error
                continue
            if plan.digest == plan_digest:
                if link.room_bytes(room.arena_bytes) >= room.state_bytes:
                    return link
                full = full or link
        if full is not None:
            return full
        if silent is not None:
            raise silent
        where = "no host" if not_on is None else f"no host but {not_on}"
        raise PlanMismatch(f"{where} has the kernel plan that this session needs", plan=plan_digest)

    def known_plan(self, digest: str) -> Plan | None:
        """The plan of this digest, if a host told it since this process began."""
        return next((plan for link in self.all() for plan in link.plans() if plan.digest == digest), None)

    def is_gone(self, host: str) -> bool:
        """Whether the last process known of `host` has ended."""
        link = self._links.get(host)
        return link is None or (link.generation is not None and link.is_over(link.generation))

    async def close(self) -> None:
        self._scanning.cancel()
        await asyncio.gather(*(link.close() for link in self._links.values()))

    async def _scan(self) -> None:
        while True:
            for host in hosts_in(self._run_dir):
                self.add(host)
            await asyncio.sleep(SCAN_S)


def _born(pid: int) -> int | None:
    """The start time of a living process in ticks since boot (proc_pid_stat(5), field 22); None where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _lives(seen: Incarnation) -> bool:
    return _born(seen.pid) == seen.born
