"""The decision as a table and as pictures: which bandwidth a move needs, and which way wins where.

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
from worldline.capacity.planner import Means, Plan, Situation, plan
from worldline.errors import BadValue
from worldline.lab.anchors import Anchor
from worldline.lab.report_figures import COLORS, new_figure, save_figure
from worldline.units import parse_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 64
ENDINGS = (".csv", ".png", ".svg")
GB = 1e9
NO_WAY = "none"
FREEZE, PRECOPY, ROLLS = COLORS[1], COLORS[0], COLORS[2]
"""A way's line in the gate, and its area in the regimes a paler shade of it."""
REGIMES = {
    NO_WAY: "#d9d9d9",
    Means.FREEZE.value: "#f2b98f",
    Means.PRECOPY.value: "#8fbfe0",
    Means.ROLLS.value: "#9fd3ae",
    Means.REPLAY.value: "#c9b3dd",
    Means.PARK.value: "#e3d59a",
}
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
    figure = new_figure(12.5, 6.4)
    wires, dirties = _axes_of(situation, anchors)
    plans = [[_plan_at(situation, wire, dirty) for wire in wires] for dirty in dirties]
    gate, regimes = figure.subplots(1, 2)
    _draw_gate(gate, situation)
    _draw_regimes(regimes, situation, wires, dirties, plans)
    _draw_anchors(regimes, anchors)
    for axes in (gate, regimes):
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
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
    """The bandwidth that each way needs, over the deadline."""
    demand, fabric = situation.demand, situation.fabric
    least_s, most_s = 0.25 * demand.deadline_s, 4 * demand.deadline_s
    times_s = [least_s * (most_s / least_s) ** (step / (STEPS - 1)) for step in range(STEPS)]
    rolled = replace(demand, dirty_bytes_per_s=demand.dirty_bytes_per_s * (1 - situation.moved_share))
    lines = (
        ("precopy needs S/(H-o) + D", Way.PRECOPY, demand, "-", PRECOPY),
        ("rolls needs S/(H-o) + D less what moved", Way.PRECOPY, rolled, "--", ROLLS),
        ("freeze needs S/(H-o), pausing all the time", Way.FREEZE, demand, ":", FREEZE),
    )
    for label, way, wanted, style, color in lines:
        both = [replace(wanted, deadline_s=time, pause_bound_s=time) for time in times_s]
        needs = [needed_raw_bytes_per_s(way, each, fabric.fixed_s) / fabric.ratio / GB for each in both]
        axes.plot(times_s, needs, style, color=color, label=f"{label} (projected)")
    axes.axhline(demand.dirty_bytes_per_s / GB, color="#888", linewidth=1, label="B = D: below, no pre-copy converges")
    axes.plot([demand.deadline_s], [fabric.wire_bytes_per_s / GB], "kx", markersize=9, label="asked for (not measured)")
    axes.set_xscale("log", base=2)
    ticks_s = [demand.deadline_s * times for times in (0.25, 0.5, 1, 2, 4)]
    axes.set_xticks(ticks_s, [f"{tick_s:g}" for tick_s in ticks_s])
    axes.set_ylim(0, 2.5 * max(fabric.wire_bytes_per_s, demand.state_bytes / demand.deadline_s) / GB)
    axes.set_xlabel("H: deadline, and pause bound of a freeze, s")
    axes.set_ylabel("B: bandwidth needed, GB/s")
    axes.set_title(f"The gate, S = {demand.state_bytes / GB:.3g} GB, D = {demand.dirty_bytes_per_s / GB:.3g} GB/s")
    axes.grid(visible=True, alpha=0.3)


def _draw_regimes(
    axes: Axes, situation: Situation, wires: list[float], dirties: list[float], plans: list[list[Plan]]
) -> None:
    """Who wins at which bandwidth and dirty rate."""
    from matplotlib.colors import ListedColormap

    names = list(REGIMES)
    cells = [[names.index(planned.choice.value if planned.choice else NO_WAY) for planned in row] for row in plans]
    seen = sorted({cell for row in cells for cell in row})
    axes.pcolormesh(
        [wire / GB for wire in wires],
        [dirty / GB for dirty in dirties],
        cells,
        cmap=ListedColormap(list(REGIMES.values())),
        vmin=-0.5,
        vmax=len(names) - 0.5,
        shading="nearest",
        rasterized=True,
    )
    for cell in seen:
        label = "no way keeps the contract" if names[cell] == NO_WAY else f"{names[cell]} wins"
        axes.plot([], [], "s", color=REGIMES[names[cell]], markersize=9, label=f"{label} (projected)")
    demand, fabric = situation.demand, situation.fabric
    axes.plot([0, wires[-1] / GB], [0, wires[-1] * fabric.ratio / GB], "k-", linewidth=1.2, label="B = D")
    axes.plot(
        [fabric.wire_bytes_per_s / GB],
        [demand.dirty_bytes_per_s / GB],
        "kx",
        markersize=9,
        label="asked for (not measured)",
    )
    axes.set_xlim(0, wires[-1] / GB)
    axes.set_ylim(0, dirties[-1] / GB)
    axes.set_xlabel("B: bandwidth of the wire, GB/s")
    axes.set_ylabel("D: rewritten, GB/s")
    bounds = f"pause <= {demand.pause_bound_s:g} s, over within {demand.deadline_s:g} s"
    axes.set_title(f"The way with the least pause; {bounds}")


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
