"""What Worldline asks of an engine: a `World` holds weights and opens sessions, a `LiveWorld` is one session's
engine side.

An adapter is two small classes. It owns the loop, keeps every mutable thing per session, draws noise from a private
generator and can lay its whole state out as a tree at any block boundary. The conformance suite in
`worldline.testing.worlds` checks all of that and explains each failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from worldline.schema.inventory import Rule
from worldline.snapshot.tree import Partial, Tree

if TYPE_CHECKING:
    import torch

__all__ = [
    "Announces",
    "LiveWorld",
    "Memory",
    "OptionValue",
    "Options",
    "Partial",
    "Readout",
    "Tree",
    "World",
    "WorldFactory",
]

OptionValue: TypeAlias = str | int | float | bool
Options: TypeAlias = Mapping[str, OptionValue]


class Memory(Protocol):
    """Where an engine allocates state that a hand-over should not have to copy."""

    def zeros(self, path: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A zeroed contiguous CPU tensor inside the session's arena. Raises `NoCapacity` when the arena is full."""
        ...


@dataclass(frozen=True, slots=True)
class Readout:
    """What a block shows. `image`: uint8 [frames, height, width, 3] RGB. `text`: uint8 [n], UTF-8."""

    kind: Literal["image", "text"]
    frames_per_block: int
    height: int = 0
    width: int = 0


class LiveWorld(Protocol):
    """One session. Used by one thread at a time."""

    rules: Sequence[Rule]
    """Kind and write rule by path; entries that no rule names are `AUX` and may be rewritten anywhere."""

    def step(self, action: int) -> np.ndarray:
        """Generates exactly one block and returns its readout. On return the state is at a clean block boundary.

        `action` is an index into the world's `actions`; a text world also takes -1, which lets it go on by itself.
        Raises `BadValue` for any other, before anything has changed.
        """
        ...

    def state(self) -> Tree:
        """Everything the next block depends on, each tensor resolved anew: no reference survives a step.

        Paths are the keys and indices joined by `/`. Aliases stay aliases: two tensors over one storage are one
        segment.
        """
        ...


@runtime_checkable
class Announces(Protocol):
    """A `LiveWorld` that tells, within a block, which tensors it has finished: they are read while it goes on.

    An announcement is believed by nobody: a write after it is seen, and costs what not announcing would have.
    """

    written: Callable[[torch.Tensor], None] | None
    """Set by the host before a step. To be called in the engine's thread with a tensor that lies in the session's
    memory and will not be written again in this block.
    """


class World(Protocol):
    """An engine with its weights, built once a host for given options. Holds no session's state."""

    name: str
    actions: Sequence[str]
    readout: Readout
    state_bytes_max: int
    """Upper bound of a session's state, for admission and for the size of its arena (reserved, not touched)."""

    def facts(self) -> Mapping[str, str]:
        """What of the engine decides the bits it computes: weights digest, configuration, versions. Part of the
        plan.
        """
        ...

    def open(self, seed: int, memory: Memory) -> LiveWorld:
        """A new session at block 0. Equal seeds give equal sessions."""
        ...

    def restore(self, tree: Tree, memory: Memory) -> LiveWorld:
        """The session whose state is `tree`, exactly as `state()` laid it out elsewhere.

        Tensors that were allocated from `memory` are views of this session's arena and are bound as they are; all
        others are the session's own to keep or copy from. Derived entries are absent and rebuilt. Must not consume
        randomness: the generators in `tree` are already in their state.
        """
        ...


class WorldFactory(Protocol):
    """What the registry finds under a world's name."""

    def __call__(self, options: Options) -> World:
        """Builds the engine. Raises `BadValue` for an option it does not know and `MissingExtra` for a missing
        package.
        """
        ...
