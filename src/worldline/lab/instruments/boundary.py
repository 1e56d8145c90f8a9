"""`lab boundary`: one session continued from the same bytes on two plans.

Two processes compute from one cut with other kernels, threads or precision. Told are the first block and byte at which
their states differ, the first frame, PSNR over time, and whether a contract of tier T1 holds. The first block behind
the cut is left out of the readout: it shows the state that both were given. Words have no PSNR and no tier T1: of a
world that tells them only the first block that differs is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from worldline.errors import BadValue
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.instruments.boundary_figure import parting
from worldline.lab.instruments.drift import Drift, drift_of, drifting
from worldline.lab.instruments.elsewhere import HERE, PATHS, Journey, Side, early_name, go
from worldline.lab.instruments.play import actions_of, checked_count, checked_decibels, world_of
from worldline.lab.psnr import EQUAL_DB, psnr_db
from worldline.lab.report import Column, Listing, Report, Section, Standing, Words
from worldline.worlds.options import options_of

LEFT_OUT = 1
EQUAL = "T0 holds: equal bytes"


@dataclass(frozen=True, slots=True)
class Crossing:
    """From the plan at hand to another."""

    name: str
    facts_differ: list[str]
    first_block: int
    """The first block behind the cut after which the states differ, from 1; 0: none did."""
    first_entry: str
    first_byte: int | None
    """Within that entry; None where the states differ too late to have been kept, or not at all."""
    first_frame: int
    """From 1, counted from the cut; 0: none differs."""
    psnr_db: list[float]
    """A block, its worst frame; `EQUAL_DB` (100) is equal. None of words."""
    psnr_db_median: float | None
    psnr_db_worst: float | None
    """Both without the first block."""
    verdict: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """What `--json` prints."""

    world: str
    option: list[str]
    cut: int
    blocks: int
    bound_db: float
    frames_per_block: int
    drift: Drift | None
    """Of the plan at hand, which nothing was done to. None of words."""
    crossings: list[Crossing]
    same_is_equal: bool
    """The plan at hand against itself: equal in every byte, so what the others show is theirs."""


def measure(  # noqa: PLR0913 - options given by name
    trial: Trial,
    *,
    world: str = "reference",
    option: tuple[str, ...] = (),
    path: tuple[str, ...] = (),
    cut: int = 8,
    blocks: int = 60,
    bound_db: float = 35.0,
    seed: int = 0,
) -> Boundary:
    """Continues a session on other plans, and tells where and how far it goes another way.

    Parameters
    ----------
    trial: Trial
        The run.
    world: str
        Any world.
    option: str
        An option of the world, as name=value; may be repeated.
    path: str
        A plan to cross to, by name; may be repeated. Without it all.
    cut: int
        The block after which the session is cut.
    blocks: int
        Behind it.
    bound_db: float
        What a contract of tier T1 asks of the pictures.
    seed: int
        Of the world and of the player's actions.
    """
    unknown = sorted(set(path) - set(PATHS))
    if unknown:
        raise BadValue(f"there is no plan {unknown[0]!r}; there are {', '.join(PATHS)}")
    checked_decibels("bound_db", bound_db)
    built = world_of(world, option)
    actions = actions_of(built, seed, checked_count("cut", cut, 1) + checked_count("blocks", blocks, LEFT_OUT + 1))
    journey = Journey(world, options_of(option), seed, actions, cut)
    crossings = []
    with TemporaryDirectory(dir=trial.folder, prefix="sides-") as made:
        trial.telemetry.check()
        source = go(Path(made), HERE, journey)
        for name in dict.fromkeys((HERE, *(path or PATHS))):
            trial.telemetry.check()
            crossings.append(compare(name, source, go(Path(made), name, journey), bound_db))
            trial.say(f"{name}: {crossings[-1].verdict}")
    same, pictures = crossings[0], built.readout.kind == "image"
    return Boundary(
        world,
        list(option),
        cut,
        blocks,
        bound_db,
        built.readout.frames_per_block,
        drift_of(source.shown) if pictures else None,
        crossings,
        not same.first_block and not same.first_frame,
    )


def compare(name: str, source: Side, target: Side, bound_db: float) -> Crossing:
    """What differs first between two sides of one journey, and how far their pictures part."""
    facts = sorted(key for key in source.facts | target.facts if source.facts.get(key) != target.facts.get(key))
    block, entry, byte = _first_byte(source, target)
    frame = _first_frame(source, target)
    if source.shown[0].ndim == 1:
        told = f"words differ from block {frame}" if frame else "the same words"
        verdict = f"T0 fails: {told}" if block or frame else EQUAL
        return Crossing(name, facts, block, entry, byte, frame, [], None, None, verdict)
    decibels = [
        round(min(psnr_db(one, other) for one, other in zip(ours, theirs, strict=True)), 3)
        for ours, theirs in zip(source.shown, target.shown, strict=True)
    ]
    shown = decibels[LEFT_OUT:]
    below = next((at for at, db in enumerate(shown, LEFT_OUT + 1) if db < bound_db), 0)
    verdict = EQUAL if not block and not frame else f"T1 fails at block {below}" if below else "T1 holds"
    return Crossing(name, facts, block, entry, byte, frame, decibels, median(shown), min(shown), verdict)


def _first_frame(source: Side, target: Side) -> int:
    """From 1; a block of words counts as one. 0: none differs."""
    ours, theirs = (
        list(chain.from_iterable(side.shown)) if side.shown[0].ndim > 1 else side.shown for side in (source, target)
    )
    pairs = enumerate(zip(ours, theirs, strict=True), 1)
    return next((at for at, (one, other) in pairs if not np.array_equal(one, other)), 0)


def _first_byte(source: Side, target: Side) -> tuple[int, str, int | None]:
    for block, (ours, theirs) in enumerate(zip(source.blocks, target.blocks, strict=True), 1):
        entry = next((path for path in ours | theirs if ours.get(path) != theirs.get(path)), None)
        if entry is not None:
            return block, entry, _first_difference(source, target, early_name(block, entry))
    return 0, "", None


def _first_difference(source: Side, target: Side, name: str) -> int | None:
    ours, theirs = source.early.get(name), target.early.get(name)
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return None
    return int(np.flatnonzero(ours != theirs)[0])


def text(found: Boundary) -> str:
    """A line a plan."""
    lines = [f"{found.world}, cut after block {found.cut}, {found.blocks} blocks on, against the plan at hand"]
    for each in found.crossings:
        where = f"block {each.first_block}, {each.first_entry}, byte {each.first_byte}" if each.first_block else "none"
        frame = each.first_frame or "none"
        lines.append(f"{each.name:<14} differs first: {where}; frame {frame}{_decibels(each)}; {each.verdict}")
    if found.drift is not None:
        lines.append(f"by itself, from the first block to the last ones: {found.drift}")
    return "\n".join(lines)


def _decibels(each: Crossing) -> str:
    if each.psnr_db_median is None or each.psnr_db_worst is None:
        return ""
    return "; equal" if each.psnr_db_worst >= EQUAL_DB else f"; {each.psnr_db_median:.1f}/{each.psnr_db_worst:.1f} dB"


def report(found: Boundary) -> Report:
    """A row a plan, and PSNR over blocks."""
    run, measured = "boundary", Standing.MEASURED
    columns = tuple(
        Column(title, key, measured)
        for title, key in (
            ("plan", "name"), ("first block", "first_block"), ("entry", "first_entry"), ("byte", "first_byte"),
            ("first frame", "first_frame"), ("median, dB", "psnr_db_median"), ("worst, dB", "psnr_db_worst"),
            ("verdict", "verdict"),
        )
    )  # fmt: skip
    said = (
        f"World {{{run}/world}}, cut after block {{{run}/cut}}, {{{run}/blocks}} blocks; bound {{{run}/bound_db}} dB."
    )
    parts = (Words(said), Listing("Plans", f"{run}/crossings", columns), parting(run))
    shown: tuple[Section, ...] = (Section("From the same bytes", parts),)
    if found.drift is not None:
        shown += (Section("By itself, without any move", (drifting(f"{run}/drift"),)),)
    return Report(run, "One session on two plans", shown)


BOUNDARY = Experiment(measure, report, text, lambda found: found.same_is_equal)
