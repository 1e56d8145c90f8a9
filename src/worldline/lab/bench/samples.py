"""Arms measured in turns, so that whatever slows the machine for a while slows them all alike."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from statistics import median

from worldline.errors import BadValue

ROUNDS_MIN = 5


@dataclass(frozen=True, slots=True)
class Samples:
    """`arms[name][i]` is what arm `name` gave in round i; the arms of a round were measured one right after another."""

    unit: str
    """Of every figure: `s`, `bytes/s`, `bytes`."""
    arms: Mapping[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        if not self.arms or len({len(figures) for figures in self.arms.values()}) != 1:
            raise BadValue("every arm of a bench has a figure for every round")

    @property
    def rounds(self) -> int:
        return min(len(figures) for figures in self.arms.values())

    @property
    def medians(self) -> dict[str, float]:
        return {name: median(figures) for name, figures in self.arms.items()}

    def ratio(self, over: str, under: str) -> float:
        """The median of the rounds' quotients, `over` divided by `under`."""
        return median(top / bottom for top, bottom in zip(self.arms[over], self.arms[under], strict=True))


def interleave(
    arms: Mapping[str, Callable[[], float]], unit: str, rounds: int, between: Callable[[], object] | None = None
) -> Samples:
    """Measures every arm once a round. An arm measures itself and returns its figure in `unit`.

    The order within a round is drawn anew, from a fixed seed. Before the first round each arm runs once unrecorded.
    `between` runs after each round. Raises `BadValue` under `ROUNDS_MIN` rounds.
    """
    if rounds < ROUNDS_MIN:
        raise BadValue(f"a bench takes {ROUNDS_MIN} rounds or more, not {rounds}")
    for arm in arms.values():
        arm()
    figures: dict[str, list[float]] = {name: [] for name in arms}
    order, chance = list(arms), Random(0)
    for _ in range(rounds):
        chance.shuffle(order)
        for name in order:
            gc.collect()  # the garbage of one arm is not the next one's time
            figures[name].append(arms[name]())
        if between is not None:
            between()
    return Samples(unit, {name: tuple(values) for name, values in figures.items()})
