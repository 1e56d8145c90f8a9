"""Plain sockets: nothing but bytes, as the ceiling of a port and the floor of processor time."""

from __future__ import annotations

import socket

from worldline.lab.bench.pair.engine import MIB, WAIT_S, Where
from worldline.lab.bench.pair.own import filled_arena
from worldline.schema.layout import Extent

SEND_BYTES = 64 * MIB
BUFFER_BYTES = 512 * 1024
DONE = b"\x01"


def _tune(sock: socket.socket) -> None:
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    sock.settimeout(WAIT_S)


class _Target:
    flags = 0

    def __init__(self, where: Where) -> None:
        self._arena = filled_arena(where.nbytes, "bench", None)
        self._nbytes = where.nbytes
        self._listener = socket.create_server((where.ip, 0))
        self._sock: socket.socket | None = None
        self.address = f"{where.ip} {self._listener.getsockname()[1]}"

    def serve(self) -> None:
        if self._sock is None:
            self._sock, _ = self._listener.accept()
            _tune(self._sock)
            self._sock.settimeout(None)
        view = self._arena.bytes_at(Extent(0, self._nbytes))
        done = 0
        while done < self._nbytes:
            got = self._sock.recv_into(view[done : done + SEND_BYTES], 0, self.flags)
            if not got:
                raise ConnectionError("the source is gone")
            done += got
        self._sock.sendall(DONE)

    def close(self) -> None:
        self._listener.close()
        if self._sock is not None:
            self._sock.close()
        self._arena.close()


class _Source:
    def __init__(self, where: Where, address: str) -> None:
        ip, port = address.split()
        self._arena = filled_arena(where.nbytes, "bench", 1)
        self._nbytes = where.nbytes
        self._sock = socket.create_connection((ip, int(port)), WAIT_S)
        _tune(self._sock)
        self._sock.settimeout(None)

    def send(self) -> None:
        view = self._arena.bytes_at(Extent(0, self._nbytes))
        for start in range(0, self._nbytes, SEND_BYTES):
            self._sock.sendall(view[start : start + SEND_BYTES])
        if self._sock.recv(1) != DONE:
            raise ConnectionError("the target is gone")

    def close(self) -> None:
        self._sock.close()
        self._arena.close()


class _PatientTarget(_Target):
    """Asks the kernel for all bytes at once: fewer wake-ups."""

    flags = socket.MSG_WAITALL


class Sockets:
    """See `ENGINES`."""

    target = _Target
    source = _Source


class PatientSockets:
    """See `ENGINES`."""

    target = _PatientTarget
    source = _Source
