"""The calendar in the controller: a move asks before it begins, and its source is granted a chunk at a time.

Off in a fleet that was not told what its ports carry: nothing can be reserved of what is not known. The calendar is of
this process: one that was started anew has no promises, and moves that were under way then send under no grant any
more, until they end or miss their deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import assert_never

from worldline.clock import Clock
from worldline.control.calendar import Calendar
from worldline.control.grants import Ask, Bottleneck, Grant, Policy, Ports, Refused, Spent, Wait
from worldline.control.measured import Least, line_rate
from worldline.control.order import Order
from worldline.errors import DeadlineMissed, IncastRefused, LaneFull, NoCapacity
from worldline.errors import Refused as Refusal
from worldline.runtime import messages as wire
from worldline.runtime.controller_hosts import HostLink
from worldline.runtime.messages import Move, Progress
from worldline.schema.ids import HostId, MoveId
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
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Its source is connected and has something to send."""
    frozen: bool = False
    sent_bytes: int = 0
    served_us: int = 0
    last_until_us: int = 0


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
    def grant_bytes(self) -> int | None:
        """What one grant lets through; None: no grants are needed."""
        return None if self._port_bytes_per_s is None else self.calendar.policy.chunk_bytes

    @contextlib.asynccontextmanager
    async def booked(self, order: Order, state_bytes: int, source: HostLink) -> AsyncIterator[None]:
        """Books the move and grants its source what it may send, until the block ends.

        Raises `DeadlineMissed`, `IncastRefused`, `LaneFull`, each with the time at which it would be accepted.
        """
        if self._port_bytes_per_s is None or order.hands_over:
            yield
            return
        granted = self._book(order, state_bytes, source)
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
            granted.sent_bytes = notice.bytes_moved
            if notice.frozen and not granted.frozen and notice.dirty_bytes:
                granted.frozen = True
                now_us = self._now_us()
                by_us = now_us + round(granted.order.contract.pause_bound_s * 1e6)
                self.calendar.freeze(granted.order.move, notice.dirty_bytes, by_us, now_us)
            granted.begun.set()

    def learn(self, move: Move) -> None:
        """What a move that is done has measured. To be called within its `booked`."""
        granted = self._under_way.get(move.id)
        if granted is None or move.receipt is None or move.receipt.bytes_moved == 0 or self._port_bytes_per_s is None:
            return
        receipt, now_us = move.receipt, self._now_us()
        self._sends.add(move.session, receipt.state_bytes / receipt.bytes_moved)
        served_us = granted.served_us - max(granted.last_until_us - now_us, 0)
        if served_us > 0:
            rate = receipt.bytes_moved / served_us * 1e6
            rate = line_rate(rate, self.calendar.booking(granted.order.move).cost.bytes_per_s, self._port_bytes_per_s)
            self._egress.add(receipt.source, rate)
            self._ingress.add(receipt.target, rate)

    # ---- how

    def _now_us(self) -> int:
        return round(self._clock.monotonic_s() * 1e6)

    def _book(self, order: Order, state_bytes: int, source: HostLink) -> _Granted:
        assert order.source is not None
        assert order.target is not None
        for host in (order.source, order.target):
            self.calendar.set_host(host, self._ports(host))
        share = self._sends.of(order.session)
        times = 1.0 if order.mode is Mode.FREEZE else PRECOPY_SENDS if share is None else 1 / share
        wire_bytes, now_us = max(1, round(state_bytes * times)), self._now_us()
        bound_s = order.contract.completion_deadline_s
        if order.mode is Mode.FREEZE:
            bound_s = min(bound_s, order.contract.pause_bound_s)
        ask = Ask(order.move, order.source, order.target, wire_bytes, now_us + round(bound_s * 1e6))
        answer = self.calendar.ask(ask, now_us)
        if isinstance(answer, Refused):
            raise self._refusal(answer, order, now_us)
        log.info("move %s is booked: over within %.3f s", order.move, (answer.finish_us - now_us) / 1e6)
        return _Granted(order, source, wire_bytes)

    def _ports(self, host: HostId) -> Ports:
        line = self._port_bytes_per_s
        assert line is not None
        return Ports(min(line, self._egress.of(host) or line), min(line, self._ingress.of(host) or line))

    def _refusal(self, refused: Refused, order: Order, now_us: int) -> Refusal:
        in_s = None if refused.earliest_at_us is None else (refused.earliest_at_us - now_us) / 1e6
        when = "" if in_s is None else f"; in {in_s:.3g} s it would be accepted"
        facts = {
            "bottleneck": refused.why.value,
            "source": order.source,
            "target": order.target,
            "earliest_at_s": None if in_s is None else self._clock.wall_s() + in_s,
            "earliest_in_s": in_s,
        }
        match refused.why:
            case Bottleneck.DEADLINE:
                return DeadlineMissed("the ports are too slow for this move even if nothing else used them", **facts)
            case Bottleneck.MEMORY:
                return NoCapacity(f"the memory of host {order.target} is promised to other moves{when}", **facts)
            case Bottleneck.LANE:
                return LaneFull(f"the verification lane of host {order.target} is promised{when}", **facts)
            case Bottleneck.EGRESS:
                return IncastRefused(f"what host {order.source} sends is promised to other moves{when}", **facts)
            case Bottleneck.INGRESS:
                return IncastRefused(f"what host {order.target} receives is promised to other moves{when}", **facts)
            case Bottleneck.PAIR:
                return IncastRefused(f"{order.source} and {order.target} have no time in common{when}", **facts)

    async def _grant(self, granted: _Granted) -> None:
        """Tells the source of each chunk, half a chunk before the last one ends."""
        move = MoveId(granted.order.move)
        await granted.begun.wait()
        if not granted.frozen and self.calendar.booking(move).slots.spans[0][0] < self._now_us():
            self._extend(granted, granted.wire_bytes)  # the target took its time, and what was booked began without it
        while True:
            now_us = self._now_us()
            match self.calendar.grant(move, now_us):
                case Grant(_, bytes_per_s, until_us):
                    granted.link.tell(wire.Grant(move, bytes_per_s, (until_us - now_us) / 1e6))
                    granted.served_us += until_us - max(granted.last_until_us, now_us)
                    granted.last_until_us = until_us
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
