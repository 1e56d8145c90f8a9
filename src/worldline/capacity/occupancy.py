"""How many distinct cells a number of random writes touches: the bytes that are dirty after them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic

from worldline.capacity.domain import EXACT_MAX, Real, at_least_zero, positive, whole

EXACT_BITS_MAX = 50_000
"""Up to this size n^k is computed exactly."""


@dataclass(frozen=True, slots=True)
class Occupancy(Generic[Real]):
    """Distinct cells touched."""

    mean: Real
    variance: Real


def occupancy_exact(cells: int, writes: int) -> Occupancy[Fraction]:
    """The distinct cells among `cells` that `writes` uniform, independent writes touch, as fractions.

    Domain: cells >= 1, writes >= 0, n^k of at most `EXACT_BITS_MAX` bits. Raises `BadValue` outside.
    Source: Feller I, ch. II.5 and IX.
    """
    n = whole(cells, "cells", least=1)
    k = whole(writes, "writes", most=max(1, EXACT_BITS_MAX // max(n.bit_length(), 1)))
    one_left, two_left = Fraction((n - 1) ** k, n**k), Fraction((n - 2) ** k, n**k)
    return Occupancy(n * (1 - one_left), n * (n - 1) * two_left + n * one_left - (n * one_left) ** 2)


def occupancy(cells: int, writes: int) -> Occupancy[float]:
    """As `occupancy_exact`, in floating point, for any size up to 1e15; n(1 - (1 - 1/n)^k) without cancellation.

    The variance is exact where n^k is small, and otherwise loses digits only for k far below n, where it is near 0.
    """
    n, k = whole(cells, "cells", least=1, most=10**15), whole(writes, "writes", most=10**15)
    if n == 1 or k <= 1:
        return Occupancy(float(min(k, 1)), 0.0)
    if k * n.bit_length() <= EXACT_BITS_MAX and n <= 10**7:
        exact = occupancy_exact(n, k)
        return Occupancy(float(exact.mean), float(exact.variance))
    left = math.exp(k * math.log1p(-1 / n))
    touched = -math.expm1(k * math.log1p(-1 / n))
    # (1 - 2/n) / (1 - 1/n)^2 = 1 - 1/(n - 1)^2
    pair = -1.0 if n == 2 else math.expm1(k * math.log1p(-1 / (n - 1) ** 2))
    return Occupancy(n * touched, max(0.0, n * left * touched + n * (n - 1) * left * left * pair))


def occupancy_pmf(cells: int, writes: int) -> tuple[Fraction, ...]:
    """P(d distinct cells), d = 0..cells: n!/(n-d)! S2(k, d) / n^k, as fractions.

    Domain: 1 <= cells, writes <= 500. Raises `BadValue` outside. Source: Feller I, ch. II.5.
    """
    n = whole(cells, "cells", least=1, most=EXACT_MAX)
    k = whole(writes, "writes", most=EXACT_MAX)
    ways = [1] + [0] * n
    for _ in range(k):
        ways = [0, *(ways[d] * d + ways[d - 1] * (n - d + 1) for d in range(1, n + 1))]
    return tuple(Fraction(way, n**k) for way in ways)


def poisson_occupancy(cells: float, writes_per_s: float, time_s: float) -> float:
    """Cells touched by Poisson writes in `time_s`: M (1 - exp(-r t / M)). Domain: cells > 0, the others >= 0."""
    at_least_zero(writes_per_s, "writes_per_s")
    at_least_zero(time_s, "time_s")
    writes_a_cell = writes_per_s * time_s / positive(cells, "cells")
    return -cells * math.expm1(-at_least_zero(writes_a_cell, "writes a cell"))


def poisson_occupancy_of(writes_per_s: Iterable[float], time_s: float) -> float:
    """Cells touched where each has its own rate of writes: sum of 1 - exp(-r t). Domain: all >= 0."""
    at_least_zero(time_s, "time_s")
    return math.fsum(-math.expm1(-at_least_zero(rate, "writes_per_s") * time_s) for rate in writes_per_s)


def writes_to_touch_all(cells: int) -> Fraction:
    """The expected number of uniform writes until every cell was touched: n H_n. Domain: 1 <= cells <= 500.

    Raises `BadValue` outside. Source: the coupon collector, Feller I, ch. IX.
    """
    n = whole(cells, "cells", least=1, most=EXACT_MAX)
    return n * sum((Fraction(1, i) for i in range(1, n + 1)), Fraction(0))


def mean_writes_to_touch_all(cells: int) -> float:
    """As `writes_to_touch_all`, in floating point, for up to 10 million cells."""
    n = whole(cells, "cells", least=1)
    return n * math.fsum(1 / i for i in range(1, n + 1))
