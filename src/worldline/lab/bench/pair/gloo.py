"""gloo, as torch.distributed has it: sends and receives of 64 MiB between two ranks."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from worldline.lab.bench.pair.engine import MIB, WAIT_S, Where

MESSAGE_BYTES = 64 * MIB


class _Half:
    def __init__(self, where: Where, rank: int) -> None:
        self._torch: Any = import_module("torch")  # a peer, and the only reason why a bench knows of it
        self._ranks: Any = import_module("torch.distributed")
        self._rank = rank
        self._where = where
        self._joined = False
        self._state = self._torch.full((where.nbytes,), rank + 1, dtype=self._torch.uint8)
        self._word = self._torch.zeros(1, dtype=self._torch.uint8)
        os.environ["GLOO_SOCKET_IFNAME"] = _interface_of(where.ip)

    def join(self, address: str) -> None:
        """Both ranks at once: at the first transfer."""
        if not self._joined:
            self._ranks.init_process_group(
                "gloo",
                init_method=f"tcp://{address}",
                world_size=2,
                rank=self._rank,
                timeout=timedelta(seconds=WAIT_S),
            )
            self._joined = True

    def parts(self) -> list[Any]:
        return list(self._state.split(MESSAGE_BYTES))

    def close(self) -> None:
        if self._joined:
            self._ranks.destroy_process_group()


class _Target(_Half):
    def __init__(self, where: Where) -> None:
        super().__init__(where, 0)
        with socket.create_server((where.ip, 0)) as free:
            self.address = f"{where.ip}:{free.getsockname()[1]}"

    def serve(self) -> None:
        self.join(self.address)
        for part in self.parts():
            self._ranks.recv(part, src=1)
        self._ranks.send(self._word, dst=1)


class _Source(_Half):
    def __init__(self, where: Where, address: str) -> None:
        super().__init__(where, 1)
        self._address = address

    def send(self) -> None:
        self.join(self._address)
        for part in self.parts():
            self._ranks.send(part, dst=0)
        self._ranks.recv(self._word, src=0)


class Gloo:
    """See `ENGINES`."""

    target = _Target
    source = _Source


def _interface_of(ip: str) -> str:
    return "lo" if ip.startswith("127.") or not Path("/sys/class/net/eth0").exists() else "eth0"
