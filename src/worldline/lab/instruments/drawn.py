"""Sessions drawn at random from all write rules, each entry with the class it was written as: a truth to be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch

from worldline.lab.instruments.classes import StateClass
from worldline.schema.inventory import Free, Kind, Rule
from worldline.worlds.protocol import Partial, Tree

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.float64)
BLOCKS = 24
"""A ring of at most eight slots goes round twice."""
_Held = torch.Tensor | Partial | int
Writing = Iterator[_Held]
"""What the entry is at open, then after each block."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The chance of one session, and shapes drawn with it."""

    random: Random

    def values(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Random bits that are a number of the dtype."""
        chance = np.random.default_rng(self.random.getrandbits(64))
        return torch.from_numpy(chance.standard_normal(tuple(shape)) * 40).to(dtype)

    def shape(self, rows: int) -> tuple[list[int], int]:
        """A shape of rank 2 to 4 with so many rows along one dimension, and which. A row has 48 elements or more."""
        rank, dim = self.random.randrange(2, 5), 0
        sizes = [self.random.choice((6, 7, 8)) for _ in range(rank)]
        dim = self.random.randrange(rank)
        sizes[dim - 1] = 48
        sizes[dim] = rows
        return sizes, dim

    def dtype(self) -> torch.dtype:
        return self.random.choice(DTYPES)


def _window(draw: Draw) -> Writing:
    shift, keep = draw.random.randrange(1, 5), draw.random.randrange(3)
    fills = draw.random.randrange(2, 4)
    shape, dim = draw.shape(keep + fills * shift)
    made = torch.zeros(shape, dtype=draw.dtype())
    made.narrow(dim, 0, keep).copy_(draw.values(made.narrow(dim, 0, keep).shape, made.dtype))
    anew, wanders = draw.random.random() < 0.5, draw.random.random() < 0.3
    yield made
    for block in range(10**6):
        if anew:
            made = made.clone()
        start, by = keep + block * shift, shift
        if block >= fills:
            by = draw.random.randrange(1, shift + 1) if wanders else shift
            start = shape[dim] - by
            made.narrow(dim, keep, start - keep).copy_(made.narrow(dim, keep + by, start - keep).clone())
        rows = made.narrow(dim, start, by)
        rows.copy_(draw.values(rows.shape, made.dtype))
        yield made


def _ring(draw: Draw) -> Writing:
    slots, rows, tail = draw.random.randrange(3, 9), draw.random.randrange(1, 5), draw.random.choice((0, 2))
    shape, dim = draw.shape(slots * rows + tail)
    made = torch.zeros(shape, dtype=draw.dtype())
    yield made
    for block in range(10**6):
        for start, count in ((block % slots * rows, rows), (slots * rows, tail)):
            part = made.narrow(dim, start, count)
            part.copy_(draw.values(part.shape, made.dtype))
        yield made


def _append(draw: Draw) -> Writing:
    rows = draw.random.randrange(1, 5)
    shape, dim = draw.shape(rows * 40)
    if draw.random.random() < 0.5:
        held = torch.zeros(shape, dtype=draw.dtype())
        for used in range(0, 10**6, rows):
            yield Partial(held, dim, used)
            part = held.narrow(dim, used, rows)
            part.copy_(draw.values(part.shape, held.dtype))
    shape[dim] = rows
    made = draw.values(shape, draw.dtype())
    while True:
        yield made
        made = torch.cat([made, draw.values(shape, made.dtype)], dim)


def _recurrent(draw: Draw) -> Writing:
    if draw.random.random() < 0.2:
        yield from range(10**6)
    shape, _ = draw.shape(draw.random.randrange(4, 20))
    made = draw.values(shape, draw.dtype())
    some = draw.random.random() < 0.5
    while True:
        yield made
        fresh = draw.values(shape, made.dtype)
        chosen = draw.values(shape, torch.float32) > (40 if some else -1e9)
        made.copy_(torch.where(chosen, fresh, made))


def _reallocated(draw: Draw) -> Writing:
    shape, dim = draw.shape(draw.random.randrange(4, 20))
    dtype, wanders = draw.dtype(), draw.random.random() < 0.5
    while True:
        yield draw.values(shape, dtype)
        shape[dim] = draw.random.randrange(4, 20) if wanders else shape[dim]


def _once(draw: Draw) -> Writing:
    shape, _ = draw.shape(draw.random.randrange(2, 20))
    made, when, anew = torch.zeros(shape, dtype=draw.dtype()), draw.random.randrange(4), draw.random.random() < 0.5
    yield made
    for block in range(10**6):
        if block == when:
            fresh = draw.values(shape, made.dtype)
            made = fresh if anew else made.copy_(fresh)
        yield made


def _never(draw: Draw) -> Writing:
    shape, _ = draw.shape(draw.random.randrange(2, 20))
    made = draw.values(shape, draw.dtype())
    while True:
        yield made


WRITERS: dict[StateClass, Callable[[Draw], Writing]] = {
    StateClass.WINDOW: _window,
    StateClass.RING: _ring,
    StateClass.APPEND: _append,
    StateClass.RECURRENT: _recurrent,
    StateClass.REALLOCATED: _reallocated,
    StateClass.ONCE: _once,
    StateClass.NEVER: _never,
}


class DrawnLive:
    """A session with `each` entries of every class in a random order. It declares nothing, and shows nothing."""

    rules: Sequence[Rule] = (Rule("*", Kind.AUX, Free()),)

    def __init__(self, seed: int, each: int = 2) -> None:
        random = Random(seed)
        written_as = [one for one in StateClass for _ in range(each)]
        random.shuffle(written_as)
        self.truth = {f"entries/{at}": one for at, one in enumerate(written_as)}
        """Path -> class."""
        self._writings = [WRITERS[one](Draw(Random(random.getrandbits(64)))) for one in written_as]
        self._held = [next(writing) for writing in self._writings]

    def step(self, action: int) -> np.ndarray:
        self._held = [next(writing) for writing in self._writings]
        return np.zeros(0, np.uint8)

    def state(self) -> Tree:
        return {"entries": list(self._held)}
