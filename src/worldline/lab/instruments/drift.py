"""How a session's pictures change by themselves, without any move: the baseline beside which a move's loss is read.

No picture to compare with is needed, so it is told of every engine: brightness, contrast and sharpness of a block's
last frame, each as a multiple of the first block's. What a player does changes them as well; a world that fades,
whitens or blurs does so whatever the player does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, cast

import numpy as np

from worldline.lab.report import Drawing, Lookup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAST_BLOCKS = 5
PARTS = ("brightness", "contrast", "sharpness")


@dataclass(frozen=True, slots=True)
class Drift:
    """A number a block, each over that of the first block behind the cut."""

    brightness: list[float]
    contrast: list[float]
    sharpness: list[float]

    def __str__(self) -> str:
        """From the first block to the mean of the last ones."""
        parts = zip(PARTS, (self.brightness, self.contrast, self.sharpness), strict=True)
        return ", ".join(f"{name} x{mean(values[-LAST_BLOCKS:]):.2f}" for name, values in parts)


def drift_of(blocks: Sequence[np.ndarray]) -> Drift:
    """Of pictures, uint8 [frames, height, width, 3] a block."""
    looks = [_look(block[-1].astype(np.float64)) for block in blocks]
    first = [value or 1.0 for value in looks[0]]
    over = [[round(value / base, 4) for value, base in zip(look, first, strict=True)] for look in looks]
    brightness, contrast, sharpness = ([each[at] for each in over] for at in range(3))
    return Drift(brightness, contrast, sharpness)


def drifting(of: str) -> Drawing:
    """The three over blocks, of the `Drift` at the key `of`."""

    def draw(axes: Axes, look_up: Lookup) -> None:
        for name, style in zip(PARTS, ("-", "--", "-."), strict=True):
            values = cast("list[float]", look_up(f"{of}/{name}"))
            axes.plot(range(1, len(values) + 1), values, style, label=name, linewidth=1.4)
        axes.axhline(1.0, color="black", linewidth=0.6)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("block after the hand-over")
        axes.set_ylabel("times the first block's (measured)")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))

    return Drawing("drift", "How pictures change by themselves", draw)


def _look(picture: np.ndarray) -> tuple[float, float, float]:
    """Mean, standard deviation, and mean difference of neighbours, of one picture."""
    steps = [np.abs(np.diff(picture, axis=axis)).mean() for axis in (0, 1)]
    return float(picture.mean()), float(picture.std()), float(np.mean(steps))
