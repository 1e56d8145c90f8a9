"""`lab regime`: how fast states are rewritten against what a link carries, and the gate between.

Above the line B = D pre-copy converges; above B = S/H + D it also ends within the horizon. Engines that were measured
(data of `lab rewrite`) and the paper's anchors are filled marks; what they would be at another rate or over another
link is a projection, hollow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from worldline.capacity.domain import at_least_zero, positive
from worldline.capacity.gate import Demand, Way, needed_raw_bytes_per_s
from worldline.errors import BadValue
from worldline.lab.anchors import Anchor
from worldline.lab.decision_grid import anchors_of
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.instruments.figures import items_at
from worldline.lab.report import Column, Drawing, Listing, Lookup, Report, Section, Standing, Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GB = 1e9
PAPER_DIRTY_BYTES_PER_S = 0.93e9
"""What the paper measured of Matrix-Game-2, at 0.78 blocks a second."""
PAPER_STATE_BYTES = 1.67e9
PAPER_REWRITTEN = 0.777
FAST_BLOCKS_PER_S = 10.0
FAST_LINK_BYTES_PER_S = 100e9
"""800 Gb/s."""


@dataclass(frozen=True, slots=True)
class Point:
    """An engine at a rate, and the link it would move over; `gate` is what the contract asks of that link."""

    name: str
    standing: str
    state_bytes: float
    dirty_bytes_per_s: float
    bandwidth_bytes_per_s: float
    gate_bytes_per_s: float
    converges: bool
    admissible: bool


@dataclass(frozen=True, slots=True)
class Regime:
    """What `--json` prints."""

    horizon_s: float
    points: list[Point]


def measure(
    trial: Trial,
    *,
    measured: tuple[Path, ...] = (),
    anchor: tuple[str, ...] = (),
    bandwidth_gb_per_s: float = 5.0,
    horizon_s: float = 0.4,
) -> Regime:
    """Places engines between the lines B = D and B = S/H + D.

    Parameters
    ----------
    trial: Trial
        The run.
    measured: Path
        What `lab rewrite --json` printed; may be repeated.
    anchor: str
        A measured point, NAME=BANDWIDTH,DIRTY; may be repeated. The paper's is always there.
    bandwidth_gb_per_s: float
        Of the link that the paper's and the measured engines are set on: an assumption, only D was measured.
    horizon_s: float
        Deadline of a move.
    """
    trial.telemetry.check()
    positive(bandwidth_gb_per_s, "bandwidth_gb_per_s")
    positive(horizon_s, "horizon_s")
    paper = Anchor("paper: Matrix-Game-2", bandwidth_gb_per_s * GB, PAPER_DIRTY_BYTES_PER_S)
    given = (paper, *anchors_of(anchor))
    points = [_point(each.name, "measured", PAPER_STATE_BYTES, each, horizon_s) for each in given]
    fast = Anchor("", FAST_LINK_BYTES_PER_S, PAPER_STATE_BYTES * PAPER_REWRITTEN * FAST_BLOCKS_PER_S)
    points.append(_point("Matrix-Game-2 at 10 Hz, 800 Gb/s", "projected", PAPER_STATE_BYTES, fast, horizon_s))
    for file in measured:
        name, state, dirty, per_block = _read(file)
        here = Anchor("", bandwidth_gb_per_s * GB, dirty)
        points.append(_point(name, "measured", state, here, horizon_s))
        at_10 = Anchor("", FAST_LINK_BYTES_PER_S, per_block * FAST_BLOCKS_PER_S)
        points.append(_point(f"{name} at 10 Hz, 800 Gb/s", "projected", state, at_10, horizon_s))
    return Regime(horizon_s, points)


def _read(file: Path) -> tuple[str, float, float, float]:
    """Name, S, D as measured, bytes of pages changed a block. Raises `BadValue`."""
    try:
        found = json.loads(file.read_text())
        main = found["main"]
        numbers = (main["nbytes"], main["dirty_bytes_per_s"], main["nbytes"] * main["by_pages"])
        state, dirty, per_block = (at_least_zero(float(number), "a number of it") for number in numbers)
        return str(found["world"]), state, dirty, per_block
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError, BadValue) as error:
        raise BadValue(f"{file} is nothing that `lab rewrite --json` printed: {error!r}") from error


def _point(name: str, standing: str, state: float, at: Anchor, horizon_s: float) -> Point:
    gate = needed_raw_bytes_per_s(Way.PRECOPY, Demand(state, at.dirty_bytes_per_s, horizon_s, horizon_s))
    wire, dirty = at.bytes_per_s, at.dirty_bytes_per_s
    return Point(name, standing, state, dirty, wire, gate, wire > dirty, wire >= gate)


def text(found: Regime) -> str:
    """A line a point."""
    lines = [f"horizon {found.horizon_s * 1e3:g} ms; the gate is B >= S/H + D"]
    for each in found.points:
        said = "admitted" if each.admissible else "converges, too late" if each.converges else "never converges"
        rates = (each.dirty_bytes_per_s / GB, each.bandwidth_bytes_per_s / GB, each.gate_bytes_per_s / GB)
        figures = "  ".join(f"{name} {rate:8.4f}" for name, rate in zip(("D", "B", "gate"), rates, strict=True))
        lines.append(f"{each.name:<40}{each.standing:<11}{figures} GB/s  {said}")
    return "\n".join(lines)


def _draw(axes: Axes, look_up: Lookup) -> None:
    points = items_at(look_up, "regime/points")
    wires = [10 ** (step / 20) for step in range(-80, 50)]
    axes.plot(wires, wires, "k-", linewidth=1, label="B = D (projected)")
    horizon_s = look_up("regime/horizon_s")
    assert isinstance(horizon_s, float)
    need = PAPER_STATE_BYTES / horizon_s / GB
    gated = [wire for wire in wires if wire > need]
    axes.plot(gated, [wire - need for wire in gated], "k--", linewidth=1, label="the gate, S = 1.67 GB (projected)")
    for each in points:
        real = each["standing"] == "measured"
        axes.plot(
            [each["bandwidth_bytes_per_s"] / GB], [max(each["dirty_bytes_per_s"] / GB, 1e-5)],
            "o", markerfacecolor=None if real else "none", label=f"{each['name']} ({each['standing']})",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("B: bandwidth, GB/s")
    axes.set_ylabel("D: rewritten, GB/s")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False, fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))


def report(found: Regime) -> Report:
    """The figure and a row a point."""
    run = "regime"
    columns = tuple(
        Column(title, key, Standing.PROJECTED)
        for title, key in (
            ("engine", "name"), ("standing of D", "standing"), ("S", "state_bytes"), ("D", "dirty_bytes_per_s"),
            ("B", "bandwidth_bytes_per_s"), ("gate", "gate_bytes_per_s"), ("admissible", "admissible"),
        )
    )  # fmt: skip
    parts = (
        Words(f"Horizon {{{run}/horizon_s}} s. The gate is a formula, and the link is one that is assumed."),
        Drawing("regime", "Rewriting against bandwidth", _draw),
        Listing("Points", f"{run}/points", columns),
    )
    return Report(run, "Who can be moved while playing", (Section("D against B", parts),))


REGIME = Experiment(measure, report, text)
