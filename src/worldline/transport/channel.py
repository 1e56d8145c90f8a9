"""One connected stream socket with blocking reads and writes, for the threads of a link.

Large stretches of an arena are not copied to be sent: the system is lent their pages (sendfile;
docs/decisions/0009-pages-are-lent.md). So what arrives is what the memory held when it was taken, at the latest when it
landed.

Invariant: whoever blocks here is woken by `shut`, and after `end` nothing is read into memory any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

from worldline.errors import LinkCut, TimedOut
from worldline.schema.layout import Extent
from worldline.transport.deadline import Deadline
from worldline.transport.protocol import ArenaBytes
from worldline.transport.tls import AnySocket, TlsSocket
from worldline.verify.budget import Budget, Meter

POLL_S: Final = 0.2
"""How long a send may sleep before its deadline is looked at."""
BATCH_BYTES: Final = 1024 * 1024
BATCH_PIECES: Final = 512
"""Small pieces go to the system together; Linux takes 1024 at once."""
WAKE_BYTES: Final = 256 * 1024
"""Received between two wake-ups within large pieces: one for each segment that comes costs as much as its bytes."""
LENT_BYTES_MIN: Final = 256 * 1024
"""Less is copied with what goes before and after it."""
LENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""In one call, while the deadline is far."""
LENT_STEP_BYTES: Final = 64 * 1024
"""What the system moves at once within a call. For each it may wait just under `POLL_S` and then go on, and nobody
looks at a deadline meanwhile.
"""
WIDE_BYTES: Final = 4 * 1024 * 1024
"""Linux gives no more than net.core.wmem_max: where that is small, nothing changes."""
UNPACED: Final = 2**64 - 1
_SO_MAX_PACING_RATE: Final = 47

Octets: TypeAlias = bytes | memoryview
Sendable: TypeAlias = Octets | Extent
"""To be sent: octets, or a stretch of the channel's arena."""


class Channel:
    """Takes the socket over. One thread may read and another one write."""

    def __init__(self, sock: AnySocket, arena: ArenaBytes | None = None, budget: Budget | None = None) -> None:
        """`arena`: whose extents are sent; None where none are. Raises `ValueError` where it is closed."""
        self._sock = sock
        self._arena = arena
        self._plain = None if isinstance(sock, TlsSocket) else sock
        self._lent_fd: int | None = None
        """The channel's own, so that its number names nothing else when the arena is closed."""
        if arena is not None and self._plain is not None:
            self._lent_fd = _own(arena)
        self._wide = False
        self._budget = budget
        self._ended = False
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 0, int(POLL_S * 1e6)))

    def send(self, pieces: Iterator[Sendable], deadline: Deadline) -> None:
        """Sends all of it, small ones together; an empty one lets those before it leave.

        Raises `LinkCut`, `TimedOut`: then part of it may have left.
        """
        meter = Meter(self._budget)
        for batch in self._batches(pieces):
            if isinstance(batch, Extent):
                self._lend(batch, deadline, meter)
            else:
                self._copy(batch, deadline)
                meter.pay()

    def _batches(self, pieces: Iterator[Sendable]) -> Iterator[list[Octets] | Extent]:
        """In order: what is small together, to be copied; large stretches of the arena, to be lent."""
        batch: list[Octets] = []
        nbytes = 0
        for piece in pieces:
            if isinstance(piece, Extent) and piece.nbytes >= LENT_BYTES_MIN and self._lent_fd is not None:
                yield batch
                batch, nbytes = [], 0
                yield piece
                continue
            octets = self._view(piece)
            if octets:
                batch.append(octets)
                nbytes += len(octets)
            # An empty one: what came before it is to leave now.
            if not octets or nbytes >= BATCH_BYTES or len(batch) >= BATCH_PIECES:
                yield batch
                batch, nbytes = [], 0
        yield batch

    def _view(self, piece: Sendable) -> Octets:
        if not isinstance(piece, Extent):
            return piece
        assert self._arena is not None, "extents are sent of an arena"
        return self._arena.bytes_at(piece)

    def _copy(self, octets: list[Octets], deadline: Deadline) -> None:
        """The system has a copy of all of them at the return."""
        first = 0
        while first < len(octets):
            left = itertools.islice(octets, first, None)
            first = _forget(octets, first, self._taken(partial(self._sock.sendmsg, left), deadline))

    def _lend(self, extent: Extent, deadline: Deadline, meter: Meter) -> None:
        """The system has all of it at the return, and takes the bytes from the arena's own pages."""
        assert self._lent_fd is not None and self._plain is not None, "an arena's extents are lent to a plain socket"
        at, end = extent.offset, extent.offset + extent.nbytes
        while at < end:
            nbytes = min(end - at, lent_at_once(deadline.left_s))
            at += self._taken(partial(os.sendfile, self._plain.fileno(), self._lent_fd, at, nbytes), deadline)
            meter.pay()

    def _taken(self, hand: Callable[[], int], deadline: Deadline) -> int:
        """How much the system took; nothing where nothing went out within `POLL_S`. Raises as `send`."""
        if self._ended:
            raise LinkCut("the link was closed on this side")
        if deadline.passed:
            raise TimedOut("the other side did not take the bytes in time")
        try:
            return hand()
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LinkCut(f"the link broke: {error.strerror or error}") from error

    def receive(self, nbytes: int) -> bytes:
        """Raises `LinkCut`, `OSError`, as does `receive_into`."""
        data = bytearray(nbytes)
        with memoryview(data) as view:
            self.receive_into(view)
        return bytes(data)

    def receive_into(self, view: memoryview) -> None:
        """Fills `view` from the socket, and copies nothing."""
        nbytes = len(view)
        patient = nbytes >= 2 * WAKE_BYTES and self._plain is not None
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
            if self._plain is None:
                got = self._sock.recv_into(view[done:])
            else:
                got = self._plain.recv_into(view[done:], 0, socket.MSG_WAITALL)
            if got == 0:
                raise LinkCut("the other side closed the link")
            done += got

    @property
    def idle(self) -> bool:
        """Nothing has come that was not received. False at the end of the stream too is no harm."""
        with contextlib.suppress(BlockingIOError):
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return True

    def widen(self) -> None:
        """More may wait to leave: on a fast link a thread's turn at the processor is over before a small buffer is.

        Lent pages cost no memory there. A slow link would only be measured wrong, and urgent bytes wait longer.
        """
        if not self._wide and self._plain is not None:
            self._wide = True
            with contextlib.suppress(OSError):  # closed meanwhile
                self._plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WIDE_BYTES)

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
        """Once no thread is here any more."""
        self._sock.close()
        if self._lent_fd is not None:
            os.close(self._lent_fd)
            self._lent_fd = None


def lent_at_once(left_s: float) -> int:
    """So much that the call is over by the deadline, or soon after it, whatever the peer does."""
    return min(LENT_BYTES_MAX, max(1, int(left_s / POLL_S)) * LENT_STEP_BYTES)


def _own(arena: ArenaBytes) -> int:
    """A descriptor of its own for the arena. Raises `ValueError` where it is closed."""
    fd = fcntl.fcntl(arena.fd, fcntl.F_DUPFD_CLOEXEC, 0)
    try:
        _ = arena.fd  # closed meanwhile, its number may have been another file's already
    except ValueError:
        os.close(fd)
        raise
    return fd


def _forget(batch: list[Octets], first: int, sent: int) -> int:
    """Drops `sent` bytes from the front; the number of the piece that is first now."""
    while first < len(batch) and sent >= len(batch[first]):
        sent -= len(batch[first])
        batch[first] = b""
        first += 1
    if sent:
        batch[first] = memoryview(batch[first])[sent:]
    return first
