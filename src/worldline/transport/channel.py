"""One connected stream socket with blocking reads and writes, for the threads of a link.

An arena's bytes are not copied to be sent: the system is lent their pages (sendfile), and the peer's system takes them
from there. So what arrives is what the memory held when it was taken, at the latest when it landed.

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
from typing import Final, NamedTuple, TypeAlias

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
"""In one call, which goes on as long as the peer takes a little now and then: a deadline is looked at in between."""
WIDE_BYTES: Final = 4 * 1024 * 1024
UNPACED: Final = 2**64 - 1
_SO_MAX_PACING_RATE: Final = 47

Octets: TypeAlias = bytes | memoryview
Sendable: TypeAlias = Octets | Extent
"""To be sent: octets, or a stretch of the channel's arena."""
Outgoing: TypeAlias = Iterator[tuple[bytes, Sendable | None]]
"""Records, each with the payload that follows it."""


class Channel:
    """Takes the socket over. One thread may read and another one write."""

    def __init__(self, sock: AnySocket, arena: ArenaBytes | None = None, budget: Budget | None = None) -> None:
        """`arena` is whose extents are sent."""
        self._sock = sock
        self._arena = arena
        self._plain = None if isinstance(sock, TlsSocket) else sock
        self._lent_fd: int | None = None
        """The channel's own, so that its number names nothing else when the arena is closed."""
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
        for batch in _batches(pieces, lends=self._plain is not None):
            self._copy([self._view(piece) for piece in batch.copied], deadline)
            for part in () if batch.lent is None else _parts(batch.lent):
                meter.pay()
                self._lend(part, deadline)
            meter.pay()

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
            first = _forget(octets, first, self._taken(lambda: self._sock.sendmsg(left), deadline))  # noqa: B023 - called at once

    def _lend(self, extent: Extent, deadline: Deadline) -> None:
        """The system has all of it at the return, and takes the bytes from the arena's own pages."""
        assert self._arena is not None and self._plain is not None, "an arena's extents are lent to a plain socket"
        if self._lent_fd is None:
            self._lent_fd = fcntl.fcntl(self._arena.fd, fcntl.F_DUPFD_CLOEXEC, 0)
        fd, sock_fd, at, end = self._lent_fd, self._plain.fileno(), extent.offset, extent.offset + extent.nbytes
        while at < end:
            at += self._taken(lambda: os.sendfile(sock_fd, fd, at, end - at), deadline)  # noqa: B023 - called at once

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


class _Batch(NamedTuple):
    copied: list[Sendable]
    lent: Extent | None = None
    """After them."""


def _batches(pieces: Iterator[Sendable], lends: bool) -> Iterator[_Batch]:
    """Pieces in order, together where they are small."""
    batch: list[Sendable] = []
    nbytes = 0
    for piece in pieces:
        size = piece.nbytes if isinstance(piece, Extent) else len(piece)
        if lends and isinstance(piece, Extent) and size >= LENT_BYTES_MIN:
            yield _Batch(batch, piece)
            batch, nbytes = [], 0
            continue
        if size:
            batch.append(piece)
            nbytes += size
        # An empty one: what came before it is to leave now.
        if not size or nbytes >= BATCH_BYTES or len(batch) >= BATCH_PIECES:
            yield _Batch(batch)
            batch, nbytes = [], 0
    yield _Batch(batch)


def _parts(extent: Extent) -> Iterator[Extent]:
    for at in range(0, extent.nbytes, LENT_BYTES_MAX):
        yield Extent(extent.offset + at, min(LENT_BYTES_MAX, extent.nbytes - at))


def _forget(batch: list[Octets], first: int, sent: int) -> int:
    """Drops `sent` bytes from the front; the number of the piece that is first now."""
    while first < len(batch) and sent >= len(batch[first]):
        sent -= len(batch[first])
        batch[first] = b""
        first += 1
    if sent:
        batch[first] = memoryview(batch[first])[sent:]
    return first
