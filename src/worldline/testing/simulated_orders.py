"""One order of the simulation's controller: the real hand-over machine, its calls to hosts and its durable writes.

Between any two commands, and after any write before its outcome is heard, the controller may end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, assert_never

from worldline.control import order as words
from worldline.control.handoff import Handoff
from worldline.control.order import SIDE_OF, Call, JournalPhase, Order, Outcome, Side
from worldline.errors import HostGone, Internal, TimedOut, UnknownMove, UnknownSession, WorldlineError
from worldline.migration import source_words as source
from worldline.migration import target_words as target
from worldline.schema.ids import HostId
from worldline.schema.receipt import Receipt
from worldline.testing.simulated_host import Host

if TYPE_CHECKING:
    from worldline.testing.simulated_control import Controller

CALL_TIMEOUT_S = 1.5
RETRY_WRITE_S = 0.1
NEEDS_MEMORY = frozenset({Call.ACTIVATE, Call.THAW})
"""A host that does not know what these are about is not the process that had it: as in `runtime.controller_orders`."""
BULK = frozenset({Call.RUN_SOURCE, Call.AWAIT_PREPARED, Call.WRITE_IMAGE, Call.LOAD_IMAGE})

Work = Callable[[Host, Callable[[object], None]], None]


@dataclass(slots=True)
class Entry:
    """An order in the journal."""

    order: Order
    phase: JournalPhase
    receipt: Receipt | None = None
    ended: bool = False


class OrderRun:
    """One order in one life of the controller."""

    def __init__(self, controller: Controller, entry: Entry) -> None:
        self.controller = controller
        self.sim = controller.sim
        self.entry = entry
        self.order = entry.order
        self.machine: Handoff = self.sim.kinds.handoff(self.order, self.sim.timeline.now_s)
        self.began_s = self.sim.timeline.now_s
        self.lives: dict[Side, int | None] = {}
        self._gone: set[Side] = set()
        for side, host in ((Side.SOURCE, self.order.source), (Side.TARGET, self.order.target)):
            if host is not None:
                self.lives[side] = controller.known_life(host)
        self._events: deque[words.Event] = deque()
        self._commands: deque[words.Command] = deque()
        self._going_on = False
        self._writing = False
        """A write is under way; what follows waits for it."""
        self._life = controller.life

    @property
    def open(self) -> bool:
        return self._life == self.controller.life and self.controller.orders.get(self.order.session) is self

    def check_hosts(self) -> None:
        """To be called when a host's process has ended."""
        for side, life in self.lives.items():
            if side not in self._gone and life is not None and self.controller.is_over(self.host_id(side), life):
                self._gone.add(side)
                self.feed(words.HostGone(side))

    def host_id(self, side: Side) -> HostId:
        host = self.order.source if side is Side.SOURCE else self.order.target
        assert host is not None, f"the order has no {side}"
        return host

    # ---- events in, commands out

    def feed(self, event: words.Event) -> None:
        self._events.append(event)
        self._go_on()

    def _go_on(self) -> None:
        if self._going_on:
            return
        self._going_on = True
        while self.open and not self._writing and (self._commands or self._events):
            if not self._commands:
                self._commands.extend(self.machine.handle(self._events.popleft(), self.sim.timeline.now_s))
                self._set_wake()
            elif self.sim.trouble.ends_here("controller"):
                self.controller.end()
            else:
                self._do(self._commands.popleft())
        self._going_on = False

    def _set_wake(self) -> None:
        at_s = self.machine.wake_at_s
        if at_s is not None:
            self._later(at_s - self.sim.timeline.now_s + 1e-6, lambda: self.feed(words.DeadlinePassed()))

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.controller.after(delay_s, lambda: action() if self.open else None)

    def _do(self, command: words.Command) -> None:
        order = self.order
        self.controller.tell("%s %s: %s", order.session, order.move, type(command).__name__)
        match command:
            case words.Journal(phase):
                self._journal(phase)
            case words.PrepareTarget():
                ready = words.TargetReady("simulated", "there", b"k")
                self._simple(Call.PREPARE_TARGET, lambda host: host.prepare(order), ready)
            case words.RunSource():
                self._call(Call.RUN_SOURCE, lambda host, answer: host.run_source(order, answer), _from_source)
            case words.RejoinSource():
                raise Internal("the simulation's controller gives up what was begun")
            case words.AwaitPrepared():
                self._call(Call.AWAIT_PREPARED, lambda host, a: host.await_prepared(order, a), self._from_target)
            case words.WriteImage():
                self._call(Call.WRITE_IMAGE, lambda host, answer: host.write_image(order, answer), _from_image)
            case words.LoadImage():
                self._call(Call.LOAD_IMAGE, lambda host, a: a(host.load_image(order)), words.TargetPrepared)
            case words.SwapOwner():
                self._swap(command)
            case words.ReturnOwner():
                self._give_back(command)
            case words.ReadOwner(delay_s):
                self._later(delay_s + 0.001, self._read_owner)
            case words.Activate(_, delay_s):
                self._simple(Call.ACTIVATE, lambda host: host.activate(order), words.Activated(), delay_s)
            case words.Retire(_, delay_s):
                self._simple(Call.RETIRE, lambda host: host.retire(order), words.Retired(), delay_s)
            case words.Discard(delay_s):
                self._simple(Call.DISCARD, lambda host: host.discard(order), words.Discarded(), delay_s)
            case words.Thaw(delay_s, epoch):
                self._simple(Call.THAW, lambda host: host.thaw(order, epoch), words.Thawed(), delay_s)
            case words.PublishOwner():
                self.controller.unveil(order.session)
            case words.Finish():
                self._finish(command)
            case _:
                assert_never(command)

    # ---- what is durable

    def _write(self, work: Callable[[], Callable[[], None]]) -> None:
        """`work` is one transaction; the machine waits for it, and hears of it through what it returns."""

        def written() -> None:
            heard = work()
            if self.sim.trouble.ends_here("controller"):
                self.controller.end()
                return
            self._writing = False
            heard()
            self._go_on()

        self._writing = True
        self._later(self.sim.rng.uniform(0.0005, 0.004), written)

    def _write_again(self, write: Callable[[], None]) -> None:
        self._writing = True
        self._later(RETRY_WRITE_S, write)

    def _journal(self, phase: JournalPhase) -> None:
        if self.sim.trouble.chance("record-fails"):
            if phase is JournalPhase.BEGUN:
                self.controller.tell("%s is refused: its first line can't be written", self.order.move)
                del self.controller.orders[self.order.session]
                self.sim.counts.refused += 1
            else:
                self._write_again(lambda: self._journal(phase))
            return

        def write() -> Callable[[], None]:
            self.controller.journal[self.order.move] = self.entry
            self.entry.phase = phase
            self.entry.ended = phase is JournalPhase.DONE
            return lambda: None

        self._write(write)

    def _swap(self, command: words.SwapOwner) -> None:
        """THE COMMIT: all of it or nothing, whatever the caller gets to hear."""
        row = self.controller.rows[self.order.session]

        def write() -> Callable[[], None]:
            unknown = self.sim.trouble.chance("swap-unknown")
            ok = row.owner == command.before and self.entry.phase is JournalPhase.BEGUN
            if ok and not (unknown and self.sim.rng.random() < 0.5):
                row.veiled = None if command.after.host is None else command.before
                row.swap(command.after, command.receipt.block, self.order.image if command.after.host is None else None)
                self.entry.phase, self.entry.receipt = JournalPhase.COMMITTED, command.receipt
                self.controller.tell("%s COMMITTED: %s owns epoch %d", self.order.move, *row.who)
                self.sim.watch.owner_changed(self, command.after)
                self.controller.tell_gateway(self.order.session)
            event = words.SwapUnknown("the disk did not answer") if unknown else words.Swapped(ok)
            return lambda: self.feed(event)

        self._write(write)

    def _give_back(self, command: words.ReturnOwner) -> None:
        """The second swap, as the first."""
        row = self.controller.rows[self.order.session]

        def write() -> Callable[[], None]:
            unknown = self.sim.trouble.chance("swap-unknown")
            ok = row.owner == command.before and self.entry.phase is JournalPhase.COMMITTED
            if ok and not (unknown and self.sim.rng.random() < 0.5):
                row.swap(command.after, row.cut_block, self.order.image)
                self.entry.phase = JournalPhase.RETURNED
                self.controller.tell("%s RETURNED: %s owns epoch %d", self.order.move, *row.who)
                self.sim.watch.owner_changed(self, command.after)
            event = words.SwapUnknown("the disk did not answer") if unknown else words.Swapped(ok)
            return lambda: self.feed(event)

        self._write(write)

    def _read_owner(self) -> None:
        if self.sim.trouble.chance("record-fails"):
            self._later(RETRY_WRITE_S, self._read_owner)
        else:
            self.feed(words.OwnerRead(self.controller.rows[self.order.session].owner))

    def _finish(self, finish: words.Finish) -> None:
        if self.sim.trouble.chance("record-fails"):
            self._write_again(lambda: self._finish(finish))
            return

        def write() -> Callable[[], None]:
            self.entry.ended = True
            return lambda: self._ended(finish)

        self._write(write)

    def _ended(self, finish: words.Finish) -> None:
        controller, session, counts = self.controller, self.order.session, self.sim.counts
        controller.tell("%s %s is over: %s", session, self.order.move, finish.outcome.value)
        del controller.orders[session]
        controller.unveil(session)
        counts.done += finish.outcome is Outcome.DONE
        counts.refused += finish.outcome is Outcome.REFUSED
        counts.returned += finish.outcome is Outcome.RETURNED
        self.sim.watch.order_ended(self, finish)
        if finish.lost or finish.outcome is Outcome.LOST:
            controller.doom(session, "its state went with its host" if finish.error is None else finish.error.sentence)
        controller.settle(session)
        if self.order.target is not None and finish.outcome is not Outcome.DONE:
            controller.look_at(self.sim.hosts[self.host_id(Side.TARGET)])

    # ---- calls to hosts: lost, late, repeated, or answered

    def _simple(self, call: Call, work: Callable[[Host], None], event: words.Event, delay_s: float = 0.0) -> None:
        def answered(host: Host, answer: Callable[[object], None]) -> None:
            work(host)
            answer(event)

        self._later(delay_s, lambda: self._call(call, answered, lambda _: event))

    def _call(self, call: Call, work: Work, to_event: Callable[..., words.Event]) -> None:
        sim, side = self.sim, SIDE_OF[call]
        host = sim.hosts[self.host_id(side)]
        unheard = [True]

        def end(event: words.Event) -> None:
            if unheard[0]:
                unheard[0] = False
                self.feed(event)

        def answer(said: object) -> None:
            if host.alive and host.name not in sim.out_of_reach and not sim.trouble.chance("answer-lost"):
                self._later(sim.rng.uniform(0.001, 0.01), lambda: end(self._heard(call, said, to_event)))

        def arrive() -> None:
            try:
                work(host, answer)
            except WorldlineError as error:
                answer(error)

        if not self.controller.reaches(host, self.lives[side]):
            gone = words.PeerFailed(call, HostGone.code, f"host {host.name} can't be reached")
            self._later(0.002, lambda: end(gone))
            return
        if not sim.trouble.chance("request-lost"):
            times = 2 if sim.trouble.chance("call-twice") else 1
            for _ in range(times):
                late_s = sim.rng.uniform(0.2, 3.0) if sim.trouble.chance("call-late") else 0.0
                host.after(late_s + sim.rng.uniform(0.001, 0.01), arrive)
        timeout_s = self.order.contract.completion_deadline_s + CALL_TIMEOUT_S if call in BULK else CALL_TIMEOUT_S
        self._later(timeout_s, lambda: end(words.PeerFailed(call, TimedOut.code, "no answer")))

    def _heard(self, call: Call, said: object, to_event: Callable[..., words.Event]) -> words.Event:
        match said:
            case UnknownSession() | UnknownMove() if call in NEEDS_MEMORY:
                return words.HostGone(SIDE_OF[call])
            case WorldlineError():
                return words.PeerFailed(call, said.code, said.sentence)
            case _:
                return to_event(said)

    def _from_target(self, said: object) -> words.Event:
        if isinstance(said, target.Failed):
            return words.PeerFailed(Call.AWAIT_PREPARED, said.code, said.sentence, said.facts)
        assert isinstance(said, Receipt), "a target proves or fails"
        lies = self.sim.trouble.chance("receipt-lies")
        return words.TargetPrepared(replace(said, **self.sim.rng.choice(_LIES)) if lies else said)


_LIES: tuple[dict[str, Any], ...] = (
    {"target_root": "00" * 32},
    {"source_root": "00" * 32, "target_root": "00" * 32},
    {"block": 10**6},
    {"epoch": 1},
    {"move": "another"},
    {"session": "another"},
)
"""What a target's receipt may say that is not so. Each is seen from the order or from the seal."""


def _from_source(said: object) -> words.Event:
    if isinstance(said, source.Sealed):
        return words.SourceSealed(
            said.root.hex(), said.block, said.number, said.frozen_at_s, said.bytes_moved, said.rounds
        )
    assert isinstance(said, source.Failed), "a source seals or fails"
    return words.PeerFailed(Call.RUN_SOURCE, said.code, said.sentence, said.facts)


def _from_image(said: object) -> words.Event:
    assert isinstance(said, Receipt), "an image is written, or an error says why not"
    return words.ImageWritten(said)
