"""The decision as a table and as pictures: which bandwidth a move needs, and which way wins where.

Every line and area is the planner's own answer for that point, so pictures and table can't differ.
Everything but the anchors is a projection, and the legend says so: lines and areas are formulas, filled marks were
measured.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from worldline.capacity.gate import Way, needed_raw_bytes_per_s
from worldline.capacity.planner import Means, Plan, Situation, plan, predict, size_text, time_text
from worldline.errors import BadValue
from worldline.lab.anchors import Anchor
from worldline.lab.report_figures import COLORS, new_figure, save_figure
from worldline.units import parse_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 64
WIDTH_INCHES, HEIGHT_INCHES, LINE_INCHES = 12.5, 5.4, 0.2
"""The height without the legend, and of a line of it."""
ENDINGS = (".csv", ".png", ".svg")
GB = 1e9
NO_WAY = "none"
TITLE_POINTS = 11
FREEZE, PRECOPY, ROLLS = COLORS[1], COLORS[0], COLORS[2]
"""A way's line in the gate, and its area in the regimes a paler shade of it."""
REGIMES: dict[Means | None, tuple[str, str]] = {
    None: ("no way keeps the contract", "#d9d9d9"),
    Means.FREEZE: ("freeze wins", "#f2b98f"),
    Means.PRECOPY: ("precopy or rolls wins", "#8fbfe0"),
    Means.ROLLS: ("rolls wins, precopy is refused", "#9fd3ae"),
    Means.PARK: ("park wins", "#e3d59a"),
}
"""Both pre-copies are one command. Which of them pauses less turns on the round that each ends with, so an area of each
would be specks; what differs is whether it must be known which rows only moved."""
FIELDS = ("bandwidth_bytes_per_s", "dirty_bytes_per_s", "choice", "mode", "admissible", "reason")
FIGURES = ("needed_bytes_per_s", "pause_s", "finish_s", "sent_bytes")


def anchors_of(texts: Sequence[str]) -> tuple[Anchor, ...]:
    """`NAME=BANDWIDTH,DIRTY`, each a rate. Raises `BadValue`."""
    anchors = []
    for text in texts:
        name, equals, rates = text.partition("=")
        wire, comma, dirty = rates.partition(",")
        if not (name and equals and comma):
            raise BadValue(f"an anchor is written NAME=BANDWIDTH,DIRTY, not {text!r}")
        anchors.append(Anchor(name, parse_rate(wire), 0.0 if dirty == "0" else parse_rate(dirty)))
    return tuple(anchors)


def write_grid(path: Path, situation: Situation, anchors: Sequence[Anchor]) -> tuple[Path, ...]:
    """Writes and names `path`.csv, .png and .svg: plans over bandwidth and dirty rate, around the situation's own.
    Of these endings `path` may have one already.

    Raises `MissingExtra` where figures can't be drawn, and `BadValue` where nothing can be written.
    """
    if path.name in {"", ".."}:
        raise BadValue(f"--grid names the files' common beginning, and {path} is a folder")
    stem = path.with_suffix("") if path.suffix in ENDINGS else path
    table, *pictures = (stem.with_name(stem.name + ending) for ending in ENDINGS)
    figure = new_figure()
    wires, dirties = _axes_of(situation, anchors)
    plans = [[_plan_at(situation, wire, dirty) for wire in wires] for dirty in dirties]
    gate, regimes = figure.subplots(1, 2)
    _draw_gate(gate, situation)
    _draw_regimes(regimes, situation, wires, dirties, plans)
    _draw_anchors(regimes, anchors)
    for axes in (gate, regimes):
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    lines = max(len(axes.get_legend_handles_labels()[0]) for axes in (gate, regimes))
    figure.set_size_inches(WIDTH_INCHES, HEIGHT_INCHES + LINE_INCHES * lines)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_csv(table, wires, dirties, plans)
        save_figure(figure, stem)
    except OSError as error:
        raise BadValue(f"{path} can't be written: {error.strerror}") from error
    return (table, *pictures)


def _axes_of(situation: Situation, anchors: Sequence[Anchor]) -> tuple[list[float], list[float]]:
    """Bandwidths and dirty rates: past what is asked for, what is there, and what was measured."""
    demand, fabric = situation.demand, situation.fabric
    needed = needed_raw_bytes_per_s(Way.PRECOPY, demand, fabric.fixed_s) / fabric.ratio
    known = [fabric.wire_bytes_per_s, *(anchor.bytes_per_s for anchor in anchors)]
    known += [needed] if math.isfinite(needed) else []
    most_wire = 1.8 * max(known)
    most_dirty = max(2.5 * demand.dirty_bytes_per_s, *(1.5 * a.dirty_bytes_per_s for a in anchors), 0.3 * most_wire)
    return (
        [most_wire * (step + 1) / STEPS for step in range(STEPS)],
        [most_dirty * step / (STEPS - 1) for step in range(STEPS)],
    )


def _plan_at(situation: Situation, wire: float, dirty: float) -> Plan:
    demand = replace(situation.demand, dirty_bytes_per_s=dirty)
    situation = replace(situation, dirty_known=True)  # the axis says it
    return plan(replace(situation, demand=demand, fabric=replace(situation.fabric, wire_bytes_per_s=wire)))


def _write_csv(path: Path, wires: list[float], dirties: list[float], plans: list[list[Plan]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([*FIELDS, *FIGURES])
        for dirty, row in zip(dirties, plans, strict=True):
            for wire, planned in zip(wires, row, strict=True):
                for each in planned.predictions:
                    reason = "" if each.reason is None else each.reason.value
                    figures = (each.needed_wire_bytes_per_s, each.pause_s, each.finish_s, each.sent_bytes)
                    out.writerow([wire, dirty, planned.choice or NO_WAY, each.means, each.admissible, reason, *figures])


def _draw_gate(axes: Axes, situation: Situation) -> None:
    """The bandwidth that each way needs, over the deadline, of a move that waits for no other."""
    demand, fabric, alone = situation.demand, situation.fabric, replace(situation, ahead=0)
    one_horizon = demand.pause_bound_s == demand.deadline_s
    least_s, most_s = 0.25 * demand.deadline_s, 4 * demand.deadline_s
    times_s = [least_s * (most_s / least_s) ** (step / (STEPS - 1)) for step in range(STEPS)]
    top = 2.5 * max(fabric.wire_bytes_per_s, demand.state_bytes / fabric.ratio / demand.deadline_s)
    bound = "H" if one_horizon else f"min(H, {time_text(demand.pause_bound_s)})"
    over = "" if fabric.ratio == 1 else f", over {fabric.ratio:g}"
    lines = (
        ("precopy needs S/(H-o) + D", Means.PRECOPY, "-", PRECOPY),
        ("rolls needs S/(H-o) + D less what moved", Means.ROLLS, "--", ROLLS),
        (f"freeze needs S/({bound}-o), pausing all the time", Means.FREEZE, ":", FREEZE),
    )
    for label, means, style, color in lines:
        needs = [_needed(means, alone, time_s, one_horizon) for time_s in times_s]
        axes.plot(
            times_s, [need / GB for need in needs], style, color=color, label=f"{label}{over}{_where(needs, top)}"
        )
    if situation.dirty_known:
        _draw_limits(axes, situation)
    axes.plot([demand.deadline_s], [fabric.wire_bytes_per_s / GB], "kx", markersize=9, label="asked for (not measured)")
    axes.set_xscale("log", base=2)
    ticks_s = [demand.deadline_s * times for times in (0.25, 0.5, 1, 2, 4)]
    axes.set_xticks(ticks_s, [f"{tick_s:g}" for tick_s in ticks_s])
    axes.set_ylim(0, top / GB)
    axes.set_xlabel("H: deadline and pause bound, s" if one_horizon else "H: deadline, s")
    axes.set_ylabel("B: bandwidth needed, GB/s")
    rewritten = f"= {demand.dirty_bytes_per_s / GB:.3g} GB/s" if situation.dirty_known else "not known"
    gate = "The gate of one move" if situation.ahead else "The gate"
    axes.set_title(f"{gate}, S = {demand.state_bytes / GB:.3g} GB, D {rewritten}", fontsize=TITLE_POINTS)
    axes.grid(visible=True, alpha=0.3)


def _needed(means: Means, situation: Situation, deadline_s: float, one_horizon: bool) -> float:
    """Of the wire, at that deadline. One horizon is both bounds, and moves both."""
    demand = replace(situation.demand, deadline_s=deadline_s)
    if one_horizon:
        demand = replace(demand, pause_bound_s=deadline_s)
    return predict(means, replace(situation, demand=demand)).needed_wire_bytes_per_s


def _where(needs: Sequence[float], top: float) -> str:
    """What is said of a line that is not in the figure."""
    least = min(needs)
    if least == math.inf:
        return ": no wire would do, or D is not known"
    return " (projected)" if least <= top else f": from {size_text(least)}/s, above this figure (projected)"


def _draw_limits(axes: Axes, situation: Situation) -> None:
    """The bandwidths under which a pre-copy never ends, however long it takes: what is rewritten, as sent."""
    for name, rewritten, color in _limits(situation):
        label = f"B = {name}: below, {'precopy' if color is PRECOPY else 'rolls'} never ends"
        axes.axhline(rewritten / GB, color=color, linewidth=0.8, alpha=0.7, label=label)


def _limits(situation: Situation) -> tuple[tuple[str, float, str], ...]:
    """Of both pre-copies: its name, what of the wire it takes, and the way's color."""
    once = "D" if situation.fabric.ratio == 1 else f"D/{situation.fabric.ratio:g}"
    dirty = situation.demand.dirty_bytes_per_s / situation.fabric.ratio
    share = situation.moved_share
    return (once, dirty, PRECOPY), (f"{once} less what moved", dirty * (1 - share), ROLLS)


def _draw_regimes(
    axes: Axes, situation: Situation, wires: list[float], dirties: list[float], plans: list[list[Plan]]
) -> None:
    """Who wins at which bandwidth and dirty rate."""
    from matplotlib.colors import ListedColormap

    names = list(REGIMES)
    cells = [[names.index(regime(planned)) for planned in row] for row in plans]
    axes.pcolormesh(
        [wire / GB for wire in wires],
        [dirty / GB for dirty in dirties],
        cells,
        cmap=ListedColormap([color for _, color in REGIMES.values()]),
        vmin=-0.5,
        vmax=len(names) - 0.5,
        shading="nearest",
        rasterized=True,
    )
    for cell in sorted({cell for row in cells for cell in row}):
        label, color = REGIMES[names[cell]]
        axes.plot([], [], "s", color=color, markersize=9, label=f"{label} (projected)")
    unit = replace(situation, demand=replace(situation.demand, dirty_bytes_per_s=1.0))
    for (name, per_dirty, color), style in zip(_limits(unit), ("-", "--"), strict=True):
        if per_dirty > 0:
            way = "precopy" if color is PRECOPY else "rolls"
            most = dirties[-1] / GB
            label = f"B = {name}: left of it {way} never ends"
            axes.plot([0, most * per_dirty], [0, most], f"k{style}", linewidth=1.2, label=label)
    _draw_asked(axes, situation)
    demand = situation.demand
    axes.set_xlim(0, wires[-1] / GB)
    axes.set_ylim(0, dirties[-1] / GB)
    axes.set_xlabel("B: bandwidth of the wire, GB/s")
    axes.set_ylabel("D: rewritten, GB/s")
    bounds = f"pause <= {time_text(demand.pause_bound_s)}, over within {time_text(demand.deadline_s)}"
    behind = f", {situation.ahead} before it" if situation.ahead else ""
    axes.set_title(f"Least pause wins: {bounds}{behind}", fontsize=TITLE_POINTS)


def regime(planned: Plan) -> Means | None:
    """The area of the map in which this plan lies."""
    if planned.choice is Means.ROLLS and planned.of(Means.PRECOPY).admissible:
        return Means.PRECOPY
    return planned.choice


def _draw_asked(axes: Axes, situation: Situation) -> None:
    """A point; a line where nobody knows how fast the session is rewritten."""
    wire = situation.fabric.wire_bytes_per_s / GB
    if situation.dirty_known:
        dirty = situation.demand.dirty_bytes_per_s / GB
        axes.plot([wire], [dirty], "kx", markersize=9, label="asked for (not measured)")
    else:
        axes.axvline(wire, color="black", linestyle=":", label="asked for, D is not known (not measured)")


def _draw_anchors(axes: Axes, anchors: Sequence[Anchor]) -> None:
    for at, anchor in enumerate(anchors):
        label = f"{anchor.name} (measured)"
        axes.plot(
            [anchor.bytes_per_s / GB],
            [anchor.dirty_bytes_per_s / GB],
            "o",
            color=COLORS[at % len(COLORS)],
            markeredgecolor="black",
            markersize=8,
            label=label,
        )
    if not anchors:
        axes.plot([], [], " ", label="no measured point was given")
