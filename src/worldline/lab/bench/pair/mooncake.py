"""Mooncake's Transfer Engine over tcp: synchronous writes of 64 MiB, peers found without a metadata server."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from worldline.lab.bench.pair.engine import MIB, Where
from worldline.lab.bench.pair.own import filled_arena
from worldline.schema.layout import Extent

CALL_BYTES = 64 * MIB


class _Half:
    def __init__(self, where: Where, seed: int | None) -> None:
        self.nbytes = where.nbytes
        self.arena = filled_arena(where.nbytes, "bench", seed)
        octets = np.frombuffer(self.arena.bytes_at(Extent(0, where.nbytes)), np.uint8)
        self.start = int(octets.__array_interface__["data"][0])
        self.engine: Any = import_module("mooncake.engine").TransferEngine()
        if self.engine.initialize(where.ip, "P2PHANDSHAKE", "tcp", "") != 0:
            raise ConnectionError("Mooncake's engine does not start")
        if self.engine.register_memory(self.start, where.nbytes) != 0:
            raise ConnectionError("Mooncake does not take the memory")
        self.address = f"{where.ip}:{self.engine.get_rpc_port()} {self.start}"

    def serve(self) -> None:
        """A write is one-sided: the source alone knows when it is done."""

    def close(self) -> None:
        self.engine.unregister_memory(self.start)


class _Target(_Half):
    def __init__(self, where: Where) -> None:
        super().__init__(where, None)


class _Source(_Half):
    def __init__(self, where: Where, address: str) -> None:
        super().__init__(where, 1)
        self._peer, start = address.split()
        self._peer_start = int(start)

    def send(self) -> None:
        for offset in range(0, self.nbytes, CALL_BYTES):
            nbytes = min(CALL_BYTES, self.nbytes - offset)
            status = self.engine.transfer_sync_write(self._peer, self.start + offset, self._peer_start + offset, nbytes)
            if status != 0:
                raise ConnectionError(f"Mooncake ended a write with {status}")


class Mooncake:
    """See `ENGINES`."""

    target = _Target
    source = _Source
