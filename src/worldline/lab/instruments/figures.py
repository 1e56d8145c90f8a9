"""Figures of the instruments: bars, curves, a matrix with its counts, and rows of what was found of each item."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from worldline.lab.psnr import EQUAL_DB
from worldline.lab.report import Drawing, Lookup
from worldline.lab.report_figures import COLORS, SIZE_INCHES
from worldline.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 0.8
STYLES = ("-", "--", ":", "-.")
LEGEND_CHARS = 34
HEAD_INCHES, ROW_INCHES = 1.6, 0.24
HEAT = ("#8a1c1c", "#c8501e", "#d98e32", "#7b4fa3", "#a58bbd", "#2c8c4b", "#7aa98a", "#bbbbbb")
"""From the loudest to what is none."""
SEVEN = ("#c8501e", "#0b6fb8", "#2c8c4b", "#7b4fa3", "#8a6d1d", "#9db7c9", "#dddddd")


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
        plot_curves(axes, items_at(look_up, of), values, cast(float, look_up(bound)))
        axes.set_xlabel("block after the hand-over")
        axes.set_ylabel(y_label)

    return Drawing(*drawing, draw)


def plot_curves(axes: Axes, items: Sequence[dict[str, Any]], values: str, bound: float) -> None:
    """PSNR over blocks. Items that are equal in every block are one line, which names them all: they would hide each
    other.
    """
    equal = [item for item in items if min(item[values]) >= EQUAL_DB]
    other = [item for item in items if min(item[values]) < EQUAL_DB]
    if equal:
        names = textwrap.fill("equal throughout: " + ", ".join(item["name"] for item in equal), LEGEND_CHARS)
        axes.plot(range(1, len(equal[0][values]) + 1), equal[0][values], color="#2c8c4b", linewidth=3, label=names)
    for at, item in enumerate(other):
        color, style = COLORS[at % len(COLORS)], STYLES[at // len(COLORS) % len(STYLES)]
        blocks = range(1, len(item[values]) + 1)
        axes.plot(blocks, item[values], style, color=color, label=item["name"], linewidth=1.3)
    axes.axhline(bound, color="black", linewidth=0.8, label=f"bound, {bound:g} dB")
    axes.set_ylim(-4, EQUAL_DB + 4)
    axes.set_yticks([0, 20, 40, 60, 80, EQUAL_DB], ["0", "20", "40", "60", "80", "equal"])
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False, fontsize=6.5, loc="center left", bbox_to_anchor=(1.0, 0.5))


def levels(drawing: tuple[str, str], of: str, value: str, bound: str) -> Drawing:
    """A bar of PSNR for each item of the list at `of`, from top to bottom, coloured by its side of the bound."""

    def draw(axes: Axes, look_up: Lookup) -> None:
        items, least = items_at(look_up, of), cast(float, look_up(bound))
        tall(axes, len(items))
        colors = ["#2c8c4b" if item[value] >= EQUAL_DB else COLORS[0 if item[value] >= least else 1] for item in items]
        axes.barh(range(len(items)), [item[value] for item in items], color=colors)
        for row, item in enumerate(items):
            said = "equal" if item[value] >= EQUAL_DB else f"{item[value]:.1f}"
            axes.text(item[value] + 1, row, said, va="center", fontsize=7)
        axes.axvline(least, color="black", linewidth=0.8)
        axes.set_yticks(range(len(items)), [item["name"] for item in items], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, EQUAL_DB + 10)
        axes.set_xlabel("PSNR of the worst block, dB (measured); the line is the bound")

    return Drawing(*drawing, draw)


def ladder(drawing: tuple[str, str], of: str, value: str, steps: Sequence[str], note: str) -> Drawing:
    """A row for each item of the list at `of`, a column for each of `steps`: a mark where its `value` is.

    `note` is the key of a number that is written beside the mark, if it is not 0.
    """

    def draw(axes: Axes, look_up: Lookup) -> None:
        items = items_at(look_up, of)
        tall(axes, len(items))
        for row, item in enumerate(items):
            column = steps.index(item[value])
            axes.axhline(row, color="#dddddd", linewidth=0.6, zorder=0)
            axes.plot(column, row, "s", markersize=11, color=HEAT[min(column, len(HEAT) - 1)])
            if item[note]:
                axes.text(column + 0.16, row, f"block {item[note]}", va="center", fontsize=7)
        axes.set_xticks(range(len(steps)), steps, rotation=25, ha="right", fontsize=8)
        axes.set_yticks(range(len(items)), [item["name"] for item in items], fontsize=8)
        axes.set_xlim(-0.5, len(steps) - 0.2)
        axes.set_ylim(len(items) - 0.5, -0.5)

    return Drawing(*drawing, draw)


def parts(drawing: tuple[str, str], of: str, keys: tuple[str, str, str], kinds: Sequence[str]) -> Drawing:
    """A bar for each family of the list at `of`, cut into its kinds by their bytes.

    `keys` name the family, the kind and the bytes within an item; `kinds` are all there may be, in order.
    """

    def draw(axes: Axes, look_up: Lookup) -> None:
        family, kind, nbytes = keys
        items = items_at(look_up, of)
        names = list(dict.fromkeys(item[family] for item in items))
        tall(axes, len(names))
        totals = {name: sum(item[nbytes] for item in items if item[family] == name) for name in names}
        starts = dict.fromkeys(names, 0.0)
        for color, one in zip(SEVEN, kinds, strict=True):
            held = {item[family]: item[nbytes] / max(1, totals[item[family]]) for item in items if item[kind] == one}
            if held:
                rows = [names.index(name) for name in held]
                axes.barh(rows, list(held.values()), left=[starts[name] for name in held], color=color, label=one)
                starts |= {name: starts[name] + part for name, part in held.items()}
        for row, name in enumerate(names):
            axes.text(1.01, row, format_bytes(totals[name]), va="center", fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.16)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
        axes.set_xlabel("part of the family's bytes (measured)")
        axes.legend(frameon=False, fontsize=7, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))

    return Drawing(*drawing, draw)


def tall(axes: Axes, rows: int) -> None:
    """Gives each row of a figure its height."""
    axes.figure.set_size_inches(SIZE_INCHES[0], HEAD_INCHES + ROW_INCHES * rows)  # type: ignore[union-attr]
