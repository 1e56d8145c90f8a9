"""`lab inventory`: what breaks when a part of the state is left out of a move, and how loudly.

A session is restored in other memory with one family (or one entry) left out, and goes on beside the whole one under
the same actions. Left out means: zeros for a tensor, another number, no text, a fresh generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum

from worldline.errors import Poisoned, WorldlineError
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.instruments.figures import ladder
from worldline.lab.instruments.play import actions_of, checked_count, world_of
from worldline.lab.report import Column, Listing, Report, Section, Standing, Words
from worldline.schema.inventory import Kind
from worldline.snapshot.walk import Rules
from worldline.worlds.protocol import World
from worldline.worlds.scratch import Leaf, walk
from worldline.worlds.seat import Look, Seat, is_empty, left_out

ENTRIES_MAX = 400


class Outcome(StrEnum):
    """How loudly the loss is told, from the loudest to what is none."""

    REFUSED = "refused"
    """A typed refusal, before a block was shown."""
    LOUD = "fails loudly"
    """The engine stops with an error."""
    DIVERGES = "diverges"
    """Pictures differ, and the rest of the state goes another way."""
    PICTURE = "silent picture error"
    """Pictures differ, and the rest of the state does not: nothing else will ever tell."""
    HIDDEN = "hidden"
    """Pictures are the same so far, and the state is another."""
    DERIVED = "derived"
    """Never moved, and made again: pictures and state are the same."""
    UNREAD = "not read"
    """Moved, and the next blocks are the same without it: read later, or never."""
    BLANK = "blank"
    """It holds nothing that could be left out."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What came of leaving `name` out."""

    name: str
    kind: str
    entries: int
    nbytes: int
    outcome: str
    first_block: int
    """Counted after the cut, from 1, of the first block that differs or fails; 0: none did."""
    said: str
    """The error, where there was one."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What `--json` prints."""

    world: str
    option: list[str]
    cut: int
    """The block after which the session was copied."""
    blocks: int
    whole: bool
    """With nothing left out the copy goes on bit for bit: else what follows says nothing."""
    families: list[Loss]
    entries: list[Loss]


def measure(  # noqa: PLR0913 - options given by name
    trial: Trial,
    *,
    world: str = "reference",
    option: tuple[str, ...] = (),
    cut: int = 6,
    blocks: int = 4,
    each: bool = False,
    seed: int = 0,
) -> Inventory:
    """Leaves each family of the state out in turn and tells what breaks.

    Parameters
    ----------
    trial: Trial
        The run.
    world: str
        Any world.
    option: str
        An option of the world, as name=value; may be repeated.
    cut: int
        The block after which the session is copied.
    blocks: int
        To go on for, whole and without the part.
    each: bool
        Also every entry alone, as far as there are at most 400.
    seed: int
        Of the world and of the player's actions.
    """
    built = world_of(world, option)
    actions = actions_of(built, seed, checked_count("cut", cut, 1) + checked_count("blocks", blocks, 1))
    with ExitStack() as stack:
        source = Seat.open(built, seed, stack)
        for action in actions[:cut]:
            source.step(action)
        bench = _Bench(built, source, actions[cut:])
        whole = bench.loss("", ())
        leaves = dict(walk(source.live.state()))
        families: dict[str, list[str]] = {}
        for path in leaves:
            families.setdefault(path.partition("/")[0], []).append(path)
        losses = [bench.loss(name, paths) for name, paths in families.items()]
        trial.telemetry.check()
        alone = list(leaves)[:ENTRIES_MAX] if each else []
        entries = [bench.loss(path, (path,)) for path in alone]
    same = whole.outcome in (Outcome.UNREAD, Outcome.BLANK)
    return Inventory(world, list(option), cut, blocks, same, losses, entries)


class _Bench:
    """The session to copy, and what it shows when it goes on whole."""

    def __init__(self, world: World, source: Seat, actions: Sequence[int]) -> None:
        self._world, self._source, self._actions = world, source, actions
        self._leaves: dict[str, Leaf] = dict(walk(source.live.state()))
        self._rules = Rules(source.live.rules)
        with ExitStack() as stack:
            seat = source.copy(stack)
            self._expected = [(seat.step(action), seat.look()) for action in actions]

    def loss(self, name: str, paths: Sequence[str]) -> Loss:
        """Of leaving `paths` out."""
        moved = [path for path in paths if self._rules.of(path).kind is not Kind.DERIVED]
        kind = str(self._rules.of(paths[0]).kind) if paths else ""
        nbytes = sum(getattr(self._leaves[path], "nbytes", 0) for path in paths)
        if paths and moved and all(is_empty(self._leaves[path]) for path in moved):
            return Loss(name, kind, len(paths), nbytes, Outcome.BLANK, 0, "")
        outcome, block, said = self._go_on(moved)
        if paths and not moved and outcome is Outcome.UNREAD:
            outcome = Outcome.DERIVED
        return Loss(name, kind, len(paths), nbytes, outcome, block, said)

    def _go_on(self, paths: Sequence[str]) -> tuple[Outcome, int, str]:
        block, first, other_state = 0, 0, False
        with ExitStack() as stack:
            try:
                seat = self._source.copy(stack, lambda tree: _without(tree, paths))
                for block, (action, (frames, look)) in enumerate(zip(self._actions, self._expected, strict=True), 1):
                    shown, now = seat.step(action), seat.look()
                    if shown != frames and not first:
                        first = block
                    other_state = other_state or _differs(now, look, paths)
            except Poisoned as error:  # an engine may fail in any way; that it does is the finding
                return Outcome.LOUD, block, str(error.facts.get("fault", error.sentence))[:200]
            except WorldlineError as error:
                return (Outcome.LOUD if block else Outcome.REFUSED), block, error.sentence[:200]
        if first:
            return (Outcome.DIVERGES if other_state else Outcome.PICTURE), first, ""
        return (Outcome.HIDDEN if other_state else Outcome.UNREAD), 0, ""


def _without(tree, paths: Sequence[str]):  # type: ignore[no-untyped-def]  # trees of any shape
    for path in paths:
        tree = left_out(tree, path)
    return tree


def _differs(now: Look, expected: Look, paths: Sequence[str]) -> bool:
    """Whether the state differs in anything but what was left out."""
    own = tuple(paths)
    names = now.parts.keys() | expected.parts.keys()
    return any(
        now.parts.get(name) != expected.parts.get(name)
        for name in names
        if not any(name == path or name.startswith(f"{path}/") for path in own)
    )


def text(found: Inventory) -> str:
    """A line a family."""
    lines = [f"{found.world}, copied after block {found.cut}, {found.blocks} blocks on, with a part left out"]
    if not found.whole:
        lines.append("THE WHOLE STATE DOES NOT GO ON BIT FOR BIT: what follows says nothing")
    for loss in (*found.families, *found.entries):
        when = f" at block {loss.first_block}" if loss.first_block else ""
        said = f": {loss.said}" if loss.said else ""
        lines.append(f"{loss.name:<28}{loss.kind:<9}{loss.outcome}{when}{said}")
    return "\n".join(lines)


def report(found: Inventory) -> Report:
    """A row a family, and one an entry."""
    run, measured = "inventory", Standing.MEASURED
    columns = tuple(
        Column(title, key, measured)
        for title, key in (
            ("left out", "name"), ("kind", "kind"), ("entries", "entries"), ("bytes", "nbytes"),
            ("what breaks", "outcome"), ("first at block", "first_block"), ("said", "said"),
        )
    )  # fmt: skip
    said = f"World {{{run}/world}}, copied after block {{{run}/cut}}; {{{run}/blocks}} blocks beside the whole session."
    steps = tuple(str(outcome) for outcome in Outcome)
    loudness = ladder(("loudness", "What breaks without each family, from loud to silent (measured)"),
                      f"{run}/families", "outcome", steps, "first_block")  # fmt: skip
    parts = (Words(said), Listing("Families", f"{run}/families", columns), loudness)
    more = (Section("Entries", (Listing("Each alone", f"{run}/entries", columns),)),) if found.entries else ()
    return Report(run, "What breaks without it", (Section("Left out in turn", parts), *more))


INVENTORY = Experiment(measure, report, text, lambda found: found.whole)
