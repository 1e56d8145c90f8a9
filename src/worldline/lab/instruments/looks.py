"""A session's state at a boundary as plain bytes, entry by entry, kept while the engine goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from worldline.schema.inventory import Kind, Realloc, Ring, Roll, Rule, Static
from worldline.snapshot.walk import Rules
from worldline.worlds.load_shape import new_bytes, rewritten_bytes
from worldline.worlds.protocol import LiveWorld, Partial
from worldline.worlds.scratch import Leaf, leaf_bytes, walk

Octets: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]"


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry. `octets` are a copy of its valid part in C order; what is no tensor has one element of all its bytes.

    `address` is where it lay, None for what is no tensor: while the `Look` lives, no other tensor gets it.
    """

    path: str
    rule: Rule
    octets: Octets
    shape: tuple[int, ...]
    item_bytes: int
    dtype: str
    address: int | None

    @property
    def family(self) -> str:
        """The first step of the path."""
        return self.path.partition("/")[0]

    @property
    def nbytes(self) -> int:
        return self.octets.nbytes

    @property
    def declared(self) -> tuple[int, int]:
        """Bytes that a block rewrites as the write rule has it, and those of them that are new rows."""
        write = Static() if self.rule.kind is Kind.CONST else self.rule.write
        if isinstance(write, Roll | Ring) and not self.shape:
            return 0, 0
        return rewritten_bytes(write, self.shape, self.nbytes), new_bytes(write, self.shape, self.nbytes)

    @property
    def in_place(self) -> bool:
        """Whether it belongs to the caches that are kept where they are: the paper's S."""
        return self.rule.kind in (Kind.CACHE, Kind.DERIVED) and not isinstance(self.rule.write, Realloc)


@dataclass(frozen=True, slots=True)
class Look:
    """A state at one boundary."""

    pieces: Mapping[str, Piece]
    _held: tuple[Leaf, ...]
    """The engine's own objects: memory that is held can't be given to a tensor of the next block."""


def look(live: LiveWorld) -> Look:
    """The state now, derived entries too."""
    rules = Rules(live.rules)
    leaves = list(walk(live.state()))
    pieces = {path: _piece(path, leaf, rules.of(path)) for path, leaf in leaves}
    return Look(pieces, tuple(leaf for _, leaf in leaves))


def _piece(path: str, leaf: Leaf, rule: Rule) -> Piece:
    match leaf:
        case torch.Tensor():
            return _tensor(path, leaf, leaf, rule)
        case Partial(tensor=tensor, dim=dim, stop=stop):
            return _tensor(path, tensor, tensor.narrow(dim, 0, stop), rule)
        case _:
            octets = np.frombuffer(leaf_bytes(leaf), np.uint8)
            return Piece(path, rule, octets, (), len(octets), type(leaf).__name__, None)


def _tensor(path: str, whole: torch.Tensor, valid: torch.Tensor, rule: Rule) -> Piece:
    octets: Octets = valid.detach().contiguous().reshape(-1).view(torch.uint8).numpy().copy()
    dtype = str(whole.dtype).removeprefix("torch.")
    return Piece(path, rule, octets, tuple(valid.shape), whole.itemsize, dtype, whole.data_ptr())
