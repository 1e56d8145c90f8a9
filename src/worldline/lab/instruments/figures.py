"""Figures that several instruments draw: bars over the items of a list, and a matrix with its counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from worldline.lab.report import Drawing, Lookup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 0.8


def items_at(look_up: Lookup, key: str) -> list[dict[str, Any]]:
    """The list of objects at `key`."""
    return cast("list[dict[str, Any]]", look_up(key))


def bars(
    drawing: tuple[str, str],
    of: str,
    values: Sequence[tuple[str, str]],
    y_label: str,
    keeps: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> Drawing:
    """A group of bars for each item of the list at `of`, named by its `name`.

    `drawing`: the figure's name and title. `values`: key within the item, and label.
    """

    def draw(axes: Axes, look_up: Lookup) -> None:
        shown = [item for item in items_at(look_up, of) if keeps(item)]
        width = WIDTH / len(values)
        for at, (key, label) in enumerate(values):
            places = [place + (at - (len(values) - 1) / 2) * width for place in range(len(shown))]
            axes.bar(places, [item[key] for item in shown], width, label=label)
        axes.set_xticks(range(len(shown)), [item["name"] for item in shown], rotation=25, ha="right", fontsize=8)
        axes.set_ylabel(y_label)
        axes.grid(visible=True, axis="y", alpha=0.3)
        if len(values) > 1:
            axes.legend(frameon=False, ncols=len(values), loc="lower center", bbox_to_anchor=(0.5, 1.0))

    return Drawing(*drawing, draw)


def matrix(drawing: tuple[str, str], of: str, names: str) -> Drawing:
    """The counts of the list of lists at `of`; rows and columns are named by the list at `names`."""

    def draw(axes: Axes, look_up: Lookup) -> None:
        counts, labels = cast("list[list[int]]", look_up(of)), cast("list[str]", look_up(names))
        axes.imshow(counts, cmap="Blues")
        for row, line in enumerate(counts):
            for column, count in enumerate(line):
                color = "white" if 2 * count > max(map(max, counts)) else "black"
                axes.text(column, row, str(count), ha="center", va="center", color=color, fontsize=8)
        axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=8)
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.set_xlabel("told by the bytes")
        axes.set_ylabel("written as")

    return Drawing(*drawing, draw)


def curves(drawing: tuple[str, str], of: str, values: str, y_label: str, bound: str) -> Drawing:
    """A line for each item of the list at `of`: its list at `values`, a number a block; the bound is drawn across."""

    def draw(axes: Axes, look_up: Lookup) -> None:
        styles = ("-", "--", ":", "-.")
        for at, item in enumerate(items_at(look_up, of)):
            blocks = range(1, len(item[values]) + 1)
            axes.plot(blocks, item[values], styles[at // 10 % 4], label=item["name"], linewidth=1.2)
        axes.axhline(cast(float, look_up(bound)), color="black", linewidth=0.8, label="bound")
        axes.set_xlabel("block after the hand-over")
        axes.set_ylabel(y_label)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False, fontsize=6, ncols=1, loc="center left", bbox_to_anchor=(1.0, 0.5))

    return Drawing(*drawing, draw)
