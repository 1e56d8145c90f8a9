"""Hosts of the simulation: sessions that play, and the real source and target machines over a bad link.

Everything that a machine commands is carried out here by the smallest thing that can: a session's state is a handful of
bytes that each block rewrites in part, a link copies them chunk by chunk, at its own times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from worldline.errors import IllegalTransition, NoCapacity, StaleEpoch, UnknownMove
from worldline.migration import source, target
from worldline.migration.attempt import Attempt
from worldline.schema.contract import Tier
from worldline.schema.ids import Epoch, HostId, ReceiptId
from worldline.schema.layout import Extent
from worldline.schema.receipt import Receipt
from worldline.testing.simulated_session import CAPACITY, LAYOUT, LIMITS, SEGMENTS, Arena, Engine, manifest_at
from worldline.verify.digests import layout_digest, leaf_digests, root
from worldline.wire import records

if TYPE_CHECKING:
    from worldline.control.order import Order
    from worldline.testing.simulation import Simulation


class SimLink:
    """One attempt's data plane: ordered in each direction, copied chunk by chunk while the source may be writing."""

    def __init__(self, sim: Simulation, at_source: SourceRun, at_target: TargetRun) -> None:
        self.sim = sim
        self.open = True
        self._at_source = at_source
        self._at_target = at_target
        self._due_s = {id(at_source): 0.0, id(at_target): 0.0}

    def _deliver(self, to: SourceRun | TargetRun, action: Callable[[], None]) -> float:
        due_s = max(self._due_s[id(to)], self.sim.now_s + self.sim.rng.uniform(0.0005, 0.004))
        self._due_s[id(to)] = due_s
        self.sim.after(due_s - self.sim.now_s, lambda: action() if self.open else None)
        return due_s

    def send(self, to: SourceRun | TargetRun, record: records.Record) -> None:
        data = records.encode(record)
        self._deliver(to, lambda: to.record_in(data))

    def post(self, extents: tuple[Extent, ...]) -> None:
        began_s = self.sim.now_s
        for extent in extents:
            self._deliver(self._at_target, lambda extent=extent: self._land(extent))  # type: ignore[misc]
        total = sum(extent.nbytes for extent in extents)
        ended_s = self._due_s[id(self._at_target)]
        posted = source.Posted(total, ended_s - began_s)
        self.sim.after(ended_s - began_s, lambda: self._at_source.feed(posted) if self.open else None)

    def _land(self, extent: Extent) -> None:
        if self.sim.chance("cut"):
            self.cut("cut by a planted fault")
            return
        if self._at_target.order.hands_over:
            self._at_target.feed(target.LandedIn(extent))
            return
        chunk = bytearray(self._at_source.engine.arena.bytes_at(extent))
        if self.sim.chance("flip"):
            chunk[self.sim.rng.randrange(len(chunk))] ^= 1 << self.sim.rng.randrange(8)
        kept = len(chunk) - 16 if self.sim.chance("lie") else len(chunk)
        self._at_target.arena.data[extent.offset : extent.offset + kept] = chunk[:kept]
        self._at_target.feed(target.LandedIn(extent))

    def cut(self, why: str) -> None:
        if not self.open:
            return
        self.open = False
        for run, lost in ((self._at_source, source.LinkLost(why)), (self._at_target, target.LinkLost(why))):
            self.sim.after(self.sim.rng.uniform(0.001, 0.3), lambda run=run, lost=lost: run.feed(lost))  # type: ignore[misc]


class SourceRun:
    """Carries out what a source machine commands."""

    def __init__(self, host: Host, order: Order, engine: Engine, answer: Callable[[object], None]) -> None:
        self.host, self.order, self.engine, self._answer = host, order, engine, answer
        self.link: SimLink | None = None
        self._late_write: tuple[int, int] | None = None
        attempt = Attempt(order.move, order.session, order.epoch, order.mode)
        self.machine = host.sim.kinds.source(attempt, order.contract, host.sim.now_s, LIMITS)
        self.host.sim.wake(self.machine.wake_at_s, lambda: self.feed(source.Deadline()))

    def connect(self, listener: TargetRun | None) -> None:
        if listener is None or not listener.host.alive or listener.machine.phase is not target.Phase.WAITING:
            self.feed(source.Abort("LINK_CUT", "nobody listens"))
            return
        self.link = listener.link = SimLink(self.host.sim, self, listener)
        if self.order.hands_over:
            listener.arena = self.engine.arena
        listener.feed(target.LinkUp())
        self.feed(source.Connected())

    def record_in(self, data: bytes) -> None:
        record = records.decode_record(data)
        assert record is not None, "the simulation writes known records"
        self.feed(source.event_of(record))

    def feed(self, event: source.Event) -> None:
        if not self.host.alive:
            return
        for command in self.machine.handle(event, self.host.sim.now_s):
            self._do(command)
        self.host.sim.wake(self.machine.wake_at_s, lambda: self.feed(source.Deadline()))

    def _do(self, command: source.Command) -> None:
        match command:
            case source.TakeCut():
                self.engine.hold(self.order.move, self._cut)
            case source.Thaw():
                if self._late_write is not None:
                    at, before = self._late_write
                    self.engine.arena.data[at] = before
                self.engine.release(self.order.move)
            case source.SendRecord(record):
                if self.link is not None:
                    self.link.send(self.link._at_target, record)
            case source.Post(extents):
                assert self.link is not None, "a post follows a connection"
                self._write_late(extents)
                self.link.post(extents)
            case source.Sealed() | source.Failed():
                self._answer(command)
            case source.Fence() | source.Release():
                self.engine.closed = True
            case source.CloseLink():
                if self.link is not None:
                    self.link.cut("closed by the source")
            case source.Report():
                pass
            case _:
                assert_never(command)

    def _write_late(self, extents: tuple[Extent, ...]) -> None:
        """Fault 18: something writes although the session is frozen. Taken back where the session is to go on."""
        if self.machine.phase is source.Phase.FROZEN and self.host.sim.chance("late-write"):
            at = self.host.sim.rng.choice(extents).offset
            self._late_write = (at, self.engine.arena.data[at])
            self.engine.arena.data[at] ^= 1

    def _cut(self) -> None:
        engine = self.engine
        if engine.closed or not self.host.alive:
            return
        manifest = manifest_at(engine.block)
        digests = tuple(leaf_digests(engine.arena, manifest.leaves()))
        layout = layout_digest(LAYOUT)
        self.feed(
            source.CutTaken(manifest, digests, root(layout, digests), layout, engine.block, self.host.sim.now_s - 0.001)
        )


class TargetRun:
    """Carries out what a target machine commands."""

    def __init__(self, host: Host, order: Order) -> None:
        self.host, self.order = host, order
        self.arena = Arena()
        self.link: SimLink | None = None
        self.prepared: target.Prepared | None = None
        self.failed: target.Failed | None = None
        self.answer: Callable[[target.Prepared | target.Failed], None] | None = None
        attempt = Attempt(order.move, order.session, order.epoch, order.mode)
        now_s = host.sim.now_s
        deadline_s = now_s + order.contract.completion_deadline_s
        self.machine = host.sim.kinds.target(
            attempt, CAPACITY, now_s, deadline_s, hands_over=order.hands_over, limits=LIMITS
        )
        self.host.sim.wake(self.machine.wake_at_s, lambda: self.feed(target.Deadline()))

    def record_in(self, data: bytes) -> None:
        record = records.decode_record(data)
        assert record is not None, "the simulation writes known records"
        self.feed(target.event_of(record))

    def feed(self, event: target.Event) -> None:
        if not self.host.alive:
            return
        for command in self.machine.handle(event, self.host.sim.now_s):
            self._do(command)

    def _do(self, command: target.Command) -> None:
        sim = self.host.sim
        match command:
            case target.Digest(ticket, extents):
                sim.after(sim.rng.uniform(0.0005, 0.006), lambda: self._digest(ticket, extents))
            case target.SendRecord(record):
                if self.link is not None:
                    self.link.send(self.link._at_source, record)
            case target.ComputeRoot(_, digests):
                layout = layout_digest(LAYOUT)
                computed = target.RootComputed(root(layout, digests), layout)
                sim.after(0.001, lambda: self.feed(computed))
            case target.Prepared() | target.Failed():
                self._settle(command)
            case target.Install(manifest, _, epoch):
                self.host.install(epoch, self.arena, manifest.block)
            case target.Discard():
                self._close()
                self.arena = Arena()
            case target.CloseLink():
                self._close()
            case target.StopReceiving():
                pass
            case _:
                assert_never(command)

    def _digest(self, ticket: int, extents: tuple[Extent, ...]) -> None:
        digests = leaf_digests(self.arena, extents)
        self.feed(target.LaneDone(ticket, tuple(zip(extents, digests, strict=True))))

    def _close(self) -> None:
        if self.link is not None:
            link = self.link
            # What was sent before the close still arrives: a closed socket delivers its last bytes.
            self.host.sim.after(0.02, lambda: link.cut("closed by the target"))

    def _settle(self, command: target.Prepared | target.Failed) -> None:
        if isinstance(command, target.Prepared):
            self.prepared = command
        else:
            self.failed = command
        if self.answer is not None:
            self.answer(command)

    def receipt(self, proof: target.Prepared) -> Receipt:
        return make_receipt(self.order, proof.manifest.block, proof.source_root, proof.target_root)


def make_receipt(order: Order, block: int, source_root: bytes, target_root: bytes) -> Receipt:
    """A receipt with what the hand-over machine reads; the rest is filled in plainly."""
    return Receipt(
        id=ReceiptId(f"r-{order.move}"),
        move=order.move,
        session=order.session,
        epoch=order.after.epoch,
        mode=order.mode,
        transport="simulated",
        source=order.source or "image",
        target=order.target or "image",
        tier=Tier.T0,
        source_plan="p",
        target_plan="p",
        qualification=None,
        block=block,
        layout=layout_digest(LAYOUT).hex(),
        source_root=source_root.hex(),
        target_root=target_root.hex(),
        leaf_count=SEGMENTS,
        state_bytes=CAPACITY,
        bytes_moved=CAPACITY,
        rounds=1,
        pause_s=0.0,
        duration_s=0.0,
        made_at_s=0.0,
        made_by=HostId("simulated"),
    )


@dataclass(frozen=True, slots=True)
class StoredImage:
    data: bytes
    block: int
    root: bytes


class Host:
    """One process: its session, if it owns one, and the attempts it takes part in."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim = sim
        self.name = HostId(name)
        self.alive = True
        self.engine: Engine | None = None
        self.sources: dict[str, SourceRun] = {}
        self.targets: dict[str, TargetRun] = {}
        self.loaded: dict[str, StoredImage | None] = {}
        """Verified images by move; None once activated."""
        self.over: set[str] = set()
        """Moves that were given up: a call of theirs that comes late does nothing."""

    def install(self, epoch: Epoch, arena: Arena, block: int) -> None:
        self.sim.check_state(arena, block, f"host {self.name} becomes the owner")
        self.engine = Engine(self, epoch, arena, block)
        self.sim.engines.append(self.engine)

    def own(self, epoch: Epoch) -> Engine:
        if self.engine is None or self.engine.closed or self.engine.epoch != epoch:
            raise UnknownMove(f"host {self.name} has no session of epoch {epoch}")
        return self.engine

    def crash(self) -> None:
        self.alive = False
        runs: list[SourceRun | TargetRun] = [*self.sources.values(), *self.targets.values()]
        for run in runs:
            if run.link is not None:
                run.link.cut(f"host {self.name} ended")

    # ---- what the controller calls; each answers at once or through `answer`

    def check_open(self, order: Order) -> None:
        if order.move in self.over:
            raise StaleEpoch(f"move {order.move} was given up")

    def prepare(self, order: Order) -> None:
        self.check_open(order)
        if order.move in self.targets:
            raise NoCapacity("this attempt is known already")
        self.targets[order.move] = TargetRun(self, order)

    def run_source(self, order: Order, answer: Callable[[object], None]) -> None:
        self.check_open(order)
        engine = self.own(order.epoch)
        if order.move in self.sources:
            raise IllegalTransition("this attempt is known already")
        run = self.sources[order.move] = SourceRun(self, order, engine, answer)
        assert order.target is not None, "a source has a target"
        listener = self.sim.hosts[order.target].targets.get(order.move)
        self.sim.after(0.002, lambda: run.connect(listener))

    def await_prepared(self, order: Order, answer: Callable[[object], None]) -> None:
        run = self.targets.get(order.move)
        if run is None:
            raise UnknownMove(f"host {self.name} does not know move {order.move}")
        run.answer = answer
        done = run.failed or run.prepared
        if done is not None:
            answer(done)

    def write_image(self, order: Order, answer: Callable[[object], None]) -> None:
        self.check_open(order)
        engine = self.own(order.epoch)

        def held() -> None:
            if not self.alive or engine.held_by != order.move:
                return
            digests = leaf_digests(engine.arena, manifest_at(engine.block).leaves())
            claim = root(layout_digest(LAYOUT), digests)
            self.sim.images[str(order.image)] = StoredImage(bytes(engine.arena.data), engine.block, claim)
            self.sim.after(0.01, lambda: answer(make_receipt(order, engine.block, claim, claim)))

        engine.hold(order.move, held)

    def load_image(self, order: Order) -> Receipt:
        self.check_open(order)
        image = self.sim.images[str(order.image)]
        self.loaded[order.move] = image
        return make_receipt(order, image.block, image.root, image.root)

    def activate(self, order: Order) -> None:
        if order.move in self.targets:
            self.targets[order.move].feed(target.ActivateIn(order.after.epoch))
            return
        if order.move not in self.loaded:
            raise UnknownMove(f"host {self.name} does not know move {order.move}")
        image = self.loaded[order.move]
        if image is not None:
            self.loaded[order.move] = None
            self.install(order.after.epoch, Arena(image.data), image.block)

    def retire(self, order: Order) -> None:
        run = self.sources.get(order.move)
        if run is not None:
            run.feed(source.Retire())
        elif self.engine is not None and self.engine.epoch == order.epoch:
            self.engine.closed = True

    def discard(self, order: Order) -> None:
        self.over.add(order.move)
        if order.move in self.targets:
            self.targets[order.move].feed(target.DiscardIn())
        self.loaded.pop(order.move, None)

    def thaw(self, order: Order) -> None:
        self.over.add(order.move)
        run = self.sources.get(order.move)
        if run is not None:
            run.feed(source.Abort("DEADLINE", "the controller gave the attempt up"))
        elif self.engine is not None:
            self.engine.release(order.move)
