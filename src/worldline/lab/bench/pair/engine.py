"""What an engine does in each of the two processes. Light: the parent reads it too."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

MIB: Final = 1024 * 1024
WAIT_S: Final = 120.0
"""For one transfer; over it the bench fails."""


class TargetHalf(Protocol):
    """Where the bytes arrive. Made once, it serves any number of transfers."""

    address: str
    """One line that the source is told."""

    def serve(self) -> None:
        """Returns when all bytes of one transfer have arrived, and the source knows. Raises what went wrong."""
        ...

    def close(self) -> None: ...


class SourceHalf(Protocol):
    """Where the bytes come from."""

    def send(self) -> None:
        """Returns when the target has told that it has all bytes."""
        ...

    def close(self) -> None: ...


class Where(NamedTuple):
    """What an engine is told. `ip` is this process's own address; `private`: on a fabric."""

    ip: str
    nbytes: int
    private: bool


class Entry(NamedTuple):
    """An engine's two halves as `module:class`, what it needs, and the settings it is used with."""

    where: str
    needs: tuple[str, ...]
    """Modules without which it can't run."""
    install: str
    settings: str
    environment: tuple[tuple[str, str], ...] = ()


_HERE: Final = "worldline.lab.bench.pair"
ENGINES: Final[dict[str, Entry]] = {
    "verified": Entry(f"{_HERE}.own:Verified", (), "", "tcp, digests of 1 MiB leaves at both ends, compared"),
    "unverified": Entry(f"{_HERE}.own:Unverified", (), "", "tcp, the same without digests"),
    "sockets": Entry(
        f"{_HERE}.sockets:Sockets", (), "", "one stream, sends of 64 MiB, receives in a loop, 512 KiB buffers"
    ),
    "patient": Entry(f"{_HERE}.sockets:PatientSockets", (), "", "as sockets, received with MSG_WAITALL"),
    "nixl": Entry(
        f"{_HERE}.nixl:Nixl",
        ("nixl_cu12",),
        "pip install --no-deps nixl-cu12",
        "UCX, WRITE over tcp, progress thread at the target alone, 64 MiB descriptors",
        (("UCX_TLS", "tcp"), ("UCX_LOG_LEVEL", "error"), ("NIXL_LOG_LEVEL", "ERROR"), ("UCX_TCP_SNDBUF", "512k")),
    ),
    "mooncake": Entry(
        f"{_HERE}.mooncake:Mooncake",
        ("mooncake.engine",),
        "pip install --no-deps mooncake-transfer-engine-non-cuda, and Debian's libibverbs1 and librdmacm1",
        "Transfer Engine, tcp, write, 64 MiB a call",
        (("MC_FORCE_TCP", "1"), ("GLOG_minloglevel", "3"), ("MC_LOG_LEVEL", "ERROR")),
    ),
    "gloo": Entry(
        f"{_HERE}.gloo:Gloo", ("torch.distributed",), "pip install torch", "torch.distributed, send and recv of 64 MiB"
    ),
    "zeromq": Entry(
        f"{_HERE}.zeromq:ZeroMq",
        ("zmq",),
        "pip install pyzmq",
        "PUSH and PULL, 4 MiB messages, copy=False, two io threads",
    ),
}
"""Every engine by its name."""
PEERS: Final = ("nixl", "mooncake", "gloo", "zeromq")
