"""A fleet on this machine for as long as a `with` block, and a client of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan, lettered_hosts
from worldline.service.client import Client


class LocalFleet(Client):
    """The client, and the processes as `fleet`."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet.url)
        self.fleet = fleet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection and ends every process of the fleet, and with it every session that is not parked."""
        super().close()
        self.fleet.close()


def local_fleet(
    hosts: int | Sequence[str] = 2,
    *,
    run_dir: Path | None = None,
    faults: bool = False,
    memory_bytes: int | None = None,
    worlds: Sequence[str] = (),
) -> LocalFleet:
    """Starts a controller, a gateway and hosts (a number of them, named a, b, c ..., or their names) and waits until
    they serve.

    `run_dir` keeps record and images beyond the fleet's end; without it they are in a temporary folder.
    """
    names = lettered_hosts(hosts) if isinstance(hosts, int) else tuple(hosts)
    plan = FleetPlan(hosts=names, run_dir=run_dir, faults=faults, memory_bytes=memory_bytes, worlds=tuple(worlds))
    return LocalFleet(Fleet.start(plan))
