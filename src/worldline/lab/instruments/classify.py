"""`lab classify`: what each entry of a state is, with the evidence; and whether classes are told rightly at all.

Classes are told by bytes and addresses alone. That they are told rightly is shown by sessions whose entries are drawn
from all ways of writing: the confusion matrix counts what they were written as against what was told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.instruments.changes import Change, change
from worldline.lab.instruments.classes import MEANING, StateClass, Told, agrees, tell
from worldline.lab.instruments.drawn import BLOCKS, DrawnLive
from worldline.lab.instruments.figures import matrix, parts
from worldline.lab.instruments.looks import Look, Piece, look
from worldline.lab.instruments.play import actions_of, checked_count, world_of
from worldline.lab.instruments.rewrite import standing_for
from worldline.lab.report import Column, Line, Listing, Report, Section, Standing, Table, Words
from worldline.units import format_bytes
from worldline.worlds.protocol import LiveWorld
from worldline.worlds.scratch import ScratchMemory

CLASSES = tuple(StateClass)


@dataclass(frozen=True, slots=True)
class Group:
    """Entries of one family that are of one class."""

    family: str
    state_class: str
    entries: int
    nbytes: int
    declared: list[str]
    """Their write rules."""
    disagree: list[str]
    """Paths of those that did what their rule forbids."""
    evidence: str
    """Of the first of them."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Part:
    """Of the bytes that stand for the engine."""

    state_class: str
    part: float


@dataclass(frozen=True, slots=True)
class Classify:
    """What `--json` prints."""

    world: str
    option: list[str]
    blocks: int
    main: list[Part]
    """Of the engine's caches (as `lab rewrite` sums them), the largest class first."""
    groups: list[Group]
    agree: bool
    """No entry did what its declared rule forbids."""
    drawn: int
    """Sessions drawn at random."""
    classes: list[str]
    confusion: list[list[int]]
    """Row: written as. Column: told. In the order of `classes`."""
    diagonal_full: bool
    """Every drawn entry was told rightly."""
    wrong: list[str]


def measure(
    trial: Trial,
    *,
    world: str = "reference",
    option: tuple[str, ...] = (),
    blocks: int = BLOCKS,
    drawn: int = 20,
    seed: int = 0,
) -> Classify:
    """Tells what each entry of a session's state is, and what that means for moving it.

    Exit code 1: an entry did what its declared rule forbids, or a drawn one was told wrongly.

    Parameters
    ----------
    trial: Trial
        The run.
    world: str
        Any world.
    option: str
        An option of the world, as name=value; may be repeated.
    blocks: int
        To watch; windows must fill and rings go round.
    drawn: int
        Sessions drawn at random from all write rules, for the confusion matrix; 0: none.
    seed: int
        Of the world, the player's actions and what is drawn.
    """
    checked_count("blocks", blocks, 4)
    checked_count("drawn", drawn, 0)
    built = world_of(world, option)
    actions = actions_of(built, seed, blocks)
    live = built.open(seed, ScratchMemory())
    last, changes = watch(live, actions)
    trial.telemetry.check()
    told = {path: tell(each) for path, each in changes.items()}
    groups = _groups(last, told)
    confusion, wrong = confuse(drawn, seed)
    return Classify(
        world,
        list(option),
        blocks,
        _main(last, told),
        groups,
        not any(group.disagree for group in groups),
        drawn,
        [str(one) for one in CLASSES],
        confusion,
        not wrong,
        wrong,
    )


def watch(live: LiveWorld, actions: Sequence[int]) -> tuple[Look, dict[str, list[Change]]]:
    """The last look, and what each block did to each entry that is there at the end."""
    before = look(live)
    seen: list[dict[str, Change]] = []
    for action in actions:
        live.step(action)
        now = look(live)
        seen.append({path: change(before.pieces.get(path), piece) for path, piece in now.pieces.items()})
        before = now
    return before, {path: [each[path] for each in seen if path in each] for path in before.pieces}


def confuse(sessions: int, seed: int) -> tuple[list[list[int]], list[str]]:
    """The confusion matrix over drawn sessions, and a line for each entry that was told wrongly."""
    counts = [[0] * len(CLASSES) for _ in CLASSES]
    wrong = []
    for number in range(sessions):
        live = DrawnLive(seed * 1_000_003 + number)
        _, changes = watch(live, [0] * BLOCKS)
        for path, truth in live.truth.items():
            told = tell(changes[path])
            counts[CLASSES.index(truth)][CLASSES.index(told.state_class)] += 1
            if told.state_class is not truth:
                wrong.append(f"session {number}, {path}: {truth}, told as {told.state_class}: {told.evidence}")
    return counts, wrong


def engine_class(main: Sequence[Part]) -> str:
    """What names an engine: of the bytes that blocks go on writing, each class that has a third or more."""
    still = [each for each in main if each.state_class not in (StateClass.ONCE, StateClass.NEVER)] or list(main)
    whole = sum(each.part for each in still)
    return " and ".join(each.state_class for each in still if 3 * each.part >= whole)


def _main(last: Look, told: Mapping[str, Told]) -> list[Part]:
    pieces = standing_for(list(last.pieces.values()))
    held: dict[StateClass, int] = {}
    for piece in pieces:
        of = told[piece.path].state_class
        held[of] = held.get(of, 0) + piece.nbytes
    whole = sum(held.values()) or 1
    return [Part(str(of), nbytes / whole) for of, nbytes in sorted(held.items(), key=lambda item: -item[1])]


def _groups(last: Look, told: Mapping[str, Told]) -> list[Group]:
    grouped: dict[tuple[str, StateClass], list[Piece]] = {}
    for path, piece in last.pieces.items():
        grouped.setdefault((piece.family, told[path].state_class), []).append(piece)
    return [
        Group(
            family,
            str(state_class),
            len(pieces),
            sum(piece.nbytes for piece in pieces),
            list(dict.fromkeys(type(piece.rule.write).__name__ for piece in pieces)),
            [piece.path for piece in pieces if not agrees(piece.rule, told[piece.path])],
            told[pieces[0].path].evidence,
            MEANING[state_class],
        )
        for (family, state_class), pieces in grouped.items()
    ]


def text(found: Classify) -> str:
    """For a terminal."""
    main = ", ".join(f"{each.state_class} {each.part:.2f}" for each in found.main)
    lines = [f"{found.world}, {found.blocks} blocks watched: {engine_class(found.main)}; its caches: {main}"]
    for group in found.groups:
        size = format_bytes(group.nbytes)
        lines.append(f"{group.family}: {group.state_class} ({group.entries} entries, {size}); {group.evidence}")
        lines.append(f"    {group.meaning}")
        lines += [f"    against its rule: {path}" for path in group.disagree]
    if found.drawn:
        lines.append(f"written as (rows) against told as (columns), {found.drawn} sessions drawn at random")
        lines.append(" " * 16 + "".join(f"{name[:11]:>13}" for name in found.classes))
        for name, counts in zip(found.classes, found.confusion, strict=True):
            lines.append(f"{name:<16}" + "".join(f"{count:>13}" for count in counts))
    return "\n".join(lines + found.wrong)


def report(found: Classify) -> Report:
    """The groups, and the confusion matrix as a figure."""
    run, measured = "classify", Standing.MEASURED
    names = ("family", "state_class", "entries", "nbytes", "evidence", "meaning")
    columns = tuple(Column(name.replace("_", " "), name, measured) for name in names)
    names_of_all = [str(one) for one in CLASSES]
    told = (
        Words(f"World {{{run}/world}}, {{{run}/blocks}} blocks."),
        parts(
            ("classes", "Classes of each family"), f"{run}/groups", ("family", "state_class", "nbytes"), names_of_all
        ),
        Listing("What its state is", f"{run}/groups", columns),
    )
    drawn = (
        Table("Drawn at random", (Line("sessions", f"{run}/drawn"), Line("all told rightly", f"{run}/diagonal_full"))),
        matrix(("confusion", "Written as, and told as"), f"{run}/confusion", f"{run}/classes"),
    )
    shown = (Section("Are classes told rightly?", drawn),) if found.drawn else ()
    return Report(run, "What an engine's state is", (Section("Classes", told), *shown))


CLASSIFY = Experiment(measure, report, text, lambda found: found.agree and found.diagonal_full)
