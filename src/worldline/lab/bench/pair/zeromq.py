"""ZeroMQ: PUSH to PULL, each message copied into the state's memory where it belongs."""

from __future__ import annotations

from importlib import import_module

from worldline.lab.bench.pair.engine import MIB, WAIT_S, Where
from worldline.lab.bench.pair.own import filled_arena
from worldline.schema.layout import Extent

MESSAGE_BYTES = 4 * MIB
IO_THREADS = 2
WAIT_MS = int(WAIT_S * 1000)


class _Half:
    def __init__(self, where: Where, seed: int | None) -> None:
        zmq = import_module("zmq")
        self._nbytes = where.nbytes
        self._arena = filled_arena(where.nbytes, "bench", seed)
        self._context = zmq.Context(IO_THREADS)
        self._data = self._context.socket(zmq.PULL if seed is None else zmq.PUSH)
        self._told = self._context.socket(zmq.PUSH if seed is None else zmq.PULL)
        for sock in (self._data, self._told):
            sock.linger = 0
            sock.rcvtimeo = sock.sndtimeo = WAIT_MS
            sock.sndhwm = sock.rcvhwm = 32

    def close(self) -> None:
        self._data.close()
        self._told.close()
        self._context.term()
        self._arena.close()


class _Target(_Half):
    def __init__(self, where: Where) -> None:
        super().__init__(where, None)
        ports = [sock.bind_to_random_port(f"tcp://{where.ip}") for sock in (self._data, self._told)]
        self.address = " ".join(f"tcp://{where.ip}:{port}" for port in ports)

    def serve(self) -> None:
        view = self._arena.bytes_at(Extent(0, self._nbytes))
        done = 0
        while done < self._nbytes:
            message = self._data.recv(copy=False).buffer
            view[done : done + len(message)] = message
            done += len(message)
        self._told.send(b"done")


class _Source(_Half):
    def __init__(self, where: Where, address: str) -> None:
        super().__init__(where, 1)
        for sock, place in zip((self._data, self._told), address.split(), strict=True):
            sock.connect(place)

    def send(self) -> None:
        view = self._arena.bytes_at(Extent(0, self._nbytes))
        for start in range(0, self._nbytes, MESSAGE_BYTES):
            self._data.send(view[start : start + MESSAGE_BYTES], copy=False)
        self._told.recv()


class ZeroMq:
    """See `ENGINES`."""

    target = _Target
    source = _Source
