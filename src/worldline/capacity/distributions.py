"""Binomial and Poisson probabilities from logarithms, so that no factorial overflows and no small tail is lost."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def log_factorials(most: int) -> Floats:
    """log 0!, log 1!, ... log most!"""
    logs = np.zeros(most + 1)
    np.cumsum(np.log(np.arange(1, most + 1)), out=logs[1:])
    return logs


def binomial_pmf(trials: int, chance: Floats, logs: Floats | None = None) -> Floats:
    """P(k of `trials` succeed), one row for each chance, one column for each k = 0..trials."""
    if logs is None:
        logs = log_factorials(trials)
    k = np.arange(trials + 1)
    ways = logs[trials] - logs[: trials + 1] - logs[trials::-1]
    p = np.clip(chance, 1e-320, 1.0)[:, None]
    miss = np.log1p(-np.clip(chance, 0.0, 1 - 2.0**-53))[:, None]
    rows: Floats = np.exp(ways + k * np.log(p) + (trials - k) * miss)
    rows[chance <= 0] = k == 0
    rows[chance >= 1] = k == trials
    return rows


def tails(pmf: Floats) -> Floats:
    """P(X >= k) for each column k: summed from the small end."""
    summed: Floats = np.cumsum(pmf[..., ::-1], axis=-1)[..., ::-1]
    return np.minimum(summed, 1.0)


def poisson_log_pmf(mean: float, count: int) -> Floats:
    """log P(j events), j = 0..count-1; `mean` > 0."""
    j = np.arange(count)
    logs: Floats = j * math.log(mean) - mean - log_factorials(max(count - 1, 0))[:count]
    return logs


def poisson_below(mean: float, most: int) -> Floats:
    """P(fewer than k events), k = 1..most: the regularised upper incomplete gamma function Q(k, mean)."""
    if mean <= 0:
        return np.ones(most)
    summed: Floats = np.cumsum(np.exp(poisson_log_pmf(mean, most)))
    return np.minimum(summed, 1.0)


def poisson_log_at_least(mean: float, most: int) -> Floats:
    """log P(at least k events), k = 1..most: log of the lower incomplete gamma function P(k, mean); `mean` > 0.

    Summed down from where the terms have vanished; beyond the mean that is the only way to keep a small tail.
    """
    beyond = math.ceil(max(most, min(mean, 2.0 * most)) + 40 * math.sqrt(max(most, 1)) + 100)
    logs: Floats = np.logaddexp.accumulate(poisson_log_pmf(mean, beyond + 1)[::-1])[::-1][1 : most + 1]
    near = mean > np.arange(1, most + 1)
    with np.errstate(divide="ignore"):
        complement: Floats = np.log1p(-np.minimum(poisson_below(mean, most), 1 - 2.0**-53))
    return np.where(near, complement, np.minimum(logs, 0.0))
