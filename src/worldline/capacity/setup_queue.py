"""Servers that are switched off when idle and take time to come up: M/M/k with exponential setup."""

from __future__ import annotations

import numpy as np

from worldline.capacity.distributions import Floats
from worldline.capacity.domain import at_least_zero, positive, whole
from worldline.errors import BadValue, Internal

SERVERS_MAX = 128
DOUBLINGS_MAX = 60
RATES_APART_MAX = 1e8


def setup_response_s(servers: int, arrivals_per_s: float, services_per_s: float, setups_per_s: float) -> float:
    """The mean time from arrival to departure.

    A server that has nothing to do goes off at once; one that is needed takes an exponential time of mean
    1/`setups_per_s`; as many are being set up as calls wait, at most as many as are off; a setup whose call was served
    elsewhere is dropped. One server: 1/(mu - lambda) + 1/alpha. Without arrivals: one setup and one service.
    Domain: 1 <= servers <= 128, rates > 0 (arrivals >= 0) and at most 1e8 apart. Raises `BadValue` outside, and where
    arrivals are not below what all servers can do. Source: Gandhi, Harchol-Balter and Adan 2010; solved by the
    matrix-geometric method, with the logarithmic reduction of Latouche and Ramaswami 1993.
    """
    whole(servers, "servers", least=1, most=SERVERS_MAX)
    lam, mu = at_least_zero(arrivals_per_s, "arrivals_per_s"), positive(services_per_s, "services_per_s")
    alpha = positive(setups_per_s, "setups_per_s")
    if lam >= servers * mu:
        raise BadValue(f"{servers} servers of {mu:g} a second can't serve {lam:g} a second")
    if max(mu, alpha, lam) > RATES_APART_MAX * min(mu, alpha, lam or mu):
        raise BadValue(f"rates more than {RATES_APART_MAX:g} apart are beyond what a double tells apart")
    if lam == 0:
        return 1 / alpha + 1 / mu
    if servers == 1:
        return 1 / (mu - lam) + 1 / alpha
    return _mean_present(servers, lam, mu, alpha) / lam


def _blocks(servers: int, level: int, lam: float, mu: float, alpha: float) -> tuple[Floats, Floats, Floats]:
    """Rates up, within and down from `level` calls; a row is how many servers are on."""
    size = min(level, servers) + 1
    on = np.arange(size)
    up = np.zeros((size, min(level + 1, servers) + 1))
    up[on, on] = lam
    down = np.zeros((size, min(max(level - 1, 0), servers) + 1))
    if level:
        down[on, np.minimum(on, level - 1)] = on * mu
    setups = (size - 1 - on) * alpha
    within = np.diag(setups[:-1], 1) if size > 1 else np.zeros((1, 1))
    np.fill_diagonal(within, -(lam + setups + on * mu))
    return up, within, down


def _mean_present(servers: int, lam: float, mu: float, alpha: float) -> float:
    up, within, down = _blocks(servers, servers + 1, lam, mu, alpha)
    rate = _rate_matrix(up, within, down)
    ratios = [rate]  # ratios[-1]: from the level before to this one, built from the top
    for level in range(servers, 0, -1):
        _, within, _ = _blocks(servers, level, lam, mu, alpha)
        _, _, down_above = _blocks(servers, level + 1, lam, mu, alpha)
        up_below, _, _ = _blocks(servers, level - 1, lam, mu, alpha)
        ratios.append(up_below @ np.linalg.inv(-(within + ratios[-1] @ down_above)))
    chances = np.ones(1)
    total, present = 1.0, 0.0
    for level in range(1, servers):
        chances = chances @ ratios[-level]
        total += chances.sum()
        present += level * chances.sum()
    chances = chances @ ratios[1]  # the level `servers`, from which on each level is the one before times `rate`
    onward = np.linalg.inv(np.eye(servers + 1) - rate)
    tail = chances @ onward
    total += tail.sum()
    present += servers * tail.sum() + (tail @ rate @ onward).sum()
    return float(present / total)


def _rate_matrix(up: Floats, within: Floats, down: Floats) -> Floats:
    """R of up + R within + R R down = 0, by way of the matrix G of first passages one level down."""
    size = len(up)
    inverse = np.linalg.inv(-within)
    high, low = inverse @ up, inverse @ down
    passage, reached = low.copy(), high.copy()
    for _ in range(DOUBLINGS_MAX):
        both = high @ low + low @ high
        step = np.linalg.inv(np.eye(size) - both)
        high, low = step @ high @ high, step @ low @ low
        passage += reached @ low
        reached = reached @ high
        if np.abs(reached).max() < 1e-15:
            answer: Floats = up @ np.linalg.inv(-(within + up @ passage))
            return answer
    raise Internal("the reduction of a stable queue did not end")
