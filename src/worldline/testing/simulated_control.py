"""The simulation's controller. Its record, its journal and the hosts it has seen survive it; everything else is memory.

It behaves as `runtime.controller*` does: only a process that is known to have ended is gone, a session is declared lost
only for that, and a host that holds what the record does not give it is told to close it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from worldline.control import order as words
from worldline.control import playback as play
from worldline.control.admission import HostSide, Image, Load, Wish, admit
from worldline.control.order import JournalPhase, Order, Owner
from worldline.errors import WorldlineError
from worldline.schema.contract import Tier
from worldline.schema.ids import Epoch, HostId, MoveId, SessionId
from worldline.schema.plan import Plan, Qualification
from worldline.schema.receipt import Mode
from worldline.testing.simulated_host import Host
from worldline.testing.simulated_orders import Entry, OrderRun
from worldline.testing.simulated_process import Process

if TYPE_CHECKING:
    from worldline.testing.simulation import Simulation

TRANSPORT = "simulated"
RECONCILE_S = 0.03
DESCRIBES_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
COMMITTED = frozenset({JournalPhase.COMMITTED, JournalPhase.DONE})


@dataclass(slots=True)
class Row:
    """A session in the record."""

    owner: Owner
    cut_block: int = 0
    image: str | None = None
    why_lost: str | None = None
    cuts: dict[Epoch, int] = field(default_factory=dict)
    veiled: Owner | None = None
    """The owner before, for as long as the one of the record is not known to play: what the gateway is told."""

    @property
    def who(self) -> tuple[str, Epoch]:
        return self.owner.host or "nobody", self.owner.epoch

    def swap(self, after: Owner, cut_block: int, image: str | None) -> None:
        self.owner, self.cut_block, self.image = after, cut_block, image
        self.cuts[after.epoch] = cut_block


def plan_of(name: str) -> Plan:
    return Plan("tiny", (("kernel", name),), name, name)


class Controller(Process):
    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim.timeline)
        self.sim = sim
        self.rows: dict[SessionId, Row] = {}
        self.journal: dict[str, Entry] = {}
        self.seen: dict[HostId, int] = {}
        """The life of each host that the record remembers."""
        self.moves = 0
        self._begin_memory()

    def _begin_memory(self) -> None:
        self.orders: dict[SessionId, OrderRun] = {}
        self._over: set[tuple[HostId, int]] = set()
        self._losses: dict[SessionId, tuple[Owner, str]] = {}

    def tell(self, line: str, *facts: object) -> None:
        self.sim.transcript.tell("controller", line, *facts)

    # ---- hosts

    def known_life(self, host: HostId) -> int | None:
        return self.seen.get(host)

    def is_over(self, host: HostId, life: int) -> bool:
        return (host, life) in self._over

    def reaches(self, host: Host, life: int | None) -> bool:
        """Whether the process that an order began with can be called."""
        same = life is None or life == self.seen.get(host.name)
        return same and host.alive and host.life == self.seen.get(host.name) and host.name not in self.sim.out_of_reach

    def host_ended(self, host: HostId, life: int) -> None:
        """The kernel says that a process has ended."""
        if (host, life) in self._over:
            return
        self._over.add((host, life))
        self.tell("host %s, generation %d, has ended", host, life)
        for run in tuple(self.orders.values()):
            run.check_hosts()
        if not self.alive:
            return
        for session, row in self.rows.items():
            if row.owner.host == host and self.seen.get(host) == life:
                self.doom(session, f"host {host} ended, and the session's memory with it")
        self.settle_all()

    def host_connected(self, host: Host) -> None:
        """A process answers in the host's name: it says who it is and which sessions it holds."""
        if not host.alive or host.name in self.sim.out_of_reach:
            return
        before = self.seen.get(host.name)
        if before is not None and before != host.life:
            self.host_ended(host.name, before)
            if not self.alive:
                return
        self.seen[host.name] = host.life
        for engine in tuple(host.engines.values()):
            session = engine.session.id
            if session not in self.orders and self.rows[session].owner != Owner(host.name, engine.epoch):
                self.tell("host %s holds %s, which the record does not give it", host.name, session)
                epoch = engine.epoch
                host.after(RECONCILE_S, lambda session=session, epoch=epoch: host.close(session, epoch))  # type: ignore[misc]
        self.look_at(host)
        for session, row in self.rows.items():
            if row.owner.host == host.name and session not in self.orders:
                here = host.engines.get(session)
                if here is None or here.epoch != row.owner.epoch:
                    self.doom(session, f"host {host.name} was started again and no longer has the session")
        self.settle_all()

    def look_at(self, host: Host) -> None:
        """It says again and again for which moves it waits. A call of one that is over may still be on its way."""
        for delay_s in DESCRIBES_S:
            self.after(delay_s, lambda: self._discard_strays(host))

    def _discard_strays(self, host: Host) -> None:
        if not self.reaches(host, None):
            return  # it is looked at when it connects
        for move in host.arrivals:
            entry = self.journal[move]
            if entry.ended and entry.phase not in COMMITTED:
                self.tell("host %s waits for %s, which is over", host.name, move)
                host.after(RECONCILE_S, lambda order=entry.order: host.discard(order))  # type: ignore[misc]

    # ---- loss

    def doom(self, session: SessionId, why: str) -> None:
        """The present owner has lost the session's state: settled when no order holds it."""
        row = self.rows[session]
        if row.owner.host is not None:
            self._losses.setdefault(session, (row.owner, why))

    def settle_all(self) -> None:
        for session in tuple(self._losses):
            self.settle(session)

    def settle(self, session: SessionId) -> None:
        if session in self.orders or session not in self._losses:
            return
        owner, why = self._losses.pop(session)
        row = self.rows[session]
        if row.owner == owner:
            self.tell("%s is lost: %s", session, why)
            self.sim.watch.declared_lost(session, owner)
            row.swap(Owner(None, Epoch(owner.epoch + 1)), row.cut_block, None)
            row.why_lost = why
            self.tell_gateway(session)

    # ---- orders

    def move(self, session: SessionId, mode: Mode, target: HostId | None, hands_over: bool) -> bool:
        """Begins an order; False where something stands against it before it begins."""
        row = self.rows[session]
        if not self.alive or self.stopped or session in self.orders or row.why_lost is not None:
            return False
        source = row.owner.host
        if (mode is Mode.RESUME) != (source is None) or (source is not None and source == target):
            return False
        contract = self.sim.contract_for(session)
        try:
            self._admit(session, mode, source, target, hands_over)
        except WorldlineError as error:
            self.tell("%s: %s to %s is refused before it begins: %s", session, mode.value, target, error.code)
            self.sim.counts.refused += 1
            return False
        self.moves += 1
        move = MoveId(f"m{self.moves}")
        image = {Mode.PARK: f"image-{move}", Mode.RESUME: row.image}.get(mode)
        order = Order(move, session, mode, source, target, row.owner.epoch, contract, hands_over, image)
        self.tell("%s %s: %s from %s to %s", session, move, mode.value, source, target)
        self._start(Entry(order, JournalPhase.BEGUN), words.Begin())
        return True

    def _admit(
        self, session: SessionId, mode: Mode, source: HostId | None, target: HostId | None, hands_over: bool
    ) -> None:
        if target is None:
            return
        contract = self.sim.sessions[session].contract
        here = self._side(source) if source is not None else Image("little", plan_of(self.sim.sessions[session].plan))
        there = self._side(target)
        known = Qualification("q", here.plan.digest, there.plan.digest, "tiny", 60, 60.0, 50.0, 3)
        qualification = known if contract.tier is Tier.T1 else None
        admit(Wish(mode, TRANSPORT, contract, Load(1, 0 if hands_over else 1), qualification), here, there)

    def _side(self, name: HostId) -> HostSide:
        host = self.sim.hosts[name]
        return HostSide(name, self.reaches(host, None), "little", plan_of(host.plan), host.free_slots, (TRANSPORT,))

    def _start(self, entry: Entry, first: words.Event) -> None:
        run = self.orders[entry.order.session] = OrderRun(self, entry)
        run.feed(first)
        if run.open:
            run.check_hosts()

    # ---- ends and beginnings

    def end(self) -> None:
        super().end()
        self.sim.counts.crashes += 1
        self.tell("ENDS")
        self._begin_memory()
        self.sim.timeline.after(self.sim.rng.uniform(0.05, 0.6), self.begin)

    def begin(self) -> None:
        """Reads the record, takes up what the journal shows as unfinished, and reaches for the hosts."""
        self.alive = True
        self.tell("begins anew")
        for host in self.sim.hosts.values():
            seen = self.seen.get(host.name)
            if seen is not None and seen != host.life:
                self._over.add((host.name, seen))
        for entry in tuple(self.journal.values()):
            if not entry.ended and self.alive:
                owner = self.rows[entry.order.session].owner
                self._start(entry, words.Recovered(entry.phase, owner, entry.receipt))
        if not self.alive:
            return
        for session, row in self.rows.items():
            owner_host = row.owner.host
            if owner_host is not None and self.is_over(owner_host, self.seen[owner_host]):
                self.doom(session, f"host {owner_host} ended while the controller was away")
        self.settle_all()
        for host in self.sim.hosts.values():
            self.after(self.sim.rng.uniform(0.01, 0.1), lambda host=host: self.host_connected(host))  # type: ignore[misc]
        self.after(0.05, self.snapshot)

    # ---- the gateway

    def tell_gateway(self, session: SessionId) -> None:
        row = self.rows[session]
        owner = row.veiled or row.owner
        told = play.OwnerChanged(owner.host, owner.epoch, row.cut_block)
        lost = row.why_lost is not None
        gateway = self.sim.gateway
        if gateway.alive:
            delay_s = self.sim.timeline.in_order(("told", gateway.life), self.sim.rng.uniform(0.001, 0.02))
            gateway.after(delay_s, lambda: gateway.owner_changed(session, told, lost))

    def unveil(self, session: SessionId) -> None:
        """The new owner is known to play, or nobody will."""
        self.rows[session].veiled = None
        self.tell_gateway(session)

    def snapshot(self) -> None:
        """What a subscriber is told first."""
        for session in self.rows:
            self.tell_gateway(session)
