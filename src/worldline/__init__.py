"""Moves a running interactive world from one machine to another and proves that nothing changed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worldline.service.client import Client, SessionHandle, connect
    from worldline.service.local import local_fleet

__version__ = "0.1.0"
__all__ = ["Client", "SessionHandle", "__version__", "connect", "local_fleet"]

_HOME = {
    "Client": "worldline.service.client",
    "SessionHandle": "worldline.service.client",
    "connect": "worldline.service.client",
    "local_fleet": "worldline.service.local",
}


def __getattr__(name: str) -> object:
    """The public names, imported when they are first used: a verifier needs no HTTP."""
    if name not in _HOME:
        raise AttributeError(f"module 'worldline' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
