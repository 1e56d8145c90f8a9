"""The simulation's controller, with a record and a journal that survive it, and its gateway with a player."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from worldline.control import order as words
from worldline.control import playback as play
from worldline.control.handoff import Handoff
from worldline.control.order import SIDE_OF, Call, JournalPhase, Order, Outcome, Owner, Side
from worldline.errors import HostGone, TimedOut, WorldlineError
from worldline.migration import source, target
from worldline.schema.contract import Contract
from worldline.schema.ids import Epoch, HostId, MoveId, SessionId
from worldline.schema.receipt import Mode, Receipt

if TYPE_CHECKING:
    from worldline.testing.simulated_host import Host
    from worldline.testing.simulated_session import Engine
    from worldline.testing.simulation import Simulation

CALL_TIMEOUT_S = 1.5
EASY = Contract(pause_bound_s=1.0, completion_deadline_s=10.0)
TIGHT = Contract(pause_bound_s=0.05, completion_deadline_s=0.5)


@dataclass(slots=True)
class Record:
    """The session in the store."""

    owner: Owner
    cut_block: int = 0
    image: str | None = None
    lost: bool = False


@dataclass(slots=True)
class Entry:
    """An order in the journal."""

    order: Order
    phase: JournalPhase
    receipt: Receipt | None = None
    ended: bool = False


@dataclass(slots=True)
class Controller:
    """Drives one hand-over at a time. `record` and `journal` survive a crash; the machine and its calls do not."""

    sim: Simulation
    record: Record = field(default_factory=lambda: Record(Owner(HostId("a"), Epoch(1))))
    journal: dict[str, Entry] = field(default_factory=dict)
    handoff: Handoff | None = None
    done: int = 0
    refused: int = 0
    life: int = 0
    """Counts crashes: what was meant for an earlier life is dropped."""
    alive: bool = True
    moves: int = 0
    entry: Entry | None = None

    # ---- wishes

    def wish(self) -> None:
        """A user asks for something that the session's condition allows, or for nothing."""
        sim, owner = self.sim, self.record.owner
        if not self.alive or self.handoff is not None or self.record.lost:
            return
        if owner.host is not None and not sim.hosts[owner.host].alive:
            return
        others = [host.name for host in sim.hosts.values() if host.alive and host.name != owner.host]
        if owner.host is None:
            self._start(Mode.RESUME, None, sim.rng.choice(others))
        elif sim.rng.random() < 0.2 or not others:
            self._start(Mode.PARK, owner.host, None)
        else:
            self._start(sim.rng.choice([Mode.FREEZE, Mode.PRECOPY, Mode.PRECOPY]), owner.host, sim.rng.choice(others))

    def resume_if_parked(self) -> None:
        """Nobody likes a history that ends in an image."""
        waiting = self.handoff is not None or not self.alive
        if waiting or (self.record.owner.host is None and not self.record.lost):
            if not waiting:
                self.wish()
            self.sim.after(5.0, self.resume_if_parked)

    def _start(self, mode: Mode, owner: HostId | None, to: HostId | None) -> None:
        self.moves += 1
        move = MoveId(f"m{self.moves}")
        image = {Mode.PARK: f"image-{move}", Mode.RESUME: self.record.image}.get(mode)
        bounds = self.sim.rng.choice((EASY, TIGHT)) if self.sim.trouble else EASY
        hands_over = mode in (Mode.FREEZE, Mode.PRECOPY) and self.sim.rng.random() < 0.3
        order = Order(move, SessionId("s"), mode, owner, to, self.record.owner.epoch, bounds, hands_over, image)
        self.handoff = self.sim.kinds.handoff(order, self.sim.now_s)
        self.entry = Entry(order, JournalPhase.BEGUN)
        self.feed(words.Begin())

    # ---- ends and beginnings

    def crash(self) -> None:
        """The process ends; another one starts a little later and reads the journal."""
        if self.alive:
            self.alive = False
            self.life += 1
            self.handoff = self.entry = None
            self.sim.after(self.sim.rng.uniform(0.05, 1.0), self._restart)

    def _restart(self) -> None:
        self.alive = True
        for entry in self.journal.values():
            if not entry.ended:
                self.entry = entry
                self.handoff = self.sim.kinds.handoff(entry.order, self.sim.now_s)
                self.feed(words.Recovered(entry.phase, self.record.owner, entry.receipt))
        for host in self.sim.hosts.values():
            if not host.alive:
                self.host_gone(host.name)

    def host_gone(self, name: HostId) -> None:
        """A watcher has seen the process end."""
        if not self.alive:
            return
        if self.entry is not None:
            order = self.entry.order
            for who, host in ((Side.SOURCE, order.source), (Side.TARGET, order.target)):
                if host == name:
                    self.feed(words.HostGone(who))
        self._check_owner_lives()

    def _check_owner_lives(self) -> None:
        host = self.record.owner.host
        if self.handoff is None and host is not None and not self.sim.hosts[host].alive:
            self.record.lost = True

    # ---- the machine's commands

    def feed(self, event: words.Event) -> None:
        if self.handoff is None:
            return
        for command in self.handoff.handle(event, self.sim.now_s):
            self._do(command)
        if self.handoff is not None:
            life = self.life
            self.sim.wake(
                self.handoff.wake_at_s, lambda: self.feed(words.DeadlinePassed()) if life == self.life else None
            )

    def _do(self, command: words.Command) -> None:
        entry = self.entry
        assert entry is not None, "a machine has its order"
        order, hosts = entry.order, self.sim.hosts
        match command:
            case words.Journal(phase):
                self.journal[order.move] = entry
                entry.phase = phase
                entry.ended = phase is JournalPhase.DONE
            case words.PrepareTarget():
                ready = words.TargetReady("simulated", "there", b"k")
                self._simple(Call.PREPARE_TARGET, lambda host: host.prepare(order), ready)
            case words.RunSource():
                self._call(Call.RUN_SOURCE, lambda host, answer: host.run_source(order, answer), _from_source)
            case words.AwaitPrepared():
                at = hosts[order.target or HostId("")]
                self._call(
                    Call.AWAIT_PREPARED,
                    lambda host, answer: host.await_prepared(order, answer),
                    lambda said: _from_target(said, at, order),
                )
            case words.WriteImage():
                self._call(
                    Call.WRITE_IMAGE,
                    lambda host, answer: host.write_image(order, answer),
                    words.ImageWritten,
                )
            case words.LoadImage():
                self._call(
                    Call.LOAD_IMAGE,
                    lambda host, answer: answer(host.load_image(order)),
                    words.TargetPrepared,
                )
            case words.SwapOwner():
                self._swap(command, entry)
            case words.ReadOwner(delay_s):
                self._later(delay_s, lambda: self.feed(words.OwnerRead(self.record.owner)))
            case words.Activate(_, delay_s):
                self._simple(Call.ACTIVATE, lambda host: host.activate(order), words.Activated(), delay_s)
            case words.Retire(_, delay_s):
                self._simple(Call.RETIRE, lambda host: host.retire(order), words.Retired(), delay_s)
            case words.Discard(delay_s):
                self._simple(Call.DISCARD, lambda host: host.discard(order), words.Discarded(), delay_s)
            case words.Thaw(delay_s):
                self._simple(Call.THAW, lambda host: host.thaw(order), words.Thawed(), delay_s)
            case words.PublishOwner(owner, cut_block):
                changed = play.OwnerChanged(owner.host, owner.epoch, cut_block)
                self.sim.after(self.sim.rng.uniform(0.001, 0.05), lambda: self.sim.gateway.owner_changed(changed))
            case words.Finish():
                self._finish(command, entry)
            case _:
                assert_never(command)

    def _finish(self, finish: words.Finish, entry: Entry) -> None:
        entry.ended = True
        self.record.lost |= finish.lost
        self.done += finish.outcome is Outcome.DONE
        self.refused += finish.outcome is Outcome.REFUSED
        self.handoff = self.entry = None
        self._check_owner_lives()

    def _swap(self, command: words.SwapOwner, entry: Entry) -> None:
        """One transaction: all of it or nothing, whatever the caller gets to hear."""
        unknown = self.sim.chance("swap-unknown")
        ok = self.record.owner == command.before and entry.phase is JournalPhase.BEGUN
        if ok and not (unknown and self.sim.rng.random() < 0.5):
            self.record.owner, self.record.cut_block = command.after, command.receipt.block
            self.record.image = entry.order.image if command.after.host is None else None
            entry.phase, entry.receipt = JournalPhase.COMMITTED, command.receipt
        event = words.SwapUnknown("the disk did not answer") if unknown else words.Swapped(ok)
        self._later(0.001, lambda: self.feed(event))

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        life = self.life
        self.sim.after(delay_s, lambda: action() if life == self.life else None)

    # ---- calls to hosts: lost, late, or answered

    def _simple(self, call: Call, work: Callable[[Host], None], event: words.Event, delay_s: float = 0.0) -> None:
        def answered(host: Host, answer: Callable[[object], None]) -> None:
            work(host)
            answer(event)

        self._later(delay_s, lambda: self._call(call, answered, lambda _: event))

    def _call(
        self,
        call: Call,
        work: Callable[[Host, Callable[[object], None]], None],
        to_event: Callable[..., words.Event],
    ) -> None:
        entry = self.entry
        if entry is None:
            return
        sim, life = self.sim, self.life
        order = entry.order
        name = order.source if SIDE_OF[call] is Side.SOURCE else order.target
        assert name is not None, "a call has a side that the order has"
        host = sim.hosts[name]
        open_ = [True]

        def end(event: words.Event) -> None:
            if open_[0] and life == self.life and self.entry is entry:
                open_[0] = False
                self.feed(event)

        def answer(said: object) -> None:
            if not sim.chance("answer-lost"):
                sim.after(sim.rng.uniform(0.001, 0.01), lambda: end(to_event(said)))

        def arrive() -> None:
            if not host.alive:
                end(words.PeerFailed(call, HostGone.code, f"host {name} is gone"))
                return
            try:
                work(host, answer)
            except WorldlineError as error:
                failed = words.PeerFailed(call, error.code, error.sentence)
                sim.after(0.002, lambda: end(failed))

        if not sim.chance("request-lost"):
            late_s = sim.rng.uniform(0.2, 3.0) if sim.chance("call-late") else 0.0
            sim.after(late_s + sim.rng.uniform(0.001, 0.01), arrive)
        bulk = call in (Call.RUN_SOURCE, Call.AWAIT_PREPARED)
        timeout_s = order.contract.completion_deadline_s + CALL_TIMEOUT_S if bulk else CALL_TIMEOUT_S
        sim.after(timeout_s, lambda: end(words.PeerFailed(call, TimedOut.code, "no answer")))


def _from_source(said: object) -> words.Event:
    if isinstance(said, source.Sealed):
        return words.SourceSealed(
            said.root.hex(), said.block, said.number, said.frozen_at_s, said.bytes_moved, said.rounds
        )
    assert isinstance(said, source.Failed), "a source seals or fails"
    return words.PeerFailed(Call.RUN_SOURCE, said.code, said.sentence, said.facts)


def _from_target(said: object, host: Host, order: Order) -> words.Event:
    if isinstance(said, target.Prepared):
        return words.TargetPrepared(host.targets[order.move].receipt(said))
    assert isinstance(said, target.Failed), "a target proves or fails"
    return words.PeerFailed(Call.AWAIT_PREPARED, said.code, said.sentence, said.facts)


class Gateway:
    """The player's side: real playback over connections that keep order and can drop."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.playback = sim.kinds.playback(play.OwnerChanged(HostId("a"), Epoch(1), 0), 0, 0)
        self.shown = 0
        self.missed = 0
        self._links: dict[Epoch, int] = {}
        """Connection number by epoch; what a connection before it carried is lost."""
        self._hosts: dict[Epoch, HostId] = {Epoch(1): HostId("a")}
        self._opened = 0

    def begin(self) -> None:
        self._attach(Epoch(1))

    def act(self, number: int, action: int) -> None:
        """The player sends; where it is refused it tries again, as a player does."""
        commands = self._feed(play.ActionIn(number, action))
        if any(isinstance(command, play.Reject) for command in commands):
            self.sim.after(0.2, lambda: self.act(number, action))

    def owner_changed(self, event: play.OwnerChanged) -> None:
        self._feed(event)
        if event.host is not None and event.epoch not in self._hosts:
            self._hosts[event.epoch] = event.host
            self._attach(event.epoch)

    def _attach(self, epoch: Epoch) -> None:
        host = self.sim.hosts[self._hosts[epoch]]
        engine = host.engine
        if not host.alive or epoch != max(self._hosts):
            return
        if engine is None or engine.closed or engine.epoch != epoch:
            self.sim.after(0.1, lambda: self._attach(epoch))
            return
        self._opened += 1
        self._links[epoch] = self._opened
        self._feed(play.HostLinkUp(epoch, engine.block, engine.block))

    def drop_link(self) -> None:
        epoch = max(self._hosts)
        if self._links.pop(epoch, None) is not None:
            self._feed(play.HostLinkDown(epoch))
            self.sim.after(0.1, lambda: self._attach(epoch))

    def host_gone(self, host: Host) -> None:
        for epoch, name in self._hosts.items():
            if name == host.name and self._links.pop(epoch, None) is not None:
                self.sim.after(0.02, lambda epoch=epoch: self._feed(play.HostLinkDown(epoch)))  # type: ignore[misc]

    def block_from(self, engine: Engine) -> None:
        """A host sends a block to whoever is attached."""
        link = self._links.get(engine.epoch)
        if link is None:
            return
        block = play.BlockIn(engine.epoch, engine.block, engine.block, None)
        picture = self.sim.picture_of(engine)
        block = replace(block, content=picture)
        self.sim.in_order(
            f"blocks-{link}", lambda: self._feed(block) if self._links.get(engine.epoch) == link else None
        )

    def _feed(self, event: play.PlayEvent) -> list[play.PlayCommand]:
        commands = self.playback.handle(event, self.sim.now_s)
        for command in commands:
            self._do(command)
        self.sim.wake(self.playback.wake_at_s, lambda: self._feed(play.Waited()))
        return commands

    def _do(self, command: play.PlayCommand) -> None:
        sim = self.sim
        match command:
            case play.SendAct(_, epoch, number, action):
                link = self._links.get(epoch)
                sim.in_order(f"acts-{link}", lambda: self._act_at_host(epoch, link, number, action))
            case play.Deliver(block):
                self.shown += 1
                if block.block != self.shown + self.missed:
                    sim.fail(f"block {block.block} was shown as number {self.shown + self.missed}")
                if block.content != sim.picture(block.block):
                    sim.fail(f"block {block.block} of epoch {block.epoch} has not the unmoved session's picture")
            case play.Missed(first, last):
                self.missed += last - first + 1
                if last != self.shown + self.missed:
                    sim.fail(f"blocks {first} to {last} were missed out of order")
            case play.DropStale() | play.Reject():
                pass
            case _:
                assert_never(command)

    def _act_at_host(self, epoch: Epoch, link: int | None, number: int, action: int) -> None:
        host = self.sim.hosts[self._hosts[epoch]]
        engine = host.engine
        if link is None or self._links.get(epoch) != link or not host.alive:
            return
        if engine is None or engine.closed or engine.epoch != epoch:
            return
        expected = engine.act(number, action)
        if expected is not None:
            self._feed(play.RejectedIn(epoch, number, expected))
