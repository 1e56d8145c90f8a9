"""Mutual TLS 1.3 between the hosts of a fleet, under the links of `tcp`.

Invariant: a peer is a host whose certificate the fleet's authority signed and which is named as one; who is not is
turned away before one octet of the link's own protocol. Nothing of this replaces the attempt's key, which both sides
prove afterwards, inside.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from worldline.errors import BadValue, LinkCut, Unauthenticated
from worldline.transport.certificates import HOST_DOMAIN

T = TypeVar("T")

POLL_MS: Final = 200
RECORD_BYTES: Final = 16 * 1024
"""The most that one TLS record carries, and that is sent while the lock is held."""


class TlsIdentity:
    """This host's certificate, and whom it trusts: the hosts that one authority signed."""

    def __init__(self, folder: Path, host: str) -> None:
        """Reads ca.pem, HOST.pem and HOST.key. Raises `BadValue` where one can't be read or is not the other's, and for
        a key that others may read.
        """
        try:
            if (folder / f"{host}.key").stat().st_mode & 0o077:
                raise BadValue(f"the TLS key of host {host} can be read by others: its mode must be 0600")
            self._server = _context(ssl.PROTOCOL_TLS_SERVER, folder, host)
            self._client = _context(ssl.PROTOCOL_TLS_CLIENT, folder, host)
        except OSError as error:
            raise BadValue(f"TLS of host {host} from {folder.name}: {error.strerror or error}") from error
        self.host = host
        self._server.num_tickets = 0  # nothing is resumed, and after the handshake only the link's own bytes come

    async def accept(self, sock: socket.socket) -> TlsSocket:
        """Target side, on a connected non-blocking socket, which is taken over. Raises `Unauthenticated`, `LinkCut`."""
        return await _handshake(self._server.wrap_socket(sock, server_side=True, do_handshake_on_connect=False))

    async def connect(self, sock: socket.socket, host: str) -> TlsSocket:
        """Source side: only `host` is taken for the peer. Raises `Unauthenticated`, `LinkCut`."""
        peer = await _handshake(self._client.wrap_socket(sock, do_handshake_on_connect=False))
        if peer.host != host:
            peer.close()
            raise Unauthenticated(f"host {peer.host} answers where {host} should", found=peer.host)
        return peer


class TlsSocket:
    """A socket as `StreamLink` uses one, with TLS inside.

    The two threads of a link use one TLS state, which only one of them may touch: each call holds the lock for one
    record, and waits without it.
    """

    def __init__(self, sock: ssl.SSLSocket, host: str) -> None:
        self.host = host
        """The peer's, by its certificate."""
        self._sock = sock
        self._lock = threading.Lock()
        self._ahead = b""

    def setblocking(self, blocking: bool) -> None:
        """The socket below never blocks; `recv_into` and `sendmsg` do."""

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        self._sock.setsockopt(level, option, value)

    def sendmsg(self, pieces: Iterable[bytes | memoryview]) -> int:
        """Sends the first bytes of `pieces`. Raises `BlockingIOError` when nothing goes out for a while."""
        data = _first_record(pieces)
        while True:
            with self._lock:
                try:
                    return self._sock.send(data)
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
            if not self._poll(wanted, POLL_MS):
                raise BlockingIOError

    def recv(self, nbytes: int, flags: int) -> bytes:
        """Looks ahead without waiting. Raises `BlockingIOError` when nothing is there."""
        assert flags == socket.MSG_PEEK | socket.MSG_DONTWAIT, "a link only looks"
        with self._lock:
            if not self._ahead:
                try:
                    self._ahead = self._sock.recv(RECORD_BYTES)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                    raise BlockingIOError from error
            return self._ahead[:nbytes]

    def recv_into(self, view: memoryview) -> int:
        """Waits for bytes; 0 at the end of the stream."""
        while True:
            with self._lock:
                if self._ahead:
                    got = min(len(view), len(self._ahead))
                    view[:got], self._ahead = self._ahead[:got], self._ahead[got:]
                    return got
                try:
                    return self._sock.recv_into(view)
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
            self._poll(wanted, None)

    def getsockopt(self, level: int, option: int, nbytes: int) -> bytes:
        return self._sock.getsockopt(level, option, nbytes)

    def shutdown(self, how: int) -> None:
        """Below TLS: the other thread may still read what came, and wakes."""
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        self._sock.close()

    # ---- before there is a link, on the event loop

    async def send_all(self, data: bytes) -> None:
        """Raises `Unauthenticated` where the peer refused this side's certificate, `LinkCut`."""
        while data:
            data = data[await _retried(self._sock, lambda: self._sock.send(data)) :]  # noqa: B023 - called at once

    async def receive(self, nbytes: int) -> bytes:
        """At most `nbytes`; nothing at the end of the stream. Raises as `send_all`."""
        return await _retried(self._sock, lambda: self._sock.recv(nbytes))

    def _poll(self, wanted: int, timeout_ms: int | None) -> bool:
        poll = select.poll()
        poll.register(self._sock, wanted)
        return bool(poll.poll(timeout_ms))


AnySocket: TypeAlias = socket.socket | TlsSocket
"""A link runs over either."""


def _context(protocol: int, folder: Path, host: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a host is not a name of DNS; `_host_of` reads it
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=folder / "ca.pem")
    context.load_cert_chain(folder / f"{host}.pem", folder / f"{host}.key", password="")
    return context


async def _handshake(sock: ssl.SSLSocket) -> TlsSocket:
    try:
        await _retried(sock, sock.do_handshake)
        return TlsSocket(sock, _host_of(sock))
    except BaseException:
        sock.close()
        raise


def _host_of(sock: ssl.SSLSocket) -> str:
    """Whose certificate it is. Raises `Unauthenticated` for one of anything but one host."""
    certificate = sock.getpeercert() or {}
    names = [str(entry[1]) for entry in certificate.get("subjectAltName", ()) if entry[0] == "DNS"]
    if len(names) != 1 or not names[0].endswith(HOST_DOMAIN):
        raise Unauthenticated("the peer's certificate is not that of a host of this fleet")
    return names[0].removesuffix(HOST_DOMAIN)


async def _retried(sock: ssl.SSLSocket, work: Callable[[], T]) -> T:
    """What `work` returns once TLS has what it waits for. Raises `Unauthenticated`, `LinkCut`."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return work()
        except ssl.SSLWantReadError:
            await _ready(sock, loop.add_reader, loop.remove_reader)
        except ssl.SSLWantWriteError:
            await _ready(sock, loop.add_writer, loop.remove_writer)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise LinkCut("the peer closed the connection while certificates were shown") from error
        except ssl.SSLError as error:
            raise Unauthenticated(f"TLS with the peer failed: {error.reason or error}") from error
        except OSError as error:
            raise LinkCut(f"the connection broke while certificates were shown: {error.strerror}") from error


async def _ready(sock: ssl.SSLSocket, watch: Callable[..., None], unwatch: Callable[[int], bool]) -> None:
    ready = asyncio.Event()
    watch(sock.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        unwatch(sock.fileno())


def _first_record(pieces: Iterable[bytes | memoryview]) -> bytes | memoryview:
    """The first piece, or several together where they are small."""
    batch: list[bytes | memoryview] = []
    nbytes = 0
    for piece in pieces:
        if not batch and len(piece) >= RECORD_BYTES:
            return piece
        batch.append(piece)
        nbytes += len(piece)
        if nbytes >= RECORD_BYTES:
            break
    return b"".join(batch)
