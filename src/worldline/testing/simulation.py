"""Whole histories of a fleet in one thread and no real time: `python -m worldline.testing.simulation --seed 7`.

The machines are the real ones: source, target, hand-over, playback, and admission. Around them everything that may go
wrong does, by one seed: calls and answers are lost, late or repeated; links flip, withhold and break, and write late;
something writes into a frozen session; disks fail, tear and do not say what they did; targets lie; processes end
between any two commands, are stopped and wake, and begin anew knowing nothing. Players act all along, and orders move,
park and resume several sessions over hosts with little memory.

Checked after every step
  At most one engine can show frames of a session.
  A block is generated once, by one lineage, from its one action, and its bytes are an unmoved session's.
  An owner that takes over has, byte for byte, the state that the unmoved session has after the same block.
  A handed-over arena is mapped by one side when it comes to life.
  A player's blocks come in order, none twice, none skipped without being told, each the unmoved session's picture.
  A session is declared lost only when the process that held it has ended.
Checked at the end of an order: no side that could be reached holds memory for it.
Checked when trouble has stopped
  Everything comes to rest in bounded time; the record's owner plays, alone, and has applied each action once; or the
  session is lost; or it lies in an image that the disk has damaged, and says so. Memory is held by owned sessions
  alone. Then the next move of each session succeeds, and it plays on.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NoReturn

from worldline.control.handoff import Handoff
from worldline.control.order import Owner
from worldline.control.playback import Playback
from worldline.errors import WorldlineError
from worldline.migration import source, target
from worldline.schema.contract import Contract, Tier
from worldline.schema.ids import Epoch, HostId, SessionId
from worldline.schema.receipt import Mode
from worldline.testing.simulated_checks import Watch
from worldline.testing.simulated_control import Controller, Row
from worldline.testing.simulated_gateway import Gateway
from worldline.testing.simulated_host import Host
from worldline.testing.simulated_moves import Images
from worldline.testing.simulated_process import CHANCES, Ending, Timeline, Transcript, Trouble
from worldline.testing.simulated_session import Session

__all__ = ["CHANCES", "QUIET", "Ending", "Kinds", "Simulation", "Tally", "Violation", "Wish", "main"]

QUIET: Mapping[str, float] = dict.fromkeys(CHANCES, 0.0)
ACTIONS = 40
ACTIONS_AFTER = 3
ORDERS = 5
ORDER_GAP_S = 1.1
TROUBLE_ENDS_S = 7.0
REST_WAIT_S = 150.0
"""Longer than any call is repeated."""
LOOK_S = 0.25
PLANS = {"a": "p", "b": "p", "c": "p", "d": "q"}
EASY = (1.0, 10.0)
TIGHT = (0.05, 0.5)
"""Pause bound and completion deadline, in seconds."""


class Violation(AssertionError):
    """An invariant does not hold. `transcript` tells the history."""

    def __init__(self, sentence: str, transcript: list[str]) -> None:
        super().__init__(sentence)
        self.transcript = transcript


@dataclass(frozen=True, slots=True)
class Kinds:
    """The machines under test; sabotage puts others in their place."""

    source: type[source.SourceMachine] = source.SourceMachine
    target: type[target.TargetMachine] = target.TargetMachine
    handoff: type[Handoff] = Handoff
    playback: type[Playback] = Playback
    host: type[Host] = Host


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asks of session 0 at a time; `target` None: a park, or for a resume any host."""

    at_s: float
    mode: Mode
    target: str | None = None
    hands_over: bool = False


@dataclass(slots=True)
class Counts:
    """What happened so far."""

    done: int = 0
    refused: int = 0
    returned: int = 0
    lost: int = 0
    source_stood: int = 0
    """Of the lost: sessions whose copied source, or whose image, still stood when their target was known to have ended
    before it played.
    """
    damaged: int = 0
    crashes: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened in one history."""

    seed: int
    sessions: int
    moves_done: int
    moves_refused: int
    moves_returned: int
    lost: int
    source_stood: int
    damaged: int
    """Parked in an image that the disk has damaged: every resume is refused."""
    shown: int
    missed: int
    crashes: int
    faults: int
    steps: int


@dataclass(slots=True)
class Simulation:
    """One history. `wishes` replaces the seed's orders by these, of one session that is alone."""

    seed: int
    kinds: Kinds = field(default_factory=Kinds)
    chances: Mapping[str, float] = field(default_factory=lambda: CHANCES)
    wishes: tuple[Wish, ...] | None = None
    ending: Ending | None = None
    counts: Counts = field(default_factory=Counts)
    out_of_reach: set[HostId] = field(default_factory=set)
    """Hosts that run and can't be called."""

    rng: random.Random = field(init=False)
    timeline: Timeline = field(init=False)
    transcript: Transcript = field(init=False)
    trouble: Trouble = field(init=False)
    images: Images = field(init=False)
    hosts: dict[HostId, Host] = field(init=False)
    sessions: dict[SessionId, Session] = field(init=False)
    controller: Controller = field(init=False)
    gateway: Gateway = field(init=False)
    watch: Watch = field(init=False)
    _steps: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.timeline = Timeline()
        self.transcript = Transcript(self.timeline)
        self.trouble = Trouble(self.rng, self.chances, self.ending)
        self.images = Images(self)
        self.watch = Watch(self)
        self.hosts = {HostId(name): self.kinds.host(self, name, plan) for name, plan in PLANS.items()}
        self.controller = Controller(self)
        self.gateway = Gateway(self)
        self.sessions = {}
        for host in self.hosts.values():
            self.controller.seen[host.name] = host.life
        for number in range(1 if self.wishes is not None else self.rng.randrange(1, 4)):
            self._open(number)
        self.controller.snapshot()

    def _open(self, number: int) -> None:
        name = SessionId(f"s{number}")
        roomy = [host for host in self.hosts.values() if host.free_slots > 0 and host.plan == PLANS["a"]]
        host = roomy[0] if number == 0 else self.rng.choice(roomy)
        contract = Contract(Tier.T1, *EASY, 40.0) if self.rng.random() < 0.3 else Contract(Tier.T0, *EASY)
        actions = [self.rng.randrange(256) for _ in range(ACTIONS)]
        session = self.sessions[name] = Session(self, name, contract, host.plan, actions)
        host.open(name)
        self.controller.rows[name] = Row(Owner(host.name, Epoch(1)))
        self.watch.opened(name, host)
        self.gateway.join(session)

    # ---- the history

    def run(self) -> Tally:
        """Plays the history out. Raises `Violation`."""
        try:
            self._plan_orders()
            self.go_on(TROUBLE_ENDS_S)
            return self.finish()
        except Violation:
            raise
        except Exception as error:  # noqa: BLE001 - the root of a history: whatever a machine raises has its seed
            self.fail(f"{type(error).__name__}: {error}")

    def finish(self) -> Tally:
        """No more trouble: everything comes to rest, and is checked. Raises `Violation`."""
        self._calm()
        self._rest("everything")
        self._move_again()
        self.watch.check_end()
        return self._tally()

    def go_on(self, seconds: float) -> None:
        """Plays on for so long. Raises `Violation`."""
        end_s = self.timeline.now_s + seconds
        while self.timeline.step(end_s):
            self._steps += 1
            for session in self.sessions.values():
                if len(session.engines) > 1:
                    session.check_one_plays()
        self.timeline.now_s = end_s

    def _plan_orders(self) -> None:
        if self.wishes is not None:
            for wish in self.wishes:
                self.timeline.after(wish.at_s, lambda wish=wish: self._wish(wish))  # type: ignore[misc]
            return
        for session in self.sessions:
            for order in range(ORDERS):
                at_s = 0.3 + order * ORDER_GAP_S + self.rng.uniform(0, 0.8)
                self.timeline.after(at_s, lambda session=session: self._order(session))  # type: ignore[misc]

    def _wish(self, wish: Wish) -> None:
        to = None if wish.target is None else HostId(wish.target)
        if not self.controller.move(SessionId("s0"), wish.mode, to, wish.hands_over) and not self.controller.alive:
            self.timeline.after(LOOK_S, lambda: self._wish(wish))

    def _order(self, session: SessionId) -> None:
        self._make_trouble(session)
        owner = self.controller.rows[session].owner
        target = self.rng.choice(list(self.hosts))
        if owner.host is None:
            self.controller.move(session, Mode.RESUME, target, hands_over=False)
        elif self.rng.random() < 0.2:
            self.controller.move(session, Mode.PARK, None, hands_over=False)
        else:
            mode = self.rng.choice((Mode.FREEZE, Mode.PRECOPY, Mode.PRECOPY))
            self.controller.move(session, mode, target, hands_over=self.rng.random() < 0.3)

    def contract_for(self, session: SessionId) -> Contract:
        """The session's, at times with bounds that can hardly be kept."""
        promised = self.sessions[session].contract
        if not self.trouble.on or self.wishes is not None or self.rng.random() < 0.5:
            return promised
        return Contract(promised.tier, *TIGHT, promised.readout_psnr_db_min)

    # ---- trouble that is not between two commands

    def _make_trouble(self, session: SessionId) -> None:
        trouble, rng = self.trouble, self.rng
        soon_s = rng.uniform(0, 0.4)
        if trouble.chance("host-ends"):
            host = rng.choice(list(self.hosts.values()))
            self.timeline.after(soon_s, lambda: self.end_host(host))
        if trouble.chance("host-stops"):
            self.stop(rng.choice(list(self.hosts.values())), soon_s)
        if trouble.chance("controller-stops"):
            self.stop(self.controller, soon_s)
        if trouble.chance("gateway-stops"):
            self.stop(self.gateway, soon_s)
        if trouble.chance("host-out-of-reach"):
            name = rng.choice(list(self.hosts))
            self.timeline.after(soon_s, lambda: self.out_of_reach.add(name))
            self.timeline.after(soon_s + rng.uniform(0.1, 3.0), lambda: self._reach_again(name))
        if trouble.chance("play-link-drops"):
            self.gateway.after(soon_s, lambda: self.gateway.drop_link(session))

    def stop(self, process: Host | Controller | Gateway, soon_s: float) -> None:
        self.timeline.after(soon_s, lambda: process.stop() if process.alive else None)
        self.timeline.after(soon_s + self.rng.uniform(0.05, 4.0), process.wake)

    def _reach_again(self, name: HostId) -> None:
        if name in self.out_of_reach:
            self.out_of_reach.remove(name)
            self.controller.after(0.01, lambda: self.controller.host_connected(self.hosts[name]))

    def end_host(self, host: Host) -> None:
        if not host.alive:
            return
        life = host.life
        host.end()
        host.tell("ENDS, generation %d", life)
        self.counts.crashes += 1
        self.gateway.host_ended(host.name)
        self.controller.after(self.rng.uniform(0.01, 0.5), lambda: self.controller.host_ended(host.name, life))
        self.timeline.after(self.rng.uniform(0.05, 1.0), lambda: self._begin_host(host))

    def _begin_host(self, host: Host) -> None:
        host.begin()
        self.controller.after(self.rng.uniform(0.01, 0.1), lambda: self.controller.host_connected(host))

    def _calm(self) -> None:
        self.trouble.on = False
        for process in (*self.hosts.values(), self.controller, self.gateway):
            process.wake()
        for name in tuple(self.out_of_reach):
            self._reach_again(name)

    # ---- rest

    def _rest(self, what: str) -> None:
        """Goes on until nothing is under way. A history that does not come to rest hangs."""
        ends_s = self.timeline.now_s + REST_WAIT_S
        for _ in count():
            self.go_on(LOOK_S)
            unrest = self._unrest()
            if unrest is None:
                return
            if self.timeline.now_s > ends_s:
                self.fail(f"hang: {what} did not come to rest within {REST_WAIT_S:.0f} s: {unrest}")

    def _unrest(self) -> str | None:
        if not self.controller.alive or not self.gateway.alive or not all(host.alive for host in self.hosts.values()):
            return "a process is to begin anew"
        if not all(self.controller.reaches(host, None) for host in self.hosts.values()):
            return "a host is to be reached"
        for session, truth in self.sessions.items():
            row, run = self.controller.rows[session], self.controller.orders.get(session)
            if run is not None:
                return f"{run.order.move} is {run.machine.phase.value}: {'; '.join(run.machine.story[-4:])}"
            if row.why_lost is not None:
                continue
            if row.owner.host is None:
                if self._resume_refused(session, row):
                    continue
                return f"{session} is parked"
            seen = self.gateway.players[session].seen
            if seen < len(truth.actions):
                return f"{seen} of {len(truth.actions)} blocks of {session} were shown"
        return None

    def _resume_refused(self, session: SessionId, row: Row) -> bool:
        """Asks for a resume, unless the image is damaged: then every resume says so."""
        assert row.image is not None, "a parked session has an image"
        try:
            self.images.read(row.image)
        except WorldlineError:
            return True
        self.controller.move(session, Mode.RESUME, self._elsewhere(session), hands_over=False)
        return False

    def _elsewhere(self, session: SessionId) -> HostId:
        """A host that the session may be on, and is not."""
        truth, owner = self.sessions[session], self.controller.rows[session].owner
        fits = [host for host in self.hosts.values() if truth.contract.tier is Tier.T1 or host.plan == truth.plan]
        free = [host for host in fits if host.name != owner.host]
        return max(free, key=lambda host: host.free_slots).name

    def _move_again(self) -> None:
        """After whatever there was, the next move of each session succeeds and it plays on."""
        for session, truth in self.sessions.items():
            row = self.controller.rows[session]
            if row.owner.host is None:
                continue
            mode, hands_over = self.rng.choice((Mode.FREEZE, Mode.PRECOPY)), self.rng.random() < 0.5
            to, epoch = self._elsewhere(session), row.owner.epoch
            if not self.controller.move(session, mode, to, hands_over):
                self.fail(f"the next move of {session} to {to} was refused before it began")
            truth.actions += [self.rng.randrange(256) for _ in range(ACTIONS_AFTER)]
            self._rest(f"the next move of {session}")
            if row.owner != Owner(to, Epoch(epoch + 1)):
                self.fail(f"the next move of {session} to {to} did not succeed: {row.owner} owns it")

    # ---- what must hold

    def fail(self, what: str) -> NoReturn:
        """Raises `Violation`."""
        sentence = f"seed {self.seed} at {self.timeline.now_s:.4f} s: {what}"
        raise Violation(sentence, self.transcript.lines())

    def _tally(self) -> Tally:
        counts, players = self.counts, self.gateway.players.values()
        return Tally(
            seed=self.seed,
            sessions=len(self.sessions),
            moves_done=counts.done,
            moves_refused=counts.refused,
            moves_returned=counts.returned,
            lost=counts.lost,
            source_stood=counts.source_stood,
            damaged=counts.damaged,
            shown=sum(player.shown for player in players),
            missed=sum(player.missed for player in players),
            crashes=counts.crashes,
            faults=self.trouble.planted.total(),
            steps=self._steps,
        )


def main(arguments: list[str] | None = None) -> int:
    """Replays histories, one line each; one alone, or the first that breaks an invariant, with its transcript."""
    parser = argparse.ArgumentParser(prog="python -m worldline.testing.simulation", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--histories", type=int, default=1)
    options = parser.parse_args(arguments)
    for seed in range(options.seed, options.seed + options.histories):
        simulation = Simulation(seed)
        try:
            tally = simulation.run()
        except Violation as violation:
            sys.stdout.write("\n".join(violation.transcript) + "\n")
            sys.stderr.write(f"{violation}\n")
            return 1
        if options.histories == 1:
            sys.stdout.write("\n".join(simulation.transcript.lines()) + "\n")
        sys.stdout.write(f"{tally}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
