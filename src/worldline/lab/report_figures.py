"""The figures of a report, drawn by matplotlib without a display, as SVG and PNG.

What was measured is told from what was not by its mark: filled on a whole line against hollow on a broken one, and the
legend says which is which, so a figure stays honest in black and white.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from worldline.errors import Internal, MissingExtra
from worldline.lab.report import Data, Drawing, Plot, Standing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE_INCHES = (7.2, 4.2)
DOTS_PER_INCH = 150
COLORS = ("#0b6fb8", "#c8501e", "#2c8c4b", "#7b4fa3", "#8a6d1d", "#555555")
MARKS = ("o", "s", "^", "D", "v", "P")
TITLE_CHARS, TITLE_POINTS = 80, 11
PLAIN_DIGITS = 6
"""On a plot's logarithmic axis: 1, 10, 100 000 are labelled so, and what is longer as a power of ten."""


def new_figure(width: float = SIZE_INCHES[0], height: float = SIZE_INCHES[1]) -> Figure:
    """An empty figure. Raises `MissingExtra`."""
    ensure_figures()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def ensure_figures() -> None:
    """Raises `MissingExtra` where figures can't be drawn: before a long run, rather than at its end."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "figures are drawn by matplotlib, which is not installed: pip install 'worldline[lab]'", extra="lab"
        ) from error


def save_figure(figure: Figure, path: Path) -> None:
    """Writes `path` with the endings .svg and .png."""
    figure.savefig(path.with_name(f"{path.name}.svg"), metadata={"Date": None})
    figure.savefig(path.with_name(f"{path.name}.png"), dpi=DOTS_PER_INCH)


def draw_figures(folder: Path, parts: Sequence[Plot | Drawing], data: Data) -> None:
    """Draws each into `folder`. Raises `MissingExtra`, and `Internal` for a key that leads nowhere."""
    if not parts:
        return
    figures = [(part, _draw(part, data)) for part in parts]
    from matplotlib import rc_context

    folder.mkdir(exist_ok=True)
    for part, figure in figures:
        digits = PLAIN_DIGITS if isinstance(part, Plot) else 0
        with rc_context({"axes.formatter.min_exponent": digits}):  # what labels an axis reads it as the figure is saved
            save_figure(figure, folder / part.name)


def _draw(part: Plot | Drawing, data: Data) -> Figure:
    figure = new_figure()
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots()
    figure.suptitle(textwrap.fill(part.title, TITLE_CHARS), fontsize=TITLE_POINTS)
    if isinstance(part, Drawing):
        part.draw(axes, data.look_up)
        return figure
    for at, series in enumerate(part.series):
        x, y = _values(series.x, data), _values(series.y, data)
        measured = series.standing is Standing.MEASURED
        axes.plot(
            x,
            y,
            color=COLORS[at % len(COLORS)],
            marker=MARKS[at % len(MARKS)],
            markerfacecolor=COLORS[at % len(COLORS)] if measured else "none",
            linestyle="-" if measured else "--",
            label=f"{series.label} ({series.standing.value})",
        )
    axes.set_xlabel(part.x_label)
    axes.set_ylabel(part.y_label)
    if part.log_x:
        axes.set_xscale("log")
    elif all(value.is_integer() for series in part.series for value in _values(series.x, data)):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # between what is counted there is nothing
    if part.log_y:
        axes.set_yscale("log")
    if part.from_zero:
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)
    return figure


def _values(key: str, data: Data) -> list[float]:
    values = [data.look_up(item) for item in data.items(key)]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    if len(numbers) != len(values):
        raise Internal(f"{key!r} has values that are no numbers", key=key)
    return numbers
