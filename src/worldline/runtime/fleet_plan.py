"""What a fleet on one machine consists of, refused where it makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from worldline.errors import BadValue
from worldline.runtime.face import Face
from worldline.schema.ids import check_name
from worldline.verify.budget import check_cores

HOSTS_MAX = 64
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CPU_CAPABILITIES = ("default", "avx2", "avx512", "sve256", "vsx", "zvector")
"""The values of `ATEN_CPU_CAPABILITY` that torch knows."""


def lettered_hosts(count: int) -> tuple[str, ...]:
    """The names a, b, c ... Raises `BadValue` for none and for more than there are letters."""
    if not 1 <= count <= len(LETTERS):
        raise BadValue(f"a fleet of hosts named by letters has 1 to {len(LETTERS)}, not {count}")
    return tuple(LETTERS[:count])


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """Where a host lives on an emulated fabric: a network namespace of its own, and its address there."""

    namespace_fd: int
    """Open as long as the fleet; `Fabric` holds it."""
    address: str


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What to start. `run_dir` None: a temporary one, removed at the end. `port` 0: any free one."""

    hosts: tuple[str, ...] = ("a", "b", "c")
    run_dir: Path | None = None
    port: int = 0
    faults: bool = False
    """Whether planted faults and sabotage are accepted."""
    restarts: bool = True
    memory_bytes: int | None = None
    """What each host may use for sessions; None: the host decides."""
    move_cores: float | None = None
    """What moves may take of each host's processors while a session plays there; None: half of them."""
    worlds: tuple[str, ...] = ()
    """Worlds at `module:factory` that the gateway takes beside the registered ones."""
    cpu_capabilities: Mapping[str, str] = field(default_factory=dict)
    """By host: the value of `ATEN_CPU_CAPABILITY`, which makes it another kernel plan."""
    tls: Path | None = None
    """A folder of `worldline fleet certs`: links over tcp are then mutual TLS."""
    networks: Mapping[str, HostNetwork] = field(default_factory=dict)
    """By host, for hosts on a fabric. Without `tls` each proves at its start that its network leads nowhere else."""
    port_bytes_per_s: float | None = None
    """What each host's port carries each way: moves are then promised by a calendar, and send under its grants."""
    face: Face = field(default_factory=Face)
    """Where the gateway shows itself, and to whom."""

    def __post_init__(self) -> None:
        if self.port_bytes_per_s is not None and not self.port_bytes_per_s > 0:
            raise BadValue(f"a port carries more than {self.port_bytes_per_s} bytes a second")
        if self.move_cores is not None:
            check_cores(self.move_cores)
        for host in self.hosts:
            check_name(host, "the host")
        if not 1 <= len(set(self.hosts)) == len(self.hosts) <= HOSTS_MAX:
            raise BadValue(
                f"a fleet has 1 to {HOSTS_MAX} hosts of different names, not {', '.join(self.hosts) or 'none'}"
            )
        for host in sorted(set(self.networks) - set(self.hosts)):
            raise BadValue(f"a network is given for {host!r}, which is not a host of the fleet")
        for host, capability in sorted(self.cpu_capabilities.items()):
            if host not in self.hosts:
                raise BadValue(f"a CPU capability is given for {host!r}, which is not a host of the fleet")
            if capability not in CPU_CAPABILITIES:  # torch would go on with its own choice, under one line of warning
                raise BadValue(f"no CPU capability is called {capability!r}; known are {', '.join(CPU_CAPABILITIES)}")
