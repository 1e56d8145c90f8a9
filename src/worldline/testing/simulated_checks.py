"""What must hold beyond single steps: who holds a state, who may say that it is lost, and what is left over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worldline.control.order import Finish, Outcome, Owner, Side
from worldline.schema.contract import Tier
from worldline.schema.ids import HostId, SessionId
from worldline.testing.simulated_host import Host
from worldline.testing.simulated_orders import OrderRun

if TYPE_CHECKING:
    from worldline.testing.simulation import Simulation


@dataclass(frozen=True, slots=True)
class _Holder:
    """The process that has the state of the record's owner."""

    host: HostId
    life: int | None


class Watch:
    """Told of what happens. Fails the history where it must not."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._holders: dict[SessionId, _Holder] = {}

    def opened(self, session: SessionId, host: Host) -> None:
        self._holders[session] = _Holder(host.name, host.life)

    def owner_changed(self, run: OrderRun, owner: Owner) -> None:
        """The record names another owner: the process that proved the bytes holds them now, or has ended; or the one
        that sealed them has them again.
        """
        order, truth = run.order, self.sim.sessions[run.order.session]
        if owner.host is None:
            self._holders.pop(order.session, None)
            return
        host = self.sim.hosts[owner.host]
        self._holders[order.session] = _Holder(
            host.name, run.lives[Side.SOURCE if owner == order.returned else Side.TARGET]
        )
        if truth.contract.tier is Tier.T0 and host.plan != truth.plan:
            self.sim.fail(f"{order.session} was promised T0, and {owner.host} has another plan")

    def declared_lost(self, session: SessionId, owner: Owner) -> None:
        """Honest only if the process that held the state has ended."""
        self.sim.counts.lost += 1
        holder = self._holders.get(session)
        assert owner.host is not None, "who is parked is not lost"
        if holder is not None and self.sim.hosts[holder.host].life == holder.life:
            engine = self.sim.hosts[holder.host].engines.get(session)
            here = "holds it" if engine is not None and engine.epoch == owner.epoch else "has proven it"
            self.sim.fail(f"{session} is declared lost, and {holder.host}, which {here}, lives")

    def order_ended(self, run: OrderRun, finish: Finish) -> None:
        """No side that could be told still holds memory for the order."""
        order = run.order
        if finish.outcome is Outcome.LOST and not order.hands_over:
            stands = order.source is None or self.sim.hosts[order.source].life == run.lives[Side.SOURCE]
            self.sim.counts.source_stood += stands
        if finish.note is not None:
            return
        for side, life in run.lives.items():
            host = self.sim.hosts[run.host_id(side)]
            if host.life == life and order.move in host.memory:
                self.sim.fail(f"{order.move} is over, and {host.name} still holds an arena for it")

    def check_end(self) -> None:
        owned: dict[HostId, set[str]] = {host: set() for host in self.sim.hosts}
        for session, row in self.sim.controller.rows.items():
            truth = self.sim.sessions[session]
            playing = [engine.who for engine in truth.engines if engine.plays]
            if row.owner.host is None:
                if playing:
                    self.sim.fail(f"nobody owns {session}, and {playing} play")
                self.sim.counts.damaged += row.why_lost is None
                continue
            if playing != [(row.owner.host, row.owner.epoch)]:
                self.sim.fail(f"the record says {row.owner} of {session}, and {playing} play")
            engine = truth.engines[0] if len(truth.engines) == 1 else None
            if engine is None or engine.block != len(truth.actions):
                self.sim.fail(
                    f"{len(truth.actions)} actions of {session} and {[e.block for e in truth.engines]} applied"
                )
            owned[row.owner.host].add(session)
        for host in self.sim.hosts.values():
            self._check_leftovers(host, owned[host.name])

    def _check_leftovers(self, host: Host, owned: set[str]) -> None:
        if host.memory != owned:
            self.sim.fail(f"leak: host {host.name} holds memory for {sorted(host.memory)} and owns {sorted(owned)}")
        for move, incoming in host.targets.items():
            if not incoming.over:
                self.sim.fail(f"{move} is still {incoming.machine.phase} at its target {host.name}")
        for move, outgoing in host.sources.items():
            if not outgoing.over and not outgoing.engine.ended:
                self.sim.fail(f"{move} is still {outgoing.machine.phase} at its source {host.name}")
