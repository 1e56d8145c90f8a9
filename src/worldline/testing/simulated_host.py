"""Hosts of the simulation: processes with a bounded memory, sessions that play, and attempts they take part in.

A host that ends loses everything; another process of its name begins a little later and knows nothing. Calls behave as
`runtime.host_moves` does: asked twice, answered twice the same; asked by an order that is over, refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from worldline.control.order import Order
from worldline.errors import MoveInProgress, NoCapacity, StaleEpoch, UnknownMove, UnknownSession
from worldline.migration import source_words as source
from worldline.migration import target_words as target
from worldline.schema.ids import Epoch, HostId, SessionId
from worldline.schema.receipt import Receipt
from worldline.testing.simulated_moves import SourceRun, StoredImage, TargetRun, make_receipt
from worldline.testing.simulated_process import Process
from worldline.testing.simulated_session import Arena, Engine

if TYPE_CHECKING:
    from worldline.testing.simulation import Simulation

SLOTS = 2
"""Arenas that a host has memory for."""

Answer = Callable[[object], None]


class Host(Process):
    def __init__(self, sim: Simulation, name: str, plan: str) -> None:
        super().__init__(sim.timeline)
        self.sim = sim
        self.name = HostId(name)
        self.plan = plan
        self._begin()

    def _begin(self) -> None:
        self.engines: dict[SessionId, Engine] = {}
        self.sources: dict[str, SourceRun] = {}
        self.targets: dict[str, TargetRun] = {}
        self.loaded: dict[str, StoredImage | None] = {}
        """Verified images by move; None once activated."""
        self.proven: dict[str, Receipt] = {}
        """What was answered about images, written or loaded, by move."""
        self.over: set[str] = set()
        """Moves that were given up: a call of theirs that comes late does nothing."""
        self.memory: set[str] = set()
        """Who holds an arena: moves on their way in, and sessions."""

    def tell(self, line: str, *facts: object) -> None:
        self.sim.transcript.tell(f"host {self.name}", line, *facts)

    def wake_at(self, at_s: float | None, action: Callable[[], None]) -> None:
        if at_s is not None:
            self.after(at_s - self.timeline.now_s + 1e-6, action)

    # ---- ends and beginnings

    def ends_here(self, who: str) -> bool:
        """Whether the process is over, now or because the place between two commands was its last."""
        if self.alive and self.sim.trouble.ends_here(who):
            self.sim.end_host(self)
        return not self.alive

    def end(self) -> None:
        super().end()
        for engine in self.engines.values():
            engine.end()
        runs: list[SourceRun | TargetRun] = [*self.sources.values(), *self.targets.values()]
        for run in runs:
            if run.link is not None:
                run.link.cut(f"host {self.name} ended")
        self._begin()

    def begin(self) -> None:
        self.alive = True
        self.tell("begins anew, generation %d", self.life)

    # ---- memory and sessions

    @property
    def free_slots(self) -> int:
        return SLOTS - len(self.memory)

    def reserve(self, holder: str) -> None:
        """Raises `NoCapacity`."""
        if self.free_slots <= 0:
            raise NoCapacity(f"host {self.name} has no arena left")
        self.memory.add(holder)

    def release(self, holder: str) -> None:
        self.memory.discard(holder)

    def open(self, session: SessionId) -> None:
        truth = self.sim.sessions[session]
        self.reserve(session)
        self.engines[session] = Engine(self, truth, Epoch(1), Arena(truth.states[0]), 0)

    def install(self, order: Order, epoch: Epoch, arena: Arena, block: int) -> None:
        truth = self.sim.sessions[order.session]
        truth.check_state(arena, block, f"host {self.name} becomes the owner of epoch {epoch}")
        for other in truth.engines:
            if other.arena is arena:
                self.sim.fail(f"{order.move} is activated at {self.name} while {other.host.name} maps the same arena")
        older = self.engines.get(order.session)
        if older is not None:
            self.forget(older)
        self.release(order.move)
        self.memory.add(order.session)
        self.engines[order.session] = Engine(self, truth, epoch, arena, block)

    def forget(self, engine: Engine) -> None:
        """The session is no longer here: thread joined, arena unmapped."""
        engine.end()
        if self.engines.get(engine.session.id) is engine:
            del self.engines[engine.session.id]
            self.release(engine.session.id)

    def own(self, order: Order) -> Engine:
        engine = self.engines.get(order.session)
        if engine is None or engine.epoch != order.epoch:
            raise UnknownSession(f"host {self.name} has no session {order.session} of epoch {order.epoch}")
        return engine

    # ---- what the controller calls; each answers at once or through `answer`

    def check_open(self, order: Order) -> None:
        if order.move in self.over:
            raise StaleEpoch(f"move {order.move} was given up")

    def prepare(self, order: Order) -> None:
        self.check_open(order)
        if order.move in self.targets:
            raise MoveInProgress(f"move {order.move} was prepared here before")
        if order.session in self.engines:
            raise MoveInProgress(f"session {order.session} is here already")
        self.reserve(order.move)
        self.targets[order.move] = TargetRun(self, order)

    def run_source(self, order: Order, answer: Answer) -> None:
        self.check_open(order)
        if order.move in self.sources:
            return  # asked twice: the first answer counts
        engine = self._leaving(order)
        run = self.sources[order.move] = SourceRun(self, order, engine, answer)
        assert order.target is not None, "a source has a target"
        listener = self.sim.hosts[order.target].targets.get(order.move)
        self.after(0.002, lambda: run.connect(listener))

    def _leaving(self, order: Order) -> Engine:
        engine = self.own(order)
        if engine.held_by is not None or any(
            not run.over and run.engine is engine for move, run in self.sources.items() if move != order.move
        ):
            raise MoveInProgress(f"session {order.session} is on its way out by another move")
        return engine

    def await_prepared(self, order: Order, answer: Answer) -> None:
        run = self.targets.get(order.move)
        if run is None:
            raise UnknownMove(f"host {self.name} does not know move {order.move}")
        if run.settled is not None:
            answer(run.settled)
        else:
            run.answer = answer

    def write_image(self, order: Order, answer: Answer) -> None:
        self.check_open(order)
        if order.move in self.proven:
            answer(self.proven[order.move])
            return
        engine = self._leaving(order)
        if engine.waiting is None:
            engine.hold(order.move, lambda: self._write(order, engine, answer))

    def _write(self, order: Order, engine: Engine, answer: Answer) -> None:
        if engine.ended or engine.held_by != order.move:
            return
        try:
            image = self.sim.images.write(str(order.image), engine)
        except NoCapacity as error:
            self.tell("%s: the image can't be written", order.move)
            engine.release(order.move)
            answer(error)
            return
        if self.ends_here("source"):
            return
        receipt = self.proven[order.move] = make_receipt(order, image.block, image.root, image.root)
        self.after(0.01, lambda: answer(receipt))

    def load_image(self, order: Order) -> Receipt:
        """Raises `Corrupt`."""
        self.check_open(order)
        if order.move not in self.proven:
            image = self.sim.images.read(str(order.image))
            self.reserve(order.move)
            self.loaded[order.move] = image
            self.proven[order.move] = make_receipt(order, image.block, image.root, image.root)
        return self.proven[order.move]

    def activate(self, order: Order) -> None:
        if order.move in self.targets:
            self.targets[order.move].feed(target.ActivateIn(order.after.epoch))
            return
        if order.move not in self.loaded:
            raise UnknownMove(f"host {self.name} does not know move {order.move}")
        image = self.loaded[order.move]
        if image is not None:
            self.loaded[order.move] = None
            self.install(order, order.after.epoch, Arena(image.data), image.block)

    def retire(self, order: Order) -> None:
        run = self.sources.get(order.move)
        if run is not None:
            run.feed(source.Retire())
        engine = self.engines.get(order.session)
        if engine is not None and engine.epoch <= order.epoch:
            self.forget(engine)

    @property
    def arrivals(self) -> list[str]:
        """Moves whose sessions are to come here."""
        return [*(move for move, run in self.targets.items() if not run.over), *filter(self.loaded.get, self.loaded)]

    def discard(self, order: Order) -> None:
        self.over.add(order.move)
        if order.move in self.targets:
            self.targets[order.move].feed(target.DiscardIn())
        if self.loaded.pop(order.move, None) is not None:
            self.release(order.move)

    def thaw(self, order: Order, epoch: Epoch | None) -> None:
        """Raises `UnknownSession`: a process that does not know the session is not the one that had it."""
        self.over.add(order.move)
        engine = self.engines.get(order.session)
        if engine is not None and epoch is not None and engine.epoch >= epoch:
            return
        engine = self.own(order)
        if epoch is not None:
            engine.epoch, engine.watcher = epoch, None
        run = self.sources.get(order.move)
        if run is not None:
            run.feed(source.Abort("DEADLINE", "the controller gave the attempt up"))
        else:
            engine.release(order.move)

    def close(self, session: SessionId, epoch: Epoch) -> None:
        """The record does not give this host the session."""
        engine = self.engines.get(session)
        if engine is not None and engine.epoch == epoch:
            for run in self.sources.values():
                if run.engine is engine and run.link is not None:
                    run.link.cut("the session is closed")
            self.forget(engine)
