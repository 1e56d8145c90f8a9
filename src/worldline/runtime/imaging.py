"""Park and resume: a session's way out into a verified image, and its way in from one.

Invariants
  A parked session stays frozen here, whole, until the controller's word: the image alone decides nothing.
  Nothing of an image is installed before all of it was verified, and what was installed is captured again and compared.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from worldline.clock import Clock
from worldline.control.admission import check_plans
from worldline.errors import BadValue, Internal, PlanMismatch, RecordFailed, StaleEpoch, StateLost, WorldlineError
from worldline.migration.leaves import Leaves
from worldline.runtime.driver import refuse
from worldline.runtime.host_engine import Cut, Engine, Proven
from worldline.runtime.host_worlds import Built
from worldline.runtime.hosting import EngineThread, HostedSession, Identity
from worldline.runtime.messages import LoadImage, SessionFailed, WriteImage
from worldline.schema.fault import Verb, parse_fault
from worldline.schema.ids import Epoch, HostId, MoveId, SessionId
from worldline.schema.layout import Extent
from worldline.schema.plan import Plan
from worldline.schema.receipt import Mode, Receipt
from worldline.snapshot.arena import Arena
from worldline.verify import image as images
from worldline.verify.digests import Digested
from worldline.verify.disk import Disk, disk_of
from worldline.verify.lanes import Lanes
from worldline.verify.receipts import UNSEALED, make_receipt
from worldline.verify.signing import SigningKey

TRANSPORT = "image"
"""What the receipt of a park or a resume names as its transport."""
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImageTools:
    """What park and resume need of their host."""

    host: str
    image_dir: Path
    clock: Clock
    on_failed: Callable[[SessionFailed], None]
    on_gone: Callable[[str], None]
    """Called with the move once nothing of an arrival holds memory any more."""
    signing: SigningKey
    arena: Callable[[str, Built], Arena]
    """For an arrival: the arena that goes with its move's reservation."""
    lanes: Lanes

    def path(self, name: str) -> Path:
        """Where the image of this name lies. Raises `BadValue` for anything but a plain file name."""
        if _FILE_NAME.match(name) is None:
            raise BadValue(f"{name[:80]!r} is no name of an image")
        return self.image_dir / name

    def remove(self, name: str) -> None:
        """Idempotent. Raises as `path`, and `RecordFailed`."""
        try:
            self.path(name).unlink(missing_ok=True)
        except OSError as error:
            raise RecordFailed(f"image {name} can't be removed: {error.strerror or error}") from error


class ImageDeparture:
    """One `WriteImage`. `written` is its answer."""

    def __init__(self, order: WriteImage, session: HostedSession, tools: ImageTools) -> None:
        self.order = order
        self.session = session
        self.written: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._tools = tools
        self._began_at_s = tools.clock.monotonic_s()
        self._ended = False
        self._path = tools.path(order.image)
        self._task = asyncio.create_task(self._write(), name=f"park-{order.move}")

    @property
    def over(self) -> bool:
        return self._ended

    async def thaw(self, code: str, sentence: str) -> None:
        """The park is off: when this returns the session plays, and no image of this move is left."""
        if not self._ended:
            await asyncio.wait([self._task])
            self._ended = True
            self.session.release(self.order.move)
            await asyncio.to_thread(self._remove)
            log.info("session %s move %s: plays on, %s: %s", self.order.session, self.order.move, code, sentence)

    def _remove(self) -> None:
        """The image; no other move's is called so, and the record never named it."""
        try:
            self._tools.remove(self.order.image)
        except RecordFailed as error:  # the session plays on all the same
            log.warning("of a park that came to nothing something is left: %s", error)

    async def retire(self) -> bool:
        """The image owns the state. False where the park had failed here before."""
        await asyncio.wait([self._task])
        if self._ended:
            return self.session.closed
        self._ended = True
        await self.session.close()
        return True

    async def drop(self) -> None:
        """For the end of the host or of the session."""
        await asyncio.wait([self._task])
        self._ended = True

    async def _write(self) -> None:
        try:
            await self.session.hold(self.order.move)
            self.written.set_result(await self._written())
        except BaseException as error:
            self._ended = True
            self.session.release(self.order.move)
            cancelled = isinstance(error, asyncio.CancelledError)
            if not cancelled:
                await asyncio.to_thread(self._remove)  # it may have its name already, and not be durable
            refuse(self.written, _told(error, self.order, "the image was not written"))
            if cancelled:
                raise

    async def _written(self) -> Receipt:
        order, who, plan = self.order, self.session.identity, self.session.built.plan
        cut = await self.session.do(lambda engine: engine.cut())
        identity = images.Identity(
            session=SessionId(order.session),
            epoch=Epoch(order.epoch),
            number=cut.number,
            world=self.session.built.world.name,
            plan=plan.digest,
            made_by=HostId(self._tools.host),
            made_at_s=self._tools.clock.wall_s(),
        )
        digested = Digested(cut.manifest, cut.digests)
        disk = _disk_of(order.fault, Verb.PARK)
        await asyncio.to_thread(images.write_image, self._path, identity, digested, self.session.engine.arena, disk)
        log.info("session %s epoch %d move %s: image %s written", who.session, who.epoch, order.move, order.image)
        return self._receipt(cut)

    def _receipt(self, cut: Cut) -> Receipt:
        order, now_s = self.order, self._tools.clock.monotonic_s()
        plan = self.session.built.plan.digest
        return make_receipt(
            Receipt(
                id=UNSEALED,
                move=MoveId(order.move),
                session=SessionId(order.session),
                epoch=Epoch(order.epoch + 1),
                mode=Mode.PARK,
                transport=TRANSPORT,
                source=self._tools.host,
                target=order.image,
                tier=self.session.identity.spec.contract.tier,
                source_plan=plan,
                target_plan=plan,
                qualification=None,
                block=cut.manifest.block,
                layout=cut.layout.hex(),
                source_root=cut.root.hex(),
                target_root=cut.root.hex(),  # `write_image` has read the file back and compared
                leaf_count=len(cut.digests),
                state_bytes=cut.manifest.layout.nbytes,
                bytes_moved=cut.manifest.layout.nbytes,
                rounds=1,
                pause_s=now_s - max(cut.at_s, self._began_at_s),  # an idle session is held only since it was asked
                duration_s=now_s - self._began_at_s,
                made_at_s=self._tools.clock.wall_s(),
                made_by=HostId(self._tools.host),
            ),
            self._tools.signing,
        )


class ImageArrival:
    """One `LoadImage`. `receipt` is its answer; until `activate` the session is nobody's."""

    def __init__(self, order: LoadImage, built: Built, tools: ImageTools) -> None:
        self.order = order
        self.receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._built = built
        self._tools = tools
        self._began_at_s = tools.clock.monotonic_s()
        self._path = tools.path(order.image)
        self._disk = _disk_of(order.fault, Verb.RESUME)
        self._thread = EngineThread(order.session)
        self._engine: Engine | None = None
        self._ended = False
        self._task = asyncio.create_task(self._load(), name=f"resume-{order.move}")

    @property
    def over(self) -> bool:
        return self._ended

    @property
    def awaited(self) -> bool:
        """See `Arrival`."""
        return not self._ended

    async def activate(self, epoch: int) -> HostedSession:
        """The session, ready to `start`, as owner of `epoch`."""
        await asyncio.shield(self.receipt)
        if self._ended or self._engine is None:
            raise StateLost(f"move {self.order.move} was discarded, so there is nothing to activate")
        self._ended = True
        order = self.order
        identity = Identity(order.session, epoch, order.spec, order.witness, order.move)
        return HostedSession(identity, self._built, self._engine, self._thread, self._tools.on_failed)

    async def discard(self) -> None:
        """Forgets what was loaded. The image stays. Does nothing after the end."""
        await asyncio.wait([self._task])
        if self._ended:
            return
        self._ended = True
        if self._engine is not None:
            await self._thread.do(self._engine.close)
        self._thread.join()
        self._tools.on_gone(self.order.move)

    async def drop(self) -> None:
        """For the end of the host."""
        await self.discard()

    async def _load(self) -> None:
        try:
            self.receipt.set_result(await self._loaded())
        except BaseException as error:
            self._ended = True
            self._thread.join()
            self._tools.on_gone(self.order.move)
            refuse(self.receipt, _told(error, self.order, "the image was not loaded"))
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _loaded(self) -> Receipt:
        order = self.order
        found = await asyncio.to_thread(self._open)
        self._refuse_other(found.identity)
        arena = self._tools.arena(order.move, self._built)
        try:
            digested = await asyncio.to_thread(self._read, found, arena)
            engine = await self._thread.do(
                lambda: Engine.install(
                    self._built.world,
                    Proven(digested.manifest, Leaves(digested.manifest), digested.digests, found.root),
                    arena,
                    self._tools.clock,
                    self._tools.lanes,
                )
            )
        except BaseException:
            arena.zero(Extent(0, arena.capacity))
            arena.close()
            raise
        self._engine = engine
        return self._receipt(found, engine.cut())

    def _open(self) -> images.Image:
        try:
            return images.open_image(self._path, SessionId(self.order.session), self._disk)
        except OSError as error:
            raise self._unreadable(error) from error

    def _read(self, found: images.Image, arena: Arena) -> Digested:
        try:
            return images.load(found, arena, self._disk)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> StateLost:
        return StateLost(f"image {self.order.image} can't be read: {error.strerror or error}")

    def _refuse_other(self, identity: images.Identity) -> None:
        """Raises `StaleEpoch` for an image of another park, `PlanMismatch` unless T1 allows the pair of plans."""
        order, here = self.order, self._built
        expected = order.epoch - 1 if order.written_under is None else order.written_under
        if identity.epoch != expected:
            raise StaleEpoch(f"image {order.image} was written under epoch {identity.epoch}, not {expected}")
        if identity.world != here.world.name:
            raise PlanMismatch(f"the image is of world {identity.world}, not {here.world.name}")
        written_under = Plan(here.plan.world, (), "", identity.plan)  # an image keeps the digest of its plan alone
        check_plans(order.spec.contract, written_under, here.plan, order.qualification)

    def _receipt(self, found: images.Image, cut: Cut) -> Receipt:
        order, now_s = self.order, self._tools.clock.monotonic_s()
        spent_s = now_s - self._began_at_s
        return make_receipt(
            Receipt(
                id=UNSEALED,
                move=MoveId(order.move),
                session=SessionId(order.session),
                epoch=Epoch(order.epoch + 1),
                mode=Mode.RESUME,
                transport=TRANSPORT,
                source=order.image,
                target=self._tools.host,
                tier=order.spec.contract.tier,
                source_plan=found.identity.plan,
                target_plan=self._built.plan.digest,
                qualification=None if order.qualification is None else order.qualification.id,
                block=cut.manifest.block,
                layout=cut.layout.hex(),
                source_root=found.root.hex(),
                target_root=cut.root.hex(),
                leaf_count=len(cut.digests),
                state_bytes=cut.manifest.layout.nbytes,
                bytes_moved=cut.manifest.layout.nbytes,
                rounds=1,
                pause_s=spent_s,
                duration_s=spent_s,
                made_at_s=self._tools.clock.wall_s(),
                made_by=HostId(self._tools.host),
            ),
            self._tools.signing,
        )


def _disk_of(fault: str | None, verb: Verb) -> Disk:
    return disk_of(None if fault is None else parse_fault(fault, verb), verb)


def _told(error: BaseException, order: WriteImage | LoadImage, what: str) -> WorldlineError:
    """What the controller hears: the error itself, `RecordFailed` for the disk's, or `Internal`."""
    if isinstance(error, WorldlineError):
        return error
    log.error("session %s move %s: %s", order.session, order.move, what, exc_info=error)
    if isinstance(error, OSError):
        return RecordFailed(f"{what}: {error.strerror or error}")
    return Internal(f"{what}: {error!r}"[:1000])
