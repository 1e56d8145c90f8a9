"""How a session dirties its state: what is different after a time, under four laws and in three special cases.

All agree for a round shorter than a block, where only the rate counts; they part where a round is longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from worldline.capacity.distributions import Floats, binomial_pmf, log_factorials
from worldline.capacity.domain import Real, at_least_zero, positive, share, whole, whole_for
from worldline.errors import BadValue

CHAIN_CELLS_MAX = 1024
CHAIN_ROUNDS_MAX = 10_000
ROUNDS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Linear:
    """New bytes all the time: D t. The paper's law."""

    bytes_per_s: float

    def dirty_bytes(self, time_s: float) -> float:
        return self.bytes_per_s * at_least_zero(time_s, "time_s")

    def __post_init__(self) -> None:
        at_least_zero(self.bytes_per_s, "bytes_per_s")


@dataclass(frozen=True, slots=True)
class FixedSet:
    """The same bytes each block: min(D t, m). A writable working set."""

    bytes_per_s: float
    set_bytes: float

    def dirty_bytes(self, time_s: float) -> float:
        return min(self.bytes_per_s * at_least_zero(time_s, "time_s"), self.set_bytes)

    def __post_init__(self) -> None:
        at_least_zero(self.bytes_per_s, "bytes_per_s")
        at_least_zero(self.set_bytes, "set_bytes")


@dataclass(frozen=True, slots=True)
class BlockSets:
    """Each block rewrites a set of its own, independent of the others."""

    state_bytes: float
    set_bytes: float
    block_s: float

    def dirty_bytes(self, time_s: float) -> float:
        spent = at_least_zero(at_least_zero(time_s, "time_s") / self.block_s, "the blocks in a time")
        blocks = math.floor(spent)
        return block_union(self.state_bytes, self.set_bytes, blocks, spent - blocks)

    def __post_init__(self) -> None:
        positive(self.state_bytes, "state_bytes")
        positive(self.block_s, "block_s")
        share(at_least_zero(self.set_bytes, "set_bytes") / self.state_bytes, "set_bytes over state_bytes")


@dataclass(frozen=True, slots=True)
class Saturating:
    """Uniform random writes: M (1 - exp(-D t / M))."""

    state_bytes: float
    bytes_per_s: float

    def dirty_bytes(self, time_s: float) -> float:
        return -self.state_bytes * math.expm1(-self.bytes_per_s * at_least_zero(time_s, "time_s") / self.state_bytes)

    def __post_init__(self) -> None:
        positive(self.state_bytes, "state_bytes")
        at_least_zero(self.bytes_per_s, "bytes_per_s")


Rewriting: TypeAlias = Linear | FixedSet | BlockSets | Saturating


def block_union(whole_set: Real, block_set: Real, blocks: int, fraction: Real | None = None) -> Real:
    """The union of `blocks` independent sets and a `fraction` of one: W (1 - (1 - m/W)^b (1 - phi m/W)).

    Domain: W > 0, 0 <= m <= W, blocks >= 0, 0 <= fraction <= 1. Raises `BadValue` outside.
    """
    part = share(at_least_zero(block_set, "block_set") / positive(whole_set, "whole_set"), "block_set over whole_set")
    whole_for(blocks, "blocks", part, most=10**15)
    kept = (1 - part) ** blocks
    if fraction is not None:
        kept = kept * (1 - share(fraction, "fraction") * part)
    return whole_set * (1 - kept)


def saturating_shares(dirty_over_rate: float, rounds: int) -> tuple[float, ...]:
    """The dirty share after each of `rounds` rounds of uniform writes: x' = 1 - exp(-R x), from x = 1.

    R = D/B. Below one it goes to 0 geometrically, at one as 2/i, above one to `saturating_floor`. The mean field: the
    exact expectation (`chain`) is below it. Domain: R >= 0, rounds <= 100,000. Raises `BadValue` outside.
    """
    at_least_zero(dirty_over_rate, "dirty_over_rate")
    whole(rounds, "rounds", most=ROUNDS_MAX)
    shares, x = [], 1.0
    for _ in range(rounds):
        x = -math.expm1(-dirty_over_rate * x)
        shares.append(x)
    return tuple(shares)


def saturating_floor(dirty_over_rate: float) -> float:
    """The dirty share that pre-copy never gets below: x = 1 - exp(-R x); 0 for R <= 1.

    Pre-copy does not diverge there, it stalls, with a pause of x M / B at the least. Domain: R >= 0. Raises `BadValue`
    outside. Newton from x = 1, where the convex side keeps it above the root; x* = 1 + W0(-R exp(-R)) / R.
    """
    rate = at_least_zero(dirty_over_rate, "dirty_over_rate")
    if rate <= 1:
        return 0.0
    if rate > 40:  # exp(-40) is below a double's last bit of one
        return 1.0
    x = 1.0
    for _ in range(200):
        # x - 1 + exp(-R x), written so that nothing cancels where R is just above one.
        off = x * ((1 - rate) + rate * first_residual_share(rate * x, clear_at_send=True))
        lower = x - off / ((1 - rate) - rate * math.expm1(-rate * x))
        if not lower < x:
            break
        x = lower
    return x


@dataclass(frozen=True, slots=True)
class Chain:
    """The dirty cells after each round, exactly."""

    means: tuple[float, ...]
    empty_chances: tuple[float, ...]
    """P(nothing is dirty)."""


def chain(cells: int, dirty_over_rate: float, rounds: int) -> Chain:
    """V' given V is binomial: M cells, each hit with 1 - exp(-R V / M). From V = M.

    Domain: 1 <= cells <= 1024, R >= 0, rounds <= 10,000. Raises `BadValue` outside. O(cells^2) a round.
    Source: Poisson thinning; its expectation is below the mean field, by Jensen.
    """
    whole(cells, "cells", least=1, most=CHAIN_CELLS_MAX)
    rate = min(at_least_zero(dirty_over_rate, "dirty_over_rate"), 1e6)  # every cell is hit, far below this
    whole(rounds, "rounds", most=CHAIN_ROUNDS_MAX)
    hit = -np.expm1(-rate * np.arange(cells + 1) / cells)
    step = binomial_pmf(cells, hit, log_factorials(cells))
    chances: Floats = np.zeros(cells + 1)
    chances[cells] = 1.0
    means, empty = [], []
    for _ in range(rounds):
        chances = chances @ step
        means.append(float(chances @ np.arange(cells + 1)))
        empty.append(float(chances[0]))
    return Chain(tuple(means), tuple(empty))


def first_residual_share(dirty_over_rate: float, clear_at_send: bool) -> float:
    """The dirty share after the first round of uniform writes.

    A round that takes its snapshot at the start sees every write made while it runs: 1 - exp(-R). One that clears a
    cell's mark when it sends the cell sees only what is written after that: 1 - (1 - exp(-R)) / R. Domain: R >= 0.
    """
    rate = at_least_zero(dirty_over_rate, "dirty_over_rate")
    if not clear_at_send:
        return -math.expm1(-rate)
    if rate > 0.5:
        return 1 + math.expm1(-rate) / rate
    total, term = 0.0, 1.0
    for n in range(2, 30):
        term *= -rate / n
        total -= term
    return total


@dataclass(frozen=True, slots=True)
class Burst:
    """What is dirty after a round, where a block writes everything at its end."""

    chance: float
    """That a boundary fell into the round."""
    dirty_bytes: float
    """Then; otherwise 0. The mean says nothing about a deadline."""

    @property
    def mean_bytes(self) -> float:
        return self.chance * self.dirty_bytes


def burst(round_s: float, block_s: float, burst_bytes: float, phase_s: float | None = None) -> Burst:
    """A round of `round_s` against blocks of `block_s` whose writes land at the boundary.

    `phase_s`: when in a block the round starts; None: at random. From a boundary on (0) a round shorter than a block
    leaves nothing, with certainty. Domain: block_s > 0, the others >= 0, phase_s < block_s. Raises `BadValue` outside.
    """
    at_least_zero(round_s, "round_s")
    positive(block_s, "block_s")
    at_least_zero(burst_bytes, "burst_bytes")
    if phase_s is None:
        return Burst(min(1.0, round_s / block_s), burst_bytes)
    if not at_least_zero(phase_s, "phase_s") < block_s:
        raise BadValue(f"a phase is within a block of {block_s!r}, and is {phase_s!r}")
    return Burst(1.0 if round_s >= block_s - phase_s else 0.0, burst_bytes)


def roll_aware_bytes(rewritten_bytes: float, moved_share: float, copy_bytes_per_byte: float = 0.0) -> float:
    """What a rewrite costs on the wire when rows that only moved go as copy instructions.

    A rolling window is rewritten whole, and `moved_share` of it are old rows at new places. `copy_bytes_per_byte`: of
    an instruction, per byte it spares. Works on a rate as well. Domain: bytes >= 0, shares 0..1. Raises `BadValue`
    outside.
    """
    at_least_zero(rewritten_bytes, "rewritten_bytes")
    moved = share(moved_share, "moved_share")
    return rewritten_bytes * (1 - moved * (1 - share(copy_bytes_per_byte, "copy_bytes_per_byte")))
