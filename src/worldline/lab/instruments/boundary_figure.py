"""The figure of `lab boundary`: PSNR over blocks, and below it when the first byte and the first frame differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from worldline.lab.instruments.figures import items_at, plot_curves
from worldline.lab.report import Drawing, Lookup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_INCHES = (8.6, 6.0)
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
HEIGHTS = (3, 2)
"""Of the curves, and of the strip under them."""


def parting(run: str) -> Drawing:
    """`run` is the report's; blocks are counted from 1 behind the cut."""

    def draw(axes: Axes, look_up: Lookup) -> None:
        crossings = items_at(look_up, f"{run}/crossings")
        axes.figure.set_size_inches(*SIZE_INCHES)  # type: ignore[union-attr]  # of a whole figure
        strip = _under(axes)
        if any(each["psnr_db"] for each in crossings):
            plot_curves(axes, crossings, "psnr_db", cast(float, look_up(f"{run}/bound_db")))
            axes.set_ylabel("PSNR, dB (measured)")
        else:
            axes.text(0.5, 0.5, "words have no PSNR", transform=axes.transAxes, ha="center")
        blocks, frames = cast(int, look_up(f"{run}/blocks")), cast(int, look_up(f"{run}/frames_per_block"))
        axes.set_xlim(0, blocks + 1)
        _draw_firsts(strip, crossings, blocks, frames)

    return Drawing("over-time", "Pictures of two plans, and where they part", draw)


def _under(axes: Axes) -> Axes:
    """Axes of their own in the lower part of the place that `axes` had."""
    whole = axes.get_subplotspec()
    assert whole is not None
    grid = whole.subgridspec(2, 1, height_ratios=HEIGHTS)
    axes.set_subplotspec(grid[0])
    return axes.figure.add_subplot(grid[1])


def _draw_firsts(axes: Axes, crossings: list[dict[str, Any]], blocks: int, frames: int) -> None:
    """A row a plan: a hollow mark in the block of the first byte, a filled one in that of the first frame."""
    for row, each in enumerate(crossings):
        axes.axhline(row, color="#cccccc", linewidth=0.6, zorder=0)
        if not each["first_block"] and not each["first_frame"]:
            axes.text(1, row, "equal in every byte", va="center", fontsize=7, color="#2c8c4b", bbox=PAPER)
    told = [(row, each) for row, each in enumerate(crossings) if each["first_block"]]
    shown = [
        (row, (each["first_frame"] - 1) // frames + 1) for row, each in enumerate(crossings) if each["first_frame"]
    ]
    axes.plot(
        [each["first_block"] for _, each in told], [row for row, _ in told],
        "o", markerfacecolor="none", markersize=9, color="#c8501e", label="first byte of the state", linestyle="none",
    )  # fmt: skip
    axes.plot([at for _, at in shown], [row for row, _ in shown], "o", markersize=4, color="#0b6fb8",
              label="first frame", linestyle="none")  # fmt: skip
    for row, each in told:
        frame = f"frame {each['first_frame']}" if each["first_frame"] else "no frame"
        at = max([each["first_block"], *(block for place, block in shown if place == row)])
        axes.text(
            at + 1.2,
            row,
            f"{each['first_entry']}, byte {each['first_byte']}; {frame}",
            va="center",
            fontsize=7,
            bbox=PAPER,
        )
    axes.set_yticks(range(len(crossings)), [each["name"] for each in crossings], fontsize=8)
    axes.set_ylim(len(crossings) - 0.5, -0.5)
    axes.set_xlim(0, blocks + 1)
    axes.set_xlabel("block after the cut")
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
