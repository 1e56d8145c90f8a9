"""The same question of real bytes: hosts in namespaces, ports of 200 Mbit, time dilated, grants from the calendar.

Three hosts send to one over tcp. A move asks at its arrival; its sender sends nothing outside its grants, and paces
itself to them (SO_MAX_PACING_RATE). Rates are measured at the receiver, and reserves are of the least of the last 12.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from random import Random

from worldline.clock import SystemClock
from worldline.control.calendar import Calendar
from worldline.control.grants import Accepted, Ask, Grant, Policy, Ports, Wait
from worldline.control.measured import Least
from worldline.lab.fabric import Dilation, Fabric
from worldline.schema.ids import HostId, MoveId

RATE = "200Mbit"
LINE_BYTES_PER_S = 25e6
EMULATED_BYTES_PER_S = 12.5e9
MOVE_BYTES = 2_200_000
WITHIN_US = 420_000
"""Four moves and a little."""
POLICY = Policy(margin=0.15, overhead_us=10_000, chunk_bytes=256 * 1024, control_share=0.03)
RECEIVER, SENDERS = "a", ("b", "c", "d")
LOADS = (0.8, 1.0, 1.4)
PROBES = 4
PACING = 47
"""SO_MAX_PACING_RATE of Linux, which `socket` does not name."""
PIECE_BYTES = 64 * 1024
LEAST_S = 0.0005


@dataclass(frozen=True, slots=True)
class OnFabric:
    """One load, on real bytes."""

    load: float
    offered: int
    admitted: int
    late: int
    """Of the admitted."""
    explained: int
    """Of the late: in the time that was theirs their bytes flowed slower than was reserved for them."""
    rate_least_bytes_per_s: float
    dilation: float
    """By how much times are stretched against a port of 100 Gbit."""


class _Line:
    """One sender's connection, both ends in this process, each in its own network."""

    def __init__(self, fabric: Fabric, sender: str) -> None:
        listener = fabric.call(RECEIVER, lambda: socket.create_server((fabric.address(RECEIVER), 0)))
        port = listener.getsockname()[1]
        self.out = fabric.call(sender, lambda: socket.create_connection((fabric.address(RECEIVER), port), 5.0))
        self.into, _ = listener.accept()
        listener.close()
        for end in (self.out, self.into):
            end.setblocking(False)
        self.busy = asyncio.Lock()

    async def carry(self, count: int, bytes_per_s: float) -> None:
        """Sends so many bytes at a pace; returns when they have arrived."""
        loop = asyncio.get_running_loop()
        self.out.setsockopt(socket.SOL_SOCKET, PACING, struct.pack("=Q", int(bytes_per_s)))
        sending = asyncio.create_task(loop.sock_sendall(self.out, bytes(count)))
        left = count
        while left:
            left -= len(await loop.sock_recv(self.into, min(left, PIECE_BYTES)))
        await sending

    def close(self) -> None:
        self.out.close()
        self.into.close()


class _Run:
    """One load."""

    def __init__(self, lines: dict[str, _Line], load: float, seed: int) -> None:
        self.lines = lines
        self.load = load
        self.random = Random(seed)
        self.calendar = Calendar(POLICY)
        self.rates = Least[str]()
        self.clock = SystemClock()
        self.admitted = self.late = self.explained = 0

    def now_us(self) -> int:
        return round(self.clock.monotonic_s() * 1e6)

    async def go(self, arrivals: int) -> OnFabric:
        for sender in SENDERS * PROBES:
            await self._probe(sender)
        self._set_ports()
        async with asyncio.TaskGroup() as moves:
            for number in range(arrivals):
                await asyncio.sleep(self.random.expovariate(self.load * LINE_BYTES_PER_S / MOVE_BYTES))
                sender, now_us = SENDERS[self.random.randrange(len(SENDERS))], self.now_us()
                ask = Ask(
                    MoveId(str(number)), HostId(sender), HostId(RECEIVER), MOVE_BYTES, now_us + WITHIN_US
                )  # fmt: skip
                if isinstance(self.calendar.ask(ask, now_us), Accepted):
                    self.admitted += 1
                    moves.create_task(self._serve(ask))
        least = self.rates.of(RECEIVER)
        assert least is not None
        dilation = Dilation(EMULATED_BYTES_PER_S, LINE_BYTES_PER_S).factor
        return OnFabric(self.load, arrivals, self.admitted, self.late, self.explained, least, dilation)

    async def _probe(self, sender: str) -> None:
        began_s = self.clock.monotonic_s()
        for at in range(0, MOVE_BYTES, POLICY.chunk_bytes):
            await self.lines[sender].carry(min(POLICY.chunk_bytes, MOVE_BYTES - at), LINE_BYTES_PER_S)
        self.rates.add(RECEIVER, MOVE_BYTES / (self.clock.monotonic_s() - began_s))

    def _set_ports(self) -> None:
        rate = min(LINE_BYTES_PER_S, self.rates.of(RECEIVER) or LINE_BYTES_PER_S)
        for host in (RECEIVER, *SENDERS):
            self.calendar.set_host(HostId(host), Ports(rate, rate))

    async def _serve(self, ask: Ask) -> None:
        """Sends under grants, a chunk each; a move that is not over when its booking is asks for more."""
        left, waited_us = MOVE_BYTES, 0
        booking = self.calendar.booking(ask.move)
        reserved_us, began_us = booking.cost.wire_us, None
        while left:
            now_us = self.now_us()
            match self.calendar.grant(ask.move, now_us):
                case Grant(_, bytes_per_s, until_us):
                    if began_us is None:
                        began_us = min(now_us, booking.slots.spans[0][0])
                    room = max(PIECE_BYTES, int(bytes_per_s * (until_us - now_us) / 1e6))
                    count = min(left, POLICY.chunk_bytes, room)
                    async with self.lines[ask.source].busy:
                        await self.lines[ask.source].carry(count, LINE_BYTES_PER_S)
                    left -= count
                case Wait(begin_us):
                    await asyncio.sleep(max(min((begin_us - now_us) / 1e6, 0.01), LEAST_S))
                    if began_us is not None:
                        waited_us += min(self.now_us(), begin_us) - now_us
                case _:
                    self.calendar.extend(ask.move, left, now_us)
        ended_us = self.now_us()
        self.calendar.finish(ask.move, ended_us)
        self.calendar.changed.clear()
        served_us = ended_us - (began_us or ended_us) - waited_us
        self.rates.add(RECEIVER, MOVE_BYTES / served_us * 1e6)
        self._set_ports()
        if ended_us > ask.deadline_us:
            self.late += 1
            self.explained += served_us > reserved_us


def measure_on_fabric(arrivals: int) -> list[OnFabric]:
    """So many moves at each load, on real bytes. Raises what a fabric raises where none can be made."""
    with Fabric(hosts=4, rate=RATE) as fabric:
        return [asyncio.run(_go(fabric, load, arrivals)) for load in LOADS]


async def _go(fabric: Fabric, load: float, arrivals: int) -> OnFabric:
    lines = {sender: _Line(fabric, sender) for sender in SENDERS}
    try:
        return await _Run(lines, load, seed=1).go(arrivals)
    finally:
        for line in lines.values():
            line.close()
