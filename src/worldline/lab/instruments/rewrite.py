"""`lab rewrite`: what part of each family a block changes, and what of that is new when rows only moved.

A fraction is of a family's bytes, the median over the blocks measured. Counted by bytes, by the elements they are in,
by 4 KiB pages (of each tensor, from its start) and by rows; `new` is of rows that are nowhere in the state before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import cast

from worldline.capacity.domain import at_least_zero
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.instruments.changes import PAGE_BYTES, Amount, change
from worldline.lab.instruments.figures import bars
from worldline.lab.instruments.looks import Look, Piece, look
from worldline.lab.instruments.play import Play, actions_of, checked_count, world_of
from worldline.lab.report import Column, Line, Listing, Report, Section, Standing, Table, Words
from worldline.schema.inventory import Kind
from worldline.units import format_bytes

IN_PLACE, CACHES, STATE = "kept in place", "all caches", "whole state"
TOTALS: Mapping[str, Callable[[Piece], bool]] = {
    IN_PLACE: lambda piece: piece.in_place,
    CACHES: lambda piece: piece.rule.kind in (Kind.CACHE, Kind.DERIVED),
    STATE: lambda piece: piece.rule.kind is not Kind.DERIVED,
}
"""Sums over families. The first is the paper's S, with what is derived in it; the last is what a move takes."""

WAYS = (
    ("by_bytes", "bytes"),
    ("by_elements", "elements"),
    ("by_pages", "4 KiB pages"),
    ("by_rows", "rows"),
    ("new", "new rows"),
)


@dataclass(frozen=True, slots=True)
class Share:
    """Of a family, or of a sum over several."""

    name: str
    nbytes: int
    by_bytes: float
    by_elements: float
    by_pages: float
    by_rows: float
    new: float
    declared: float
    """Rewritten, as the engine's write rules have it: undeclared entries as a whole."""
    declared_new: float
    dirty_bytes_per_s: float
    """Pages, at the run's rate: what pre-copy has to send."""
    new_bytes_per_s: float
    """Rows that are new, at the run's rate: what a roll-aware residual sends."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What `--json` prints."""

    world: str
    option: list[str]
    warm_up_blocks: int
    blocks: int
    block_ms: float
    """Measured here, median."""
    blocks_per_s: float
    """At which the rates are told: given, or measured."""
    rate_given: bool
    families: list[Share]
    totals: list[Share]
    main: Share
    """The total that stands for the engine: caches kept in place, or all caches where there are none."""


def measure(  # noqa: PLR0913 - options given by name
    trial: Trial,
    *,
    world: str = "reference",
    option: tuple[str, ...] = (),
    blocks: int = 3,
    warm_up: int = 6,
    blocks_per_s: float = 0.0,
    seed: int = 0,
) -> Rewrite:
    """Plays a session and compares its whole state from block to block.

    Parameters
    ----------
    trial: Trial
        The run.
    world: str
        Any world.
    option: str
        An option of the world, as name=value; may be repeated.
    blocks: int
        To measure.
    warm_up: int
        Blocks before them, in which windows fill.
    blocks_per_s: float
        The rate at which dirty rates are told; 0: as measured here.
    seed: int
        Of the world and of the player's actions.
    """
    checked_count("blocks", blocks, 1)
    at_least_zero(blocks_per_s, "blocks_per_s")
    built = world_of(world, option)
    actions = actions_of(built, seed, checked_count("warm_up", warm_up, 1) + blocks)
    play = Play.open(built, seed)
    amounts: list[dict[str, Amount]] = []
    before: Look | None = None
    for block, action in enumerate(actions, 1):
        play.step(action)
        trial.telemetry.check()
        if block < warm_up:
            continue
        now = look(play.live)
        if before is not None:
            amounts.append({path: change(before.pieces.get(path), piece).amount for path, piece in now.pieces.items()})
            trial.say(f"block {block} of {warm_up + blocks}")
        before = now
    assert before is not None
    measured_s = median(play.seconds[-blocks:])
    rate = blocks_per_s or 1 / measured_s
    families, totals = shares_of(before, amounts, rate)
    main = next((total for total in totals if total.nbytes), totals[-1])
    return Rewrite(
        world, list(option), warm_up, blocks, measured_s * 1e3, rate, bool(blocks_per_s), families, totals, main
    )


def shares_of(last: Look, amounts: list[dict[str, Amount]], rate: float) -> tuple[list[Share], list[Share]]:
    """Of each family, in the order of the state, and of each total."""
    pieces = list(last.pieces.values())
    families = list(dict.fromkeys(piece.family for piece in pieces))
    by_family = [_share(name, [p for p in pieces if p.family == name], amounts, rate) for name in families]
    totals = [_share(name, [p for p in pieces if holds(p)], amounts, rate) for name, holds in TOTALS.items()]
    return by_family, totals


def _share(name: str, pieces: list[Piece], amounts: list[dict[str, Amount]], rate: float) -> Share:
    sums = [sum((block.get(piece.path, Amount()) for piece in pieces), Amount()) for block in amounts]
    nbytes = sums[-1].nbytes

    def part(bytes_of: Callable[[Amount], int]) -> float:
        return median(bytes_of(each) / max(1, each.nbytes) for each in sums)

    pages, new = part(lambda a: a.page_bytes), part(lambda a: a.new_bytes)
    return Share(
        name,
        nbytes,
        part(lambda a: a.changed_bytes),
        part(lambda a: a.element_bytes),
        pages,
        part(lambda a: a.row_bytes),
        new,
        sum(piece.declared[0] for piece in pieces) / max(1, nbytes),
        sum(piece.declared[1] for piece in pieces) / max(1, nbytes),
        pages * nbytes * rate,
        new * nbytes * rate,
    )


def standing_for(pieces: Sequence[Piece]) -> list[Piece]:
    """Of an engine: its caches kept in place, or all caches where there are none, or else everything that is moved."""
    chosen = ([piece for piece in pieces if holds(piece)] for holds in TOTALS.values())
    return next((some for some in chosen if any(piece.nbytes for piece in some)), list(pieces))


def text(found: Rewrite) -> str:
    """A table for a terminal."""
    names = zip(("bytes", "elements", "pages", "rows", "new", "declared", "D"), (8, 10, 8, 8, 8, 10, 13), strict=True)
    head = f"{'family':<22}{'size':>11}" + "".join(f"{name:>{width}}" for name, width in names)
    lines = [f"{found.world}: what a block changes, of {found.blocks} after {found.warm_up_blocks}", head]
    for share in (*found.families, *found.totals):
        parts = (share.by_bytes, share.by_elements, share.by_pages, share.by_rows, share.new, share.declared)
        cells = "".join(f"{part:>{width}.3f}" for part, width in zip(parts, (8, 10, 8, 8, 8, 10), strict=True))
        lines.append(
            f"{share.name:<22}{format_bytes(share.nbytes):>11}{cells}{share.dirty_bytes_per_s / 1e9:>8.3f} GB/s"
        )
    where = "as given" if found.rate_given else "measured here"
    return "\n".join([*lines, f"at {found.blocks_per_s:.3g} blocks a second, {where}"])


def report(found: Rewrite) -> Report:
    """Fractions are counts of bytes; only the rate is of this machine's clock."""
    run, measured = "rewrite", Standing.MEASURED
    columns = (
        Column("family", "name", measured),
        Column("bytes", "nbytes", measured),
        *(Column(label, key, measured, ".3f") for key, label in WAYS),
        Column("declared", "declared", Standing.PROJECTED, ".3f"),
        Column("declared new", "declared_new", Standing.PROJECTED, ".3f"),
        Column("D, bytes/s", "dirty_bytes_per_s", measured),
    )
    lines = (
        Line("S", f"{run}/main/nbytes", unit="bytes"),
        Line("rewritten, by 4 KiB pages", f"{run}/main/by_pages", f"{run}/main/declared", form=".3f"),
        Line("new", f"{run}/main/new", f"{run}/main/declared_new", form=".3f"),
        Line("blocks a second", f"{run}/blocks_per_s"),
        Line("D", f"{run}/main/dirty_bytes_per_s", unit="bytes/s"),
    )
    figure = bars(
        ("rewritten", "What a block changes, of each family of a page or more"),
        f"{run}/families",
        WAYS,
        "fraction of the family (measured)",
        _is_shown,
    )
    said = f"World {{{run}/world}}: what {{{run}/blocks}} blocks changed after {{{run}/warm_up_blocks}}."
    return Report(
        run,
        "What a block changes of an engine's state",
        (
            Section("The engine", (Words(said), Table("Caches kept in place", lines), figure)),
            Section(
                "Families and totals",
                (Listing("Families", f"{run}/families", columns), Listing("Totals", f"{run}/totals", columns)),
            ),
        ),
    )


def _is_shown(share: Mapping[str, object]) -> bool:
    """Counters and flags are below a page and change as a whole."""
    return cast(int, share["nbytes"]) >= PAGE_BYTES


REWRITE = Experiment(measure, report, text)
