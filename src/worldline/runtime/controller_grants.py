"""The calendar in the controller: a move asks before it begins, and its source is granted a chunk at a time.

Off in a fleet that was not told what its ports carry: nothing can be reserved of what is not known. The calendar is of
this process: one that was started anew books again what its journal says is under way, before anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import assert_never

from worldline.clock import Clock
from worldline.control.calendar import Calendar
from worldline.control.grants import Ask, Bottleneck, Grant, Policy, Ports, Refused, Spent, Wait
from worldline.control.measured import Least, line_rate
from worldline.control.order import Order, Side
from worldline.errors import DeadlineMissed, Fact, IncastRefused, LaneFull, NoCapacity
from worldline.errors import Refused as Refusal
from worldline.runtime import messages as wire
from worldline.runtime.controller_ends import Cargo, Ends
from worldline.runtime.controller_hosts import HostLink
from worldline.runtime.messages import Move, Progress
from worldline.schema.ids import MoveId
from worldline.schema.receipt import Mode

CHUNK_MIN_BYTES = 4 * 1024 * 1024
CHUNK_S = 0.05
"""At least so much of a port's time is one chunk: a grant a chunk may cost no more than its message."""
PRECOPY_SENDS = 1.25
"""Times its state, until a session's own moves have measured it."""
LOOK_S = 0.05
"""Between two looks at a booking that lies ahead: others' ends bring it forward."""
LEAST_S = 0.001

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Granted:
    """One move under way."""

    order: Order
    link: HostLink
    wire_bytes: int
    whole: bool
    """Granted from its first byte on."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Its source is connected and has something to send."""
    frozen: bool = False
    sent_bytes: int = 0
    sent_bytes_per_s: float | None = None


class Grants:
    """`booked` is around the whole of a move; `on_progress` hears its source."""

    def __init__(self, clock: Clock, port_bytes_per_s: float | None) -> None:
        self._clock = clock
        self._port_bytes_per_s = port_bytes_per_s
        chunk = round(max(CHUNK_MIN_BYTES, CHUNK_S * (port_bytes_per_s or 0.0)))
        self.calendar = Calendar(Policy(chunk_bytes=chunk))
        self._under_way: dict[str, _Granted] = {}
        self._egress, self._ingress = Least[str](), Least[str]()
        self._sends = Least[str]()
        """Of each session: its state over what its moves sent; the least of that is the most they send."""

    @property
    def grant_bytes(self) -> int:
        """What one grant lets through."""
        return self.calendar.policy.chunk_bytes

    def books(self, hands_over: bool) -> bool:
        """Whether such a move is booked: ports, lane and memory are then promised here, and nowhere else."""
        return self._port_bytes_per_s is not None and not hands_over

    @contextlib.asynccontextmanager
    async def booked(
        self, order: Order, cargo: Cargo, ends: Ends, begun_at_s: float | None = None
    ) -> AsyncIterator[None]:
        """Books the move and grants its source what it may send, until the block ends. `begun_at_s` (wall time): an
        earlier controller had begun it, so its target has its memory, and its time runs since then.

        Raises `DeadlineMissed`, `IncastRefused`, `LaneFull`, `NoCapacity`, each with what is short and the time at
        which it would be accepted; what stands against asking the target, too.
        """
        if not self.books(order.hands_over):
            yield
            return
        await ends.link(Side.TARGET).describe()  # what it has reserved for others' moves, it counts itself from now on
        granted = self._book(order, cargo, ends, begun_at_s)
        self._under_way[order.move] = granted
        granting = asyncio.create_task(self._grant(granted), name=f"grants-{order.move}")
        try:
            yield
        finally:
            granting.cancel()
            await asyncio.wait([granting])
            del self._under_way[order.move]
            self.calendar.finish(order.move, self._now_us())
            self.calendar.changed.clear()  # whoever was put elsewhere looks for itself

    def on_progress(self, notice: Progress) -> None:
        granted = self._under_way.get(notice.move)
        if granted is not None:
            granted.sent_bytes, granted.sent_bytes_per_s = notice.bytes_moved, notice.sent_bytes_per_s
            if notice.frozen and not granted.frozen and notice.dirty_bytes:
                granted.frozen = True
                now_us = self._now_us()
                by_us = now_us + round(granted.order.contract.pause_bound_s * 1e6)
                self.calendar.freeze(granted.order.move, notice.dirty_bytes, by_us, now_us)
            if not granted.begun.is_set():
                self.calendar.holds_memory(granted.order.move)
                granted.begun.set()

    def learn(self, move: Move) -> None:
        """What a move that is done has measured. To be called within its `booked`."""
        granted = self._under_way.get(move.id)
        receipt = move.receipt
        if granted is None or not granted.whole or receipt is None or receipt.bytes_moved == 0:
            return
        line = self._port_bytes_per_s
        assert line is not None, "only a fleet that knows its ports grants"
        self._sends.add(move.session, receipt.state_bytes / receipt.bytes_moved)
        if granted.sent_bytes_per_s is not None:
            granted_bytes_per_s = self.calendar.booking(granted.order.move).cost.bytes_per_s
            rate = line_rate(granted.sent_bytes_per_s, granted_bytes_per_s, line)
            self._egress.add(receipt.source, rate)
            self._ingress.add(receipt.target, rate)

    # ---- how

    def _now_us(self) -> int:
        return round(self._clock.monotonic_s() * 1e6)

    def _book(self, order: Order, cargo: Cargo, ends: Ends, begun_at_s: float | None) -> _Granted:
        assert order.source is not None
        assert order.target is not None
        source, target = ends.link(Side.SOURCE), ends.link(Side.TARGET)
        self.calendar.set_host(order.source, self._ports(source, source.free_bytes))
        self.calendar.set_host(order.target, self._ports(target, target.room_bytes(cargo.arena_bytes)))
        share = self._sends.of(order.session)
        times = 1.0 if order.mode is Mode.FREEZE else PRECOPY_SENDS if share is None else 1 / share
        wire_bytes, now_us = max(1, round(cargo.state_bytes * times)), self._now_us()
        bound_s = order.contract.completion_deadline_s
        if order.mode is Mode.FREEZE:
            bound_s = min(bound_s, order.contract.pause_bound_s)
        gone_s = 0.0 if begun_at_s is None else max(0.0, self._clock.wall_s() - begun_at_s)
        deadline_us = now_us + round((bound_s - gone_s) * 1e6)
        ask = Ask(order.move, order.source, order.target, wire_bytes, deadline_us, cargo.arena_bytes)
        answer = self.calendar.ask(ask, now_us)
        if isinstance(answer, Refused):
            raise self._refusal(answer, ask, now_us)
        log.info("move %s is booked: over within %.3f s", order.move, (answer.finish_us - now_us) / 1e6)
        granted = _Granted(order, source, wire_bytes, whole=begun_at_s is None)
        if begun_at_s is not None:
            granted.begun.set()
        return granted

    def _ports(self, link: HostLink, free_bytes: int) -> Ports:
        line = self._port_bytes_per_s
        assert line is not None
        lane = None if link.facts is None else link.facts.lane_bytes_per_s
        sends, receives = self._egress.of(link.id) or line, self._ingress.of(link.id) or line
        return Ports(min(line, sends), min(line, receives), lane, max(0, free_bytes))

    def _refusal(self, refused: Refused, ask: Ask, now_us: int) -> Refusal:
        in_s = None if refused.earliest_at_us is None else (refused.earliest_at_us - now_us) / 1e6
        when = "" if in_s is None else f"; in {in_s:.3g} s it would be accepted"
        facts: dict[str, Fact] = {
            "bottleneck": refused.why.value,
            "source": ask.source,
            "target": ask.target,
            "earliest_at_s": None if in_s is None else self._clock.wall_s() + in_s,
            "earliest_in_s": in_s,
        }
        match refused.why:
            case Bottleneck.DEADLINE:
                slowest, what = self._slowest(ask)
                sentence = f"{what} is too slow for this move even if nothing else used it"
                return DeadlineMissed(sentence, slowest=slowest.value, **facts)
            case Bottleneck.MEMORY:
                facts["free_bytes"] = self.calendar.ports(ask.target).memory_free_bytes
                facts["needed_bytes"] = ask.memory_bytes
                return NoCapacity(f"host {ask.target} has no memory left that is not promised{when}", **facts)
            case Bottleneck.LANE:
                return LaneFull(f"the verification lane of host {ask.target} is promised{when}", **facts)
            case Bottleneck.EGRESS:
                return IncastRefused(f"what host {ask.source} sends is promised to other moves{when}", **facts)
            case Bottleneck.INGRESS:
                return IncastRefused(f"what host {ask.target} receives is promised to other moves{when}", **facts)
            case Bottleneck.PAIR:
                return IncastRefused(f"{ask.source} and {ask.target} have no time in common{when}", **facts)

    def _slowest(self, ask: Ask) -> tuple[Bottleneck, str]:
        """Of what a move needs, and in words."""
        source, target = self.calendar.ports(ask.source), self.calendar.ports(ask.target)
        lane = math.inf if target.lane_bytes_per_s is None else target.lane_bytes_per_s
        found = {
            Bottleneck.LANE: (lane, f"the verification lane of host {ask.target}"),
            Bottleneck.EGRESS: (source.egress_bytes_per_s, f"the port of host {ask.source}"),
            Bottleneck.INGRESS: (target.ingress_bytes_per_s, f"the port of host {ask.target}"),
        }
        slowest = min(found, key=lambda each: found[each][0])
        return slowest, found[slowest][1]

    async def _grant(self, granted: _Granted) -> None:
        """Tells the source of each chunk, half a chunk before the last one ends."""
        move = MoveId(granted.order.move)
        waited = not granted.begun.is_set()
        await granted.begun.wait()
        if waited and not granted.frozen and self.calendar.booking(move).slots.spans[0][0] < self._now_us():
            self._extend(granted, granted.wire_bytes)  # the target took its time, and what was booked began without it
        while True:
            now_us = self._now_us()
            match self.calendar.grant(move, now_us):
                case Grant(_, bytes_per_s, until_us):
                    granted.link.tell(wire.Grant(move, bytes_per_s, (until_us - now_us) / 1e6))
                    wait_s = (until_us - now_us) / 2e6
                case Wait(begin_us):
                    wait_s = min((begin_us - now_us) / 1e6, LOOK_S)
                case Spent():
                    left = granted.wire_bytes - granted.sent_bytes
                    self._extend(granted, max(left, self.calendar.policy.chunk_bytes))
                    wait_s = 0.0
                case never:
                    assert_never(never)
            await asyncio.sleep(max(wait_s, LEAST_S))

    def _extend(self, granted: _Granted, wire_bytes: int) -> None:
        """It began late, flowed slower than reserved, or sent more than was expected."""
        move, now_us = granted.order.move, self._now_us()
        if granted.frozen:
            by_us = now_us + round(granted.order.contract.pause_bound_s * 1e6)
            self.calendar.freeze(move, wire_bytes, by_us, now_us)
        elif self.calendar.extend(move, wire_bytes, now_us).late:
            log.warning("move %s needs more than was reserved for it, and may be late", move)
