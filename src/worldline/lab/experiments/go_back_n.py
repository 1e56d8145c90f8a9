"""A transport that goes back on every loss, over UDP: what reliable connections of RDMA cards do, in software.

The sender sends as fast as its port takes packets, with no window. The receiver takes packets of a flow in order only:
at the first gap it says once which packet it expects (NAK), drops whatever else comes, and the sender goes back to
there. Where that is lost too the sender goes back after `TIMEOUT_S` without progress. A full buffer at the switch thus
costs not a packet but everything sent after it. Datagrams are `flow, kind, number, padding`; words to the sender go
in the control class, and none is lost.

Source of the rules: InfiniBand's reliable connection (go-back-N, one NAK a gap), as RoCE v2 carries it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from select import select
from threading import Event, Thread
from types import TracebackType
from typing import Self

from worldline.clock import Clock
from worldline.errors import TimedOut
from worldline.lab.fabric import CONTROL_TOS

PACKET_BYTES = 8192
HEADER_BYTES = 28
"""Of IP and UDP."""
TIMEOUT_S = 0.1
ACK_EVERY = 8
POLL_S = 0.05
SENDER_BUFFER_BYTES = 64 * 1024
"""Small, so that a sender is held by its port and not by memory."""
GIVEN_UP_S = 60.0
SO_RCVBUFFORCE = 33
"""Of Linux (asm-generic/socket.h); Python does not name it. Without the right to use it the machine's limit holds."""
_WORD = struct.Struct("<HBxI")
_DATA, _LAST, _ACK, _NAK = 0, 1, 2, 3


def packets_of(nbytes: int) -> int:
    return -(-nbytes // PACKET_BYTES)


@dataclass(frozen=True, slots=True)
class Sent:
    """What one flow took. `needed_bytes` is each packet once."""

    needed_bytes: int
    sent_bytes: int
    times_back: int
    took_s: float


class Sender:
    """One flow at a time to one place. `bytes_per_s`: its own pace; None: as fast as its port."""

    def __init__(self, sock: socket.socket, place: tuple[str, int], clock: Clock, bytes_per_s: float | None) -> None:
        """`sock`: UDP, unconnected, of the sending host."""
        self._sock = sock
        self._place = place
        self._clock = clock
        self._gap_s = 0.0 if bytes_per_s is None else (PACKET_BYTES + HEADER_BYTES) / bytes_per_s
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENDER_BUFFER_BYTES)
        sock.setblocking(True)

    def send(self, nbytes: int, flow: int) -> Sent:
        """Returns when all was acknowledged. `flow` is a number that was never used before. Raises `TimedOut`."""
        count, base, following, sent, back = packets_of(nbytes), 0, 0, 0, 0
        began_s = next_s = self._clock.monotonic_s()
        while base < count:
            now_s = self._clock.monotonic_s()
            if now_s > began_s + GIVEN_UP_S:
                raise TimedOut(f"flow {flow} was not through within {GIVEN_UP_S:g} s")
            heard = self._hear(flow, max(0.0, next_s - now_s) if following < count else TIMEOUT_S)
            if heard is not None:
                word, number = heard
                base = max(base, number)
                if word == _NAK and following > number:
                    following, back = base, back + 1
                following = max(following, base)
            elif following == count:
                following, back = base, back + 1
            if following < count and self._clock.monotonic_s() >= next_s:
                self._post(flow, following, last=following == count - 1)
                next_s = max(next_s, now_s - self._gap_s) + self._gap_s
                following, sent = following + 1, sent + 1
        each = PACKET_BYTES + HEADER_BYTES
        return Sent(count * each, sent * each, back, self._clock.monotonic_s() - began_s)

    def _post(self, flow: int, number: int, *, last: bool) -> None:
        head = _WORD.pack(flow, _LAST if last else _DATA, number)
        self._sock.sendto(head + bytes(PACKET_BYTES - _WORD.size), self._place)

    def _hear(self, flow: int, wait_s: float) -> tuple[int, int] | None:
        """What the receiver says of this flow; what it still says of an earlier one is nothing."""
        ready, _, _ = select([self._sock], [], [], wait_s)
        if not ready:
            return None
        of, word, number = _WORD.unpack_from(self._sock.recv(_WORD.size))
        return (word, number) if of == flow else (_ACK, 0)


@dataclass(slots=True)
class _Flow:
    expected: int = 0
    told: bool = False
    """Of the gap that stands."""


class Receiver:
    """All flows of one host, on one thread, as the receive path of a card is one.

    `executor` is called there for every `chunk_bytes` of a flow that are here: what it does on the path on which bytes
    arrive is what an experiment may be about.
    """

    def __init__(
        self,
        sock: socket.socket,
        clock: Clock,
        executor: Callable[[int], None] = lambda _: None,
        chunk_bytes: int = 1 << 20,
    ) -> None:
        self._sock = sock
        self._clock = clock
        self._executor = executor
        self._packets_of_chunk = max(1, chunk_bytes // PACKET_BYTES)
        self._flows: dict[int, _Flow] = {}
        self._last_s: float | None = None
        self._over = Event()
        self._thread = Thread(target=self._serve, name="receiver")
        self.stalled_s_max = 0.0
        """The longest time between two packets that were taken, whichever flow's."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _serve(self) -> None:
        self._sock.settimeout(POLL_S)
        while not self._over.is_set():
            try:
                data, place = self._sock.recvfrom(PACKET_BYTES)
            except TimeoutError:
                continue
            flow, word, number = _WORD.unpack_from(data)
            self._take(flow, word, number, place)

    def _take(self, flow: int, word: int, number: int, place: tuple[str, int]) -> None:
        known = self._flows.setdefault(flow, _Flow())
        if number > known.expected:
            if not known.told:
                known.told = True
                self._say(flow, _NAK, known.expected, place)
            return
        if number < known.expected:  # sent again though it was here
            self._say(flow, _ACK, known.expected, place)
            return
        self._progress()
        known.expected += 1
        known.told = False
        if known.expected % self._packets_of_chunk == 0:
            self._executor(self._packets_of_chunk * PACKET_BYTES)
        if word == _LAST or known.expected % ACK_EVERY == 0:
            self._say(flow, _ACK, known.expected, place)

    def _progress(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._last_s is not None:
            self.stalled_s_max = max(self.stalled_s_max, now_s - self._last_s)
        self._last_s = now_s

    def _say(self, flow: int, word: int, number: int, place: tuple[str, int]) -> None:
        self._sock.sendto(_WORD.pack(flow, word, number), place)


def receiving_socket(address: str, buffer_bytes: int) -> socket.socket:
    """UDP, of the receiving host: to be made inside it. Its words go in the control class."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer_bytes)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, CONTROL_TOS)
    sock.bind((address, 0))
    return sock
