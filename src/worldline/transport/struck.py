"""Single records of the data plane that go astray on purpose. See `worldline.transport.faults`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping, Sequence

from worldline.errors import LinkCut, WorldlineError
from worldline.schema.fault import Fault as Planted
from worldline.schema.fault import FaultName, Step
from worldline.schema.layout import Extent
from worldline.transport.faults import DELAY_S, Fault, Flip, PassingLink
from worldline.transport.protocol import Link, LinkEvent, RecordIn
from worldline.wire.framing import HEADER_BYTES, RecordType, split_record

log = logging.getLogger(__name__)

STEP_OF_RECORD: Mapping[int, Step] = {
    RecordType.HELLO: Step.HELLO,
    RecordType.MANIFEST: Step.MANIFEST,
    RecordType.ROUND_END: Step.ROUND_END,
    RecordType.DIGESTS: Step.DIGESTS,
    RecordType.SEAL: Step.SEAL,
    RecordType.PREPARED: Step.PREPARED,
    RecordType.REFUSED: Step.REFUSED,
    RecordType.ABORT: Step.ABORT,
}
"""Where each record is struck. Chunks, and the extents of a shared arena, are struck by faults without a step."""


class StruckRecord(Fault):
    """One record, the first of its kind on this link, is lost, late, doubled, overtaken, cut, or damaged.

    Struck where it is written, and where it is read if its end is missing. Where a record is written only after
    something went wrong, something does: bytes land wrong before a refusal, and the source can't read what it is
    told before it calls off.
    """

    def __init__(self, chance: random.Random, planted: Planted) -> None:
        super().__init__(chance)
        assert planted.step is not None, "a record is struck at its step"
        self.planted = planted
        self.name = planted.name
        self.step = planted.step

    def at_source(self, link: Link) -> Link:
        return _StruckLink(_UnreadableLink(link) if self.step is Step.ABORT else link, self)

    def at_target(self, link: Link) -> Link:
        return _StruckLink(Flip(self.chance).at_target(link) if self.step is Step.REFUSED else link, self)


class _StruckLink(PassingLink):
    def __init__(self, inner: Link, fault: StruckRecord) -> None:
        super().__init__(inner)
        self._fault = fault
        self._struck = False
        self._overtaken: bytes | None = None

    async def send(self, record: bytes) -> None:
        if self._fault.name is FaultName.TRUNCATE or self._struck or _step_of(record) is not self._fault.step:
            await self.inner.send(record)
            await self._catch_up()
            return
        self._strike_once()
        await self._strike(record)

    async def receive(self) -> LinkEvent:
        event = await self.inner.receive()
        if self._fault.name is not FaultName.TRUNCATE or self._struck or not isinstance(event, RecordIn):
            return event
        if _step_of(event.data) is not self._fault.step:
            return event
        self._strike_once()
        return RecordIn(event.data[: self._fault.chance.randrange(len(event.data))])

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        posted = await self.inner.post(extents, deadline_s)
        await self._catch_up()
        return posted

    async def fence(self) -> None:
        with contextlib.suppress(WorldlineError):
            await self._catch_up()
        await self.inner.fence()

    async def _strike(self, record: bytes) -> None:
        match self._fault.name:
            case FaultName.DROP:
                pass
            case FaultName.DELAY:
                await asyncio.sleep(DELAY_S)
                await self.inner.send(record)
            case FaultName.DUPLICATE:
                await self.inner.send(record)
                await self.inner.send(record)
            case FaultName.REORDER:
                self._overtaken = record
            case FaultName.FLIP:
                await self.inner.send(_flipped(record, self._fault.chance))
            case _:
                await self.inner.fence()
                raise LinkCut("the link was cut in place of a record")

    def _strike_once(self) -> None:
        self._struck = True
        log.warning("planted: %s", self._fault.planted)

    async def _catch_up(self) -> None:
        record, self._overtaken = self._overtaken, None
        if record is not None:
            await self.inner.send(record)


def _step_of(record: bytes) -> Step | None:
    return STEP_OF_RECORD.get(split_record(record).header.type)


def _flipped(record: bytes, chance: random.Random) -> bytes:
    octets = bytearray(record)
    octets[chance.randrange(HEADER_BYTES, len(octets))] ^= 1 << chance.randrange(8)
    return bytes(octets)


class _UnreadableLink(PassingLink):
    """No record that arrives can be read."""

    async def receive(self) -> LinkEvent:
        event = await self.inner.receive()
        return RecordIn(event.data[: HEADER_BYTES - 1]) if isinstance(event, RecordIn) else event
