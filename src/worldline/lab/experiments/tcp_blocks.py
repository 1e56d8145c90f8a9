"""Blocks of one size from many hosts to one, over standing TCP connections, each sent when it is asked for."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from worldline.clock import Clock
from worldline.lab.fabric import Fabric, tcp_counters

WAIT_S = 60.0
ASK = b"\x01"


@dataclass(frozen=True, slots=True)
class Round:
    """Every sender's block once."""

    took_s: float
    timeouts: int
    """Retransmission timers that ran out, of all connections; 0 where the kernel does not count them."""
    retransmitted_bytes: int


class Senders:
    """All hosts of a fabric but the first send to the first. A context manager."""

    def __init__(self, fabric: Fabric, block_bytes: int, clock: Clock) -> None:
        self._clock = clock
        self._block = bytes(block_bytes)
        self._stack = ExitStack()
        try:
            pairs = [connection(self._stack, fabric, host, fabric.hosts[0]) for host in fabric.hosts[1:]]
        except BaseException:
            self._stack.close()
            raise
        self._near = [near for near, _ in pairs]
        self._far = [far for _, far in pairs]
        self._pool = ThreadPoolExecutor(2 * len(pairs), "block")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()  # whoever waits for a block is woken by the end of its connection
        self._pool.shutdown()

    def at_once(self) -> Round:
        """Every sender is asked, and then all blocks are read as they come."""

        def run() -> None:
            for far in self._far:
                far.sendall(ASK)
            list(self._pool.map(self._read, self._far))

        return self._round(run)

    def one_at_a_time(self) -> Round:
        """A sender is asked when the block before is here."""

        def run() -> None:
            for far in self._far:
                far.sendall(ASK)
                self._read(far)

        return self._round(run)

    def _round(self, run: Callable[[], None]) -> Round:
        before = [tcp_counters(near) for near in self._near]
        sending = [self._pool.submit(self._answer, near) for near in self._near]
        began_s = self._clock.monotonic_s()
        run()
        took_s = self._clock.monotonic_s() - began_s
        for each in sending:
            each.result(WAIT_S)
        after = [tcp_counters(near) for near in self._near]
        timeouts = sum((late.timeouts or 0) - (early.timeouts or 0) for early, late in zip(before, after, strict=True))
        again = sum(
            late.bytes_retransmitted - early.bytes_retransmitted for early, late in zip(before, after, strict=True)
        )
        return Round(took_s, timeouts, again)

    def _answer(self, near: socket.socket) -> None:
        if near.recv(1) == ASK:
            near.sendall(self._block)

    def _read(self, far: socket.socket) -> None:
        left, room = len(self._block), bytearray(1 << 16)
        while left:
            got = far.recv_into(room, min(left, len(room)))
            if not got:
                raise ConnectionError("a sender is gone")
            left -= got


def hang_up(end: socket.socket) -> None:
    """Ends the connection, whoever waits on either of its ends."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def connection(
    stack: ExitStack, fabric: Fabric, source: str, target: str, buffer_bytes: int | None = None
) -> tuple[socket.socket, socket.socket]:
    """A connected pair of sockets, one in each host, closed with `stack`; `buffer_bytes` are the receiver's."""

    def listening() -> socket.socket:
        listener = socket.socket()
        if buffer_bytes is not None:  # before it listens: the window's scale is agreed on with the connection
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        listener.bind((fabric.address(target), 0))
        listener.listen()
        return listener

    with fabric.call(target, listening) as listener:
        place = listener.getsockname()
        near = stack.enter_context(fabric.call(source, lambda: socket.create_connection(place, WAIT_S)))
        far, _ = listener.accept()
    stack.enter_context(far)
    for each in (near, far):
        each.settimeout(WAIT_S)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far
