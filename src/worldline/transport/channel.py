"""One connected stream socket with blocking reads and writes, for the threads of a link.

Invariant: whoever blocks here is woken by `shut`, and after `end` nothing is read into memory any more.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from worldline.errors import LinkCut, TimedOut
from worldline.transport.deadline import Deadline
from worldline.transport.tls import AnySocket, TlsSocket
from worldline.verify.budget import Budget, Meter

POLL_S: Final = 0.2
"""How long a send may sleep before its deadline is looked at."""
BATCH_BYTES: Final = 1024 * 1024
BATCH_PIECES: Final = 512
"""Small pieces go to the system together; Linux takes 1024 at once."""
WAKE_BYTES: Final = 256 * 1024
"""Received between two wake-ups within large pieces: one for each segment that comes costs as much as its bytes."""
UNPACED: Final = 2**64 - 1
_SO_MAX_PACING_RATE: Final = 47

Octets: TypeAlias = bytes | memoryview


class Channel:
    """Takes the socket over. One thread may read and another one write."""

    def __init__(self, sock: AnySocket, budget: Budget | None = None) -> None:
        self._sock = sock
        self._budget = budget
        self._ended = False
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 0, int(POLL_S * 1e6)))

    def send(self, pieces: Iterator[Octets], deadline: Deadline) -> None:
        """Sends all of it, small ones together; an empty one lets those before it leave.

        Raises `LinkCut`, `TimedOut`: then part of it may have left.
        """
        meter = Meter(self._budget)
        for batch in _batches(pieces):
            first = 0
            while first < len(batch):
                if self._ended:
                    raise LinkCut("the link was closed on this side")
                if deadline.passed:
                    raise TimedOut("the other side did not take the bytes in time")
                try:
                    sent = self._sock.sendmsg(itertools.islice(batch, first, None))
                except BlockingIOError:  # nothing went out within POLL_S
                    continue
                except OSError as error:
                    raise LinkCut(f"the link broke: {error.strerror or error}") from error
                first = _forget(batch, first, sent)
            meter.pay()

    def receive(self, nbytes: int) -> bytes:
        """Raises `LinkCut`, `OSError`, as does `receive_into`."""
        data = bytearray(nbytes)
        with memoryview(data) as view:
            self.receive_into(view)
        return bytes(data)

    def receive_into(self, view: memoryview) -> None:
        """Fills `view` from the socket, and copies nothing."""
        nbytes = len(view)
        patient = nbytes >= 2 * WAKE_BYTES and not isinstance(self._sock, TlsSocket)
        if patient:
            self._wake_at(WAKE_BYTES)
            self._fill(view[: nbytes - WAKE_BYTES])
            view = view[nbytes - WAKE_BYTES :]
            self._wake_at(1)
        self._fill(view)

    def _wake_at(self, nbytes: int) -> None:
        """This thread sleeps on until so much has come. Never more than is still due: nothing else would wake it."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, nbytes)

    def _fill(self, view: memoryview) -> None:
        done, nbytes = 0, len(view)
        while done < nbytes:
            if self._ended:
                raise LinkCut("the link was closed on this side")
            if isinstance(self._sock, TlsSocket):
                got = self._sock.recv_into(view[done:])
            else:
                got = self._sock.recv_into(view[done:], 0, socket.MSG_WAITALL)
            if got == 0:
                raise LinkCut("the other side closed the link")
            done += got

    @property
    def idle(self) -> bool:
        """Nothing has come that was not received. False at the end of the stream too is no harm."""
        with contextlib.suppress(BlockingIOError):
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return True

    def pace(self, rate_bytes_per_s: float | None) -> None:
        """The kernel sends no faster from here on; None: as fast as it goes."""
        rate = UNPACED if rate_bytes_per_s is None else max(1, int(rate_bytes_per_s))
        with contextlib.suppress(OSError):  # closed meanwhile
            self._sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("=Q", rate))

    def shut(self, how: int) -> None:
        with contextlib.suppress(OSError):  # it may be shut, or reset by the peer, already
            self._sock.shutdown(how)

    def end(self) -> None:
        """Nothing is read or written any more; who blocks wakes. `close` follows once the threads have ended."""
        self._ended = True
        self.shut(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()


def _batches(pieces: Iterator[Octets]) -> Iterator[list[Octets]]:
    """Pieces in order, together where they are small."""
    batch: list[Octets] = []
    nbytes = 0
    for piece in pieces:
        if not piece:  # what came before it is to leave now
            if batch:
                yield batch
            batch, nbytes = [], 0
            continue
        batch.append(piece)
        nbytes += len(piece)
        if nbytes >= BATCH_BYTES or len(batch) >= BATCH_PIECES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _forget(batch: list[Octets], first: int, sent: int) -> int:
    """Drops `sent` bytes from the front; the number of the piece that is first now."""
    while first < len(batch) and sent >= len(batch[first]):
        sent -= len(batch[first])
        batch[first] = b""
        first += 1
    if sent:
        batch[first] = memoryview(batch[first])[sent:]
    return first
