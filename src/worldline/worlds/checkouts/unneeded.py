"""Stands in for a module that an engine imports and its adapter never uses: each name in it fails when called."""

from __future__ import annotations


class Unneeded:
    """A name of a module that isn't there."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise NotImplementedError("the adapter of this engine never needs this, so it isn't loaded")


def __getattr__(name: str) -> type[Unneeded]:
    if name.startswith("__"):
        raise AttributeError(name)
    return Unneeded
