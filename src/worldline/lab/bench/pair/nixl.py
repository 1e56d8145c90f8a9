"""NIXL: one-sided WRITE over UCX's tcp, and its notification. No copy, no check."""

from __future__ import annotations

from importlib import import_module
from threading import Event
from typing import Any

import numpy as np

from worldline.lab.bench.pair.engine import MIB, WAIT_S, Where
from worldline.lab.bench.pair.own import filled_arena
from worldline.schema.layout import Extent
from worldline.transport.deadline import Deadline

DESCRIPTOR_BYTES = 64 * MIB
POLL_S = 0.0002
DONE = b"done"


class _Half:
    def __init__(self, where: Where, name: str, seed: int | None) -> None:
        api: Any = import_module("nixl_cu12._api")
        self.nbytes = where.nbytes
        self.arena = filled_arena(where.nbytes, "bench", seed)
        octets = np.frombuffer(self.arena.bytes_at(Extent(0, where.nbytes)), np.uint8)
        self.start = int(octets.__array_interface__["data"][0])
        passive = seed is None
        self.agent: Any = api.nixl_agent(name, api.nixl_agent_config(passive, False, 0, backends=["UCX"]))
        self.memory = self.agent.register_memory([(self.start, where.nbytes, 0, "")], "DRAM")

    def close(self) -> None:
        self.agent.deregister_memory(self.memory)
        self.agent = None
        self.arena.close()


class _Target(_Half):
    def __init__(self, where: Where) -> None:
        super().__init__(where, "target", None)
        self.address = f"{self.start} {self.agent.get_agent_metadata().hex()}"

    def serve(self) -> None:
        deadline, nap = Deadline(WAIT_S), Event()
        while not self.agent.get_new_notifs():
            if deadline.passed:
                raise TimeoutError("no notification came")
            nap.wait(POLL_S)


class _Source(_Half):
    def __init__(self, where: Where, address: str) -> None:
        super().__init__(where, "source", 1)
        start, metadata = address.split()
        self._peer = self.agent.add_remote_agent(bytes.fromhex(metadata))
        self._mine = self._descriptors(self.start)
        self._theirs = self._descriptors(int(start))

    def _descriptors(self, start: int) -> Any:
        parts = range(0, self.nbytes, DESCRIPTOR_BYTES)
        stretches = [(start + offset, min(DESCRIPTOR_BYTES, self.nbytes - offset), 0) for offset in parts]
        return self.agent.get_xfer_descs(stretches, "DRAM")

    def send(self) -> None:
        deadline, nap = Deadline(WAIT_S), Event()
        peer = self._peer.decode() if isinstance(self._peer, bytes) else self._peer
        handle = self.agent.initialize_xfer("WRITE", self._mine, self._theirs, peer, DONE)
        status = self.agent.transfer(handle)
        while status == "PROC":
            if deadline.passed:
                raise TimeoutError("the write did not end")
            nap.wait(POLL_S)
            status = self.agent.check_xfer_state(handle)
        if status != "DONE":
            raise ConnectionError(f"NIXL ended the write with {status}")
        handle.release()


class Nixl:
    """See `ENGINES`."""

    target = _Target
    source = _Source
