"""Where a checkout is, and what of."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worldline.errors import MissingExtra

FOLDER: Final = "WORLDLINE_ENGINES"
"""The environment variable that names the folder of checkouts."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a checkout looks like. `folders`: names under which it may lie, the first as `git clone` names it.
    `proof`: a file that it must have.
    """

    source: str
    folders: Sequence[str]
    proof: str


PLACES: Final[Mapping[str, Place]] = {
    "matrix-game-2": Place(
        "github.com/SkyworkAI/Matrix-Game",
        ("Matrix-Game/Matrix-Game-2", "Matrix-Game-2", "matrix-game-2"),
        "wan/modules/causal_model.py",
    ),
    "open-oasis": Place("github.com/etched-ai/open-oasis", ("open-oasis",), "dit.py"),
    "self-forcing": Place(
        "github.com/guandeh17/Self-Forcing", ("Self-Forcing", "self-forcing"), "wan/modules/causal_model.py"
    ),
    "world-engine": Place(
        "github.com/Overworldai/world_engine", ("world_engine", "world-engine"), "src/model/kv_cache.py"
    ),
}
"""By the world's name."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder that modules of an engine are read from."""

    root: Path


def find_checkout(world: str) -> Checkout:
    """The checkout that `world` needs. Raises `MissingExtra` with what to clone where."""
    place = PLACES[world]
    root = _root(place)
    if root is None:
        raise MissingExtra(f"world {world!r} runs the engine's own code: {advice(world)}", world=world)
    return Checkout(root)


def has_checkout(world: str) -> bool:
    """Whether `find_checkout` would find it."""
    return _root(PLACES[world]) is not None


def advice(world: str) -> str:
    """What to do so that it is found."""
    place = PLACES[world]
    name = place.folders[0].partition("/")[0]
    return f"clone {place.source} as {name} into a folder, and name the folder by {FOLDER}"


def _root(place: Place) -> Path | None:
    folder = os.environ.get(FOLDER)
    if folder is None:
        return None
    home = Path(folder).resolve()
    return next((home / name for name in place.folders if (home / name / place.proof).is_file()), None)
