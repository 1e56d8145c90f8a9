"""Transports by name: those that ship, and those that other packages offer as entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from worldline.errors import BadValue, MissingExtra
from worldline.transport.protocol import Transport

GROUP = "worldline.transports"
SHIPPED: Mapping[str, str] = {
    "memory": "worldline.transport.memory:MemoryTransport",
    "nixl": "worldline.transport.nixl:NixlTransport",
    "shm": "worldline.transport.shm:ShmTransport",
    "tcp": "worldline.transport.tcp:TcpTransport",
}
FLEET = ("shm", "tcp")
"""Those that the hosts of a fleet have."""


def transport_names() -> list[str]:
    """All that `open_transport` knows, sorted."""
    return sorted({*SHIPPED, *(point.name for point in entry_points(group=GROUP))})


def open_transport(name: str) -> Transport:
    """A fresh transport. Raises `BadValue` for an unknown name and `MissingExtra` for one whose package is absent."""
    place = SHIPPED.get(name)
    if place is not None:
        module, _, attribute = place.partition(":")
        factory = getattr(import_module(module), attribute)
    else:
        factory = _load(name)
    transport: Transport = factory()
    return transport


def _load(name: str) -> object:
    offered = {point.name: point for point in entry_points(group=GROUP)}
    point: EntryPoint | None = offered.get(name)
    if point is None:
        known = ", ".join(transport_names())
        raise BadValue(f"no transport is called {name[:80]!r}; known are {known}", name=name[:80])
    try:
        return point.load()
    except ImportError as error:
        package = point.dist.name if point.dist is not None else point.module
        raise MissingExtra(f"transport {name} of {package} needs {error.name}: pip install {error.name}") from error
