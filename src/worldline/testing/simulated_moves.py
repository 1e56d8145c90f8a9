"""Attempts of the simulation: the real source and target machines over a bad link, and images on a bad disk.

Everything that a machine commands is carried out here by the smallest thing that can. Between any two commands the
process may end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from worldline.control.order import Order
from worldline.errors import Corrupt, NoCapacity
from worldline.migration import source_words as source
from worldline.migration import target_words as target
from worldline.migration.attempt import Attempt
from worldline.migration.heard import from_source, from_target
from worldline.schema.contract import Tier
from worldline.schema.ids import HostId, ReceiptId
from worldline.schema.layout import Extent
from worldline.schema.receipt import Receipt
from worldline.schema.rows import Copy, Runs
from worldline.snapshot.rows import copy_rows, read_runs, write_runs
from worldline.testing.simulated_session import CAPACITY, LAYOUT, LIMITS, SEGMENTS, WINDOW, Arena, Engine, manifest_at
from worldline.verify.digests import layout_digest, leaf_digests, root
from worldline.wire import records

if TYPE_CHECKING:
    from worldline.testing.simulated_host import Host
    from worldline.testing.simulation import Simulation

LAYOUT_DIGEST = layout_digest(LAYOUT)
LEAVES = tuple(manifest_at(0).leaves())
WITHHELD_BYTES = 16
ANNOUNCED_SHARE = 0.5


def state_root(arena: Arena) -> bytes:
    return root(LAYOUT_DIGEST, leaf_digests(arena, LEAVES))


class SimLink:
    """One attempt's data plane: ordered in each direction, copied chunk by chunk while the source may be writing."""

    def __init__(self, sim: Simulation, at_source: SourceRun, at_target: TargetRun) -> None:
        self.sim = sim
        self.open = True
        self.lingers = False
        """It was cut, and what was on its way still lands until the target is fenced."""
        self.at_source = at_source
        self.at_target = at_target

    def _deliver(self, to: SourceRun | TargetRun, action: Callable[[], None]) -> float:
        delay_s = self.sim.timeline.in_order((self, to), self.sim.rng.uniform(0.0005, 0.004))
        to.host.after(delay_s, action)
        return delay_s

    def send(self, to: SourceRun | TargetRun, record: records.Record) -> None:
        data = records.encode(record)
        self._deliver(to, lambda: to.record_in(data) if self.open else None)

    def post(self, extents: Sequence[Extent], steps: Sequence[Copy | Runs]) -> None:
        delay_s, nbytes = 0.0, 0
        for step in steps:
            if isinstance(step, Copy):
                self.send(self.at_target, records.CopyRecord(step))
            else:
                self.send(self.at_target, records.RowsRecord(step, read_runs(self.at_source.engine.arena, step)))
                nbytes += step.nbytes
        for extent in extents:
            delay_s = self._deliver(self.at_target, lambda extent=extent: self._land(extent))  # type: ignore[misc]
        posted = source.Posted(nbytes + sum(extent.nbytes for extent in extents))
        self.at_source.host.after(delay_s, lambda: self.at_source.feed(posted) if self.open else None)

    def name(self, extents: Sequence[Extent]) -> None:
        for extent in extents:
            self._deliver(self.at_target, lambda extent=extent: self._land(extent))  # type: ignore[misc]

    def _land(self, extent: Extent) -> None:
        sim, run = self.sim, self.at_target
        if self.open and sim.trouble.chance("cut"):
            self.lingers = sim.trouble.chance("late-landing")
            self.cut("cut by a planted fault")
        if not self.open and (run.fenced or not self.lingers):
            return
        if not run.order.hands_over:
            self._copy(extent)
        if self.open:
            run.feed(target.LandedIn(extent))

    def _copy(self, extent: Extent) -> None:
        trouble, rng = self.sim.trouble, self.sim.rng
        chunk = bytearray(self.at_source.engine.arena.bytes_at(extent))
        if trouble.chance("flip"):
            chunk[rng.randrange(len(chunk))] ^= 1 << rng.randrange(8)
        kept = len(chunk) - WITHHELD_BYTES if trouble.chance("withhold") else len(chunk)
        self.at_target.arena.data[extent.offset : extent.offset + kept] = chunk[:kept]

    def cut(self, why: str) -> None:
        if not self.open:
            return
        self.open = False
        rng = self.sim.rng
        for run, lost in ((self.at_source, source.LinkLost(why)), (self.at_target, target.LinkLost(why))):
            run.host.after(rng.uniform(0.001, 0.3), lambda run=run, lost=lost: run.feed(lost))  # type: ignore[misc]


def attempt_of(order: Order) -> Attempt:
    return Attempt(order.move, order.session, order.epoch, order.mode)


class SourceRun:
    """Carries out what a source machine commands."""

    def __init__(self, host: Host, order: Order, engine: Engine, answer: Callable[[object], None]) -> None:
        self.host, self.order, self.engine, self._answer = host, order, engine, answer
        self.link: SimLink | None = None
        self._late_writes: list[int] = []
        self._read = False
        """The latest cut was read when it was taken."""
        self._named: dict[Extent, bytes] = {}
        """What the engine has called final within its block, and what was there then."""
        now_s = host.timeline.now_s
        limits = replace(LIMITS, rolls=not order.hands_over)
        self.machine = host.sim.kinds.source(attempt_of(order), order.contract, now_s, limits)
        self._wake()

    @property
    def over(self) -> bool:
        return self.machine.phase in (source.Phase.THAWED, source.Phase.RETIRED)

    def connect(self, listener: TargetRun | None) -> None:
        if listener is None or not listener.listens:
            self.feed(source.Abort("LINK_CUT", "nobody listens"))
            return
        self.link = listener.link = SimLink(self.host.sim, self, listener)
        if self.order.hands_over:
            listener.arena = self.engine.arena
        link = self.link
        listener.host.after(0.0, lambda: listener.feed(target.LinkUp()) if link.open else None)
        self.feed(source.Connected())

    def record_in(self, data: bytes) -> None:
        record = records.decode_record(data)
        assert record is not None, "the simulation writes known records"
        self.feed(from_target(record))

    def feed(self, event: source.Event) -> None:
        for command in self.machine.handle(event, self.host.timeline.now_s):
            if self.host.ends_here("source"):
                return
            self._do(command)
        self._wake()

    def _wake(self) -> None:
        self.host.wake_at(self.machine.wake_at_s, lambda: self.feed(source.Deadline()))

    def _do(self, command: source.Command) -> None:
        self.host.tell("%s source: %s", self.order.move, type(command).__name__)
        match command:
            case source.TakeCut():
                if command.compares and self.order.hands_over:
                    self.host.after(self.host.sim.rng.uniform(0.0, 0.002), self._announce)
                self.engine.hold(self.order.move, lambda: self._cut(command))
            case source.ReadRest():
                self.host.after(self.host.sim.rng.uniform(0.0005, 0.01), self._read_rest)
            case source.Thaw():
                for at in self._late_writes:
                    self.engine.arena.data[at] ^= 1
                self._late_writes.clear()
                self.engine.release(self.order.move)
            case source.SendRecord(record):
                if self.link is not None:
                    self.link.send(self.link.at_target, record)
            case source.Post(extents, steps=steps):
                assert self.link is not None, "a post follows a connection"
                if self._read:
                    self._write_late(extents)
                self.link.post(extents, steps)
            case source.PostEarly(extents):
                assert self.link is not None, "a cut is asked for over a link"
                self.link.name(extents)
            case source.Sealed() | source.Failed():
                self._answer(command)
            case source.Fence():
                self.engine.end()
                self.host.forget(self.engine)
            case source.CloseLink():
                if self.link is not None:
                    self.link.cut("closed by the source")
            case source.Report():
                pass
            case _:
                assert_never(command)

    def _write_late(self, extents: tuple[Extent, ...]) -> None:
        """Fault 18: something writes although the session is frozen and read. Taken back where it is to go on."""
        if extents and self.machine.phase is source.Phase.FROZEN and self.host.sim.trouble.chance("late-write"):
            at = self.host.sim.rng.choice(extents).offset
            self._late_writes.append(at)
            self.engine.arena.data[at] ^= 1

    def _cut(self, order: source.TakeCut) -> None:
        """A cut that compares nothing reads what rolls or nothing; the frozen one is read while its leaves are sent."""
        engine = self.engine
        if engine.ended:
            return
        found = leaf_digests(engine.arena, LEAVES)
        named, self._named = self._named, {}
        digests = tuple(
            digest
            if (order.compares or (order.remembers and index == WINDOW)) and named.get(LEAVES[index], digest) == digest
            else None
            for index, digest in enumerate(found)
        )
        whole = None if None in digests else root(LAYOUT_DIGEST, found)
        self._read = whole is not None
        held_at_s = self.host.timeline.now_s - 0.001
        self.feed(source.CutTaken(manifest_at(engine.block), digests, whole, LAYOUT_DIGEST, engine.block, held_at_s))

    def _announce(self) -> None:
        """The engine may be wrong about its block: what it writes all the same is not known at the cut."""
        if self.engine.ended or self.machine.phase is not source.Phase.CUTTING:
            return
        leaves = tuple(leaf for leaf in LEAVES if self.host.sim.rng.random() < ANNOUNCED_SHARE)
        if leaves:
            self._named.update(zip(leaves, leaf_digests(self.engine.arena, leaves), strict=True))
            self.feed(source.Announced(leaves))

    def _read_rest(self) -> None:
        if self.engine.ended or self.machine.phase is not source.Phase.FROZEN:
            return
        digests = tuple(leaf_digests(self.engine.arena, LEAVES))
        if not self.order.hands_over:  # there the fence is up since the cut, and nobody can
            self._write_late(LEAVES)
        self.feed(source.RestRead(digests, root(LAYOUT_DIGEST, digests)))


class TargetRun:
    """Carries out what a target machine commands."""

    def __init__(self, host: Host, order: Order) -> None:
        self.host, self.order = host, order
        self.arena = Arena()
        self.link: SimLink | None = None
        self.fenced = False
        """Nothing lands any more."""
        self.settled: Receipt | target.Failed | None = None
        self.answer: Callable[[Receipt | target.Failed], None] | None = None
        now_s = host.timeline.now_s
        deadline_s = now_s + order.contract.completion_deadline_s
        self.machine = host.sim.kinds.target(
            attempt_of(order), CAPACITY, now_s, deadline_s, hands_over=order.hands_over, limits=LIMITS
        )
        host.wake_at(self.machine.wake_at_s, lambda: self.feed(target.Deadline()))

    @property
    def over(self) -> bool:
        return self.machine.phase in (target.Phase.ACTIVE, target.Phase.DISCARDED)

    @property
    def listens(self) -> bool:
        return self.host.alive and self.machine.phase is target.Phase.WAITING and self.link is None

    def record_in(self, data: bytes) -> None:
        record = records.decode_record(data)
        assert record is not None, "the simulation writes known records"
        self.feed(from_source(record))

    def feed(self, event: target.Event) -> None:
        for command in self.machine.handle(event, self.host.timeline.now_s):
            if self.host.ends_here("target"):
                return
            self._do(command)

    def _do(self, command: target.Command) -> None:
        host = self.host
        host.tell("%s target: %s", self.order.move, type(command).__name__)
        match command:
            case target.Digest(ticket, extents):
                host.after(host.sim.rng.uniform(0.0005, 0.006), lambda: self._digest(ticket, extents))
            case target.Put():
                delay_s = host.timeline.in_order((self, "put"), host.sim.rng.uniform(0.0002, 0.003))
                host.after(delay_s, lambda: self._put(command))
            case target.SendRecord(record):
                if self.link is not None:
                    self.link.send(self.link.at_source, record)
            case target.ComputeRoot(_, digests):
                computed = target.RootComputed(root(LAYOUT_DIGEST, digests), LAYOUT_DIGEST)
                host.after(0.001, lambda: self.feed(computed))
            case target.Prepared():
                self._settle(make_receipt(self.order, command.manifest.block, command.source_root, command.target_root))
            case target.Failed():
                self._settle(command)
            case target.Install(manifest, _, epoch):
                host.install(self.order, epoch, self.arena, manifest.block)
            case target.Discard(zero):
                self.fenced = True
                self._close()
                if zero:
                    self.arena.data[:] = bytes(CAPACITY)
                host.release(self.order.move)
            case target.CloseLink():
                self._close()
            case target.StopReceiving():
                self.fenced = True
            case _:
                assert_never(command)

    def _put(self, put: target.Put) -> None:
        if not self.over:
            match put.step:
                case target.CopyIn(copy):
                    copy_rows(self.arena, put.manifest, copy)
                case target.RowsIn(runs, data):
                    write_runs(self.arena, runs, data)
                case _:
                    assert_never(put.step)
        self.feed(target.PutDone(put.ticket))

    def _digest(self, ticket: int, extents: tuple[Extent, ...]) -> None:
        digests = leaf_digests(self.arena, extents)
        self.feed(target.LaneDone(ticket, tuple(zip(extents, digests, strict=True))))

    def _close(self) -> None:
        if self.link is not None:
            link = self.link
            # What was sent before the close still arrives: a closed socket delivers its last bytes.
            self.host.after(0.02, lambda: link.cut("closed by the target"))

    def _settle(self, said: Receipt | target.Failed) -> None:
        self.settled = said
        if self.answer is not None:
            self.answer(said)


@dataclass(frozen=True, slots=True)
class StoredImage:
    """What lies on the disk: `root` is what its writer claims."""

    data: bytes
    block: int
    root: bytes


class Images:
    """The directory that all hosts share."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._stored: dict[str, StoredImage] = {}

    def write(self, name: str, engine: Engine) -> StoredImage:
        """Raises `NoCapacity` where the disk is full; may store less than it says."""
        if self._sim.trouble.chance("image-fails"):
            raise NoCapacity("no space is left on the device")
        data = bytes(engine.arena.data)
        image = StoredImage(data, engine.block, state_root(engine.arena))
        torn = self._sim.trouble.chance("image-torn")
        self._stored[name] = StoredImage(data[:-WITHHELD_BYTES], image.block, image.root) if torn else image
        return image

    def read(self, name: str) -> StoredImage:
        """Raises `Corrupt` where it is not what was written."""
        image = self._stored[name]
        if len(image.data) != CAPACITY or state_root(Arena(image.data)) != image.root:
            raise Corrupt(f"image {name} is not what was written")
        return image


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
        layout=LAYOUT_DIGEST.hex(),
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
