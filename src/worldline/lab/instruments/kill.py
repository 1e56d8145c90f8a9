"""`lab kill`: what a session loses when its state is reduced on the way, against a twin whose state was not.

Both go on from one boundary under the same actions. The loss is PSNR in dB of the pictures, a block the worst frame. A
handle passes T0 if the state it hands over is equal byte for byte; T1 if no block falls below the bound; else it is
killed, at the first block that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from worldline.errors import BadValue, WorldlineError
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.instruments.drift import Drift, drift_of, drifting
from worldline.lab.instruments.elsewhere import Journey, recomputed
from worldline.lab.instruments.fenced import engine_at_work
from worldline.lab.instruments.figures import curves, levels
from worldline.lab.instruments.handles import (
    LOSSLESS,
    LOSSY,
    Handle,
    State,
    caches_of,
    chance,
    deduplicated,
    difference,
    difference_of,
    made_by,
    norm,
    own,
    perturbed,
    residual,
)
from worldline.lab.instruments.held import put_back, state_of
from worldline.lab.instruments.play import actions_of, checked_count, checked_decibels, world_of
from worldline.lab.psnr import EQUAL_DB, psnr_db
from worldline.lab.report import Column, Listing, Report, Section, Standing, Words
from worldline.worlds.options import options_of
from worldline.worlds.protocol import Tree, World
from worldline.worlds.seat import Seat

SMALL = 1e-3
"""Size of a perturbation, of the state's norm."""
LAST_BIT = 1e-7
"""About what another order of float32 sums changes: the baseline, which needs no move."""
NEAR = 0.1
BREED_BLOCKS = 8
DIRECTIONS = 4
REPLAY_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class Death:
    """What one handle cost."""

    name: str
    kind: str
    """lossless, lossy, escape, perturbation, baseline or own."""
    equal_bytes: bool
    """The state handed over was the source's, byte for byte."""
    state_error: float
    """Norm of what it changed in the caches, over the state's."""
    psnr_db: list[float]
    """A block, its worst frame; `EQUAL_DB` (100) stands for infinity."""
    psnr_db_min: float
    psnr_db_last: float
    infinite: bool
    """All pictures were equal."""
    first_below: int
    """The first block below the bound, from 1; 0: none."""
    verdict: str


@dataclass(frozen=True, slots=True)
class Kill:
    """What `--json` prints."""

    world: str
    option: list[str]
    cut: int
    blocks: int
    bound_db: float
    drift: Drift
    """Of the twin, which nothing was done to."""
    handles: list[Death]
    lossless_pass: bool
    """Identity and every codec: equal bytes and equal pictures. Else the harness can't say yes, and nothing counts."""


def measure(  # noqa: PLR0913 - options given by name
    trial: Trial,
    *,
    world: str = "reference",
    option: tuple[str, ...] = (),
    handle: tuple[str, ...] = (),
    predictor: tuple[str, ...] = (),
    cut: int = 12,
    blocks: int = 60,
    bound_db: float = 35.0,
    seed: int = 0,
) -> Kill:
    """Reduces a session's state in every known way, and measures what its pictures lose.

    Parameters
    ----------
    trial: Trial
        The run.
    world: str
        Any world that shows pictures.
    option: str
        An option of the world, as name=value; may be repeated.
    handle: str
        A built-in name, or MODULE:FUNCTION from state to state; may be repeated. Without any, all that are built in.
    predictor: str
        MODULE:FUNCTION from the state a block before to a guess at this one: what it does not explain is handed over
        quantised to four bits. May be repeated.
    cut: int
        The block after which the state is handed over.
    blocks: int
        To go on for.
    bound_db: float
        What a contract of tier T1 would ask of the pictures.
    seed: int
        Of the world and of the player's actions.
    """
    checked_decibels("bound_db", bound_db)
    built = world_of(world, option)
    if built.readout.kind != "image":
        raise BadValue(f"world {world} shows no pictures, and a loss is told in dB of pictures")
    actions = actions_of(built, seed, checked_count("cut", cut, REPLAY_BLOCKS + 1) + checked_count("blocks", blocks, 1))
    deaths = []
    with ExitStack() as stack:
        harness = Harness(built, actions, cut, seed, stack)
        journey = Journey(world, options_of(option), seed, actions, cut)
        elsewhere = {"recompute elsewhere": ("escape", lambda state: recomputed(trial.folder, journey, state))}
        chosen = harness.handles(handle, elsewhere) if handle or not predictor else {}
        for name, (kind, reduce) in (chosen | harness.predicted(predictor)).items():
            with ExitStack() as own_stack:
                deaths.append(harness.run(name, kind, reduce, bound_db, own_stack))
            trial.telemetry.check()
            trial.say(f"{name}: {deaths[-1].verdict}")
    passed = all(each.equal_bytes and each.infinite for each in deaths if each.kind == "lossless")
    return Kill(world, list(option), cut, blocks, bound_db, drift_of(harness.twin), deaths, passed)


class Harness:
    """One session at its cut, its twin's pictures, and copies of it that go on from a reduced state."""

    def __init__(self, world: World, actions: Sequence[int], cut: int, seed: int, stack: ExitStack) -> None:
        self._world, self._actions, self._seed, self._cut = world, actions, seed, cut
        self._source = Seat.open(world, seed, stack)
        self.before: State = {}
        for number, action in enumerate(actions[:cut], 1):
            self._source.step(action)
            if number == cut - 1:
                self.before = state_of(self._source)
        self.state = state_of(self._source)
        with ExitStack() as own_stack:
            self.twin = self._pictures(self._source.copy(own_stack), actions[cut:])

    def handles(self, names: Sequence[str], more: Mapping[str, tuple[str, Handle]]) -> dict[str, tuple[str, Handle]]:
        """Those of `names`, or all that are built in and `more`, each with its kind. Raises `BadValue`."""
        known: dict[str, tuple[str, Handle]] = {name: ("lossless", each) for name, each in LOSSLESS.items()}
        known |= {name: ("lossy", each) for name, each in LOSSY.items()}
        known |= {"partial state": ("escape", LOSSY["partial state"])}
        other = self._other()
        known |= {
            "dedup, equal rows": ("lossy", deduplicated(other, 0.0)),
            "dedup, near rows": ("lossy", deduplicated(other, NEAR)),
            "learned residual (stub)": ("lossy", residual(self.before)),
            "recompute, last blocks": ("escape", self._with_caches_replayed),
            "recompute, all blocks": ("escape", lambda _: self._replayed(self._cut)),
            **more,
        }
        wanted = [name for name in names if name in known] if names else list(known)
        found = {name: known[name] for name in wanted} | {n: ("own", own(n)) for n in names if n not in known}
        return found if names else found | self._directions()

    def predicted(self, names: Sequence[str]) -> dict[str, tuple[str, Handle]]:
        """A residual behind each predictor. Raises `BadValue`."""
        guesses = {name: made_by(name, own(name), self.before) for name in names}
        return {f"residual behind {name}": ("own", residual(guess)) for name, guess in guesses.items()}

    def run(self, name: str, kind: str, reduce: Handle, bound_db: float, stack: ExitStack) -> Death:
        """Goes on from what `reduce` makes of the state. Raises `BadValue` for a handle that makes no state of it."""
        made = made_by(name, reduce, self.state)
        decibels: list[float] = []
        equal, stopped = False, ""
        try:
            seat = self._source.copy(stack, lambda tree: _taken(tree, made))
            equal = seat.look().root == self._source.look().root
            for action, theirs in zip(self._actions[self._cut :], self.twin, strict=True):
                decibels.append(_worst_db(seat.live.step(action), theirs))
        except WorldlineError as error:  # an engine may refuse what it was given in any way
            stopped = f"the engine stops at block {len(decibels) + 1}: {error.facts.get('fault', error.sentence)}"
            decibels += [0.0] * (len(self.twin) - len(decibels))
        below = next((number for number, db in enumerate(decibels, 1) if db < bound_db), 0)
        verdict = "passes T0: equal bytes" if equal else f"killed at block {below}" if below else "within the T1 bound"
        error_share = norm(difference_of(made, self.state)) / (norm(self.state) or 1.0)
        rounded = [round(db, 3) for db in decibels]
        infinite = min(decibels) >= EQUAL_DB
        verdict = stopped or verdict
        return Death(name, kind, equal, error_share, rounded, min(rounded), rounded[-1], infinite, below, verdict)

    def _pictures(self, seat: Seat, actions: Sequence[int]) -> list[np.ndarray]:
        return [seat.live.step(action).copy() for action in actions]

    def _other(self) -> State:
        """Of another session of this world, as old."""
        with ExitStack() as stack:
            seat = Seat.open(self._world, self._seed + 1, stack)
            for action in self._actions[: self._cut]:
                seat.step(action)
            return state_of(seat)

    def _replayed(self, blocks: int) -> State:
        """The session opened anew, and only its last `blocks` actions played again."""
        with ExitStack() as stack:
            seat = Seat.open(self._world, self._seed, stack)
            for action in self._actions[self._cut - blocks : self._cut]:
                seat.step(action)
            return state_of(seat)

    def _with_caches_replayed(self, state: State) -> State:
        """What grew since the session began is shorter when only its last blocks are played: it stays at its start."""
        for path, tensor in caches_of(self._replayed(REPLAY_BLOCKS)).items():
            if path in state:
                both = tuple(slice(min(sizes)) for sizes in zip(tensor.shape, state[path].shape, strict=True))
                state[path].zero_()[both] = tensor[both]
        return state

    def _directions(self) -> dict[str, tuple[str, Handle]]:
        """Along which a small error grows most and least, which no picture shows at first, and the last bits."""
        grown = {number: self._growth(chance(self.state, number)) for number in range(DIRECTIONS)}
        least = min(grown, key=lambda number: grown[number][0])
        _, bred = max(grown.values(), key=lambda found: found[0])
        at_random = chance(self.state, DIRECTIONS)
        held = {path: tensor.shape for path, tensor in self.state.items()}
        bred = {path: tensor for path, tensor in bred.items() if tensor.shape == held.get(path)}  # some entries grow
        if not norm(bred):  # every small error died out within the blocks: none grows, and any is as good
            bred = at_random
        hidden = SMALL
        while hidden > LAST_BIT and not self._shows_nothing(perturbed(at_random, hidden)):
            hidden /= 2
        return {
            "along the unstable direction": ("perturbation", perturbed(bred, SMALL)),
            "along the stablest direction": ("perturbation", perturbed(chance(self.state, least), SMALL)),
            f"hidden from the picture ({hidden:.1e})": ("perturbation", perturbed(at_random, hidden)),
            "drift of the last bits, no move": ("baseline", perturbed(at_random, LAST_BIT)),
        }

    def _growth(self, direction: State) -> tuple[float, State]:
        """How much an error along `direction` grows in a few blocks, and the direction that it is bred to."""
        actions = self._actions[self._cut : self._cut + BREED_BLOCKS]
        with ExitStack() as stack:
            pushed = {path: tensor.clone() for path, tensor in self.state.items()}
            pushed = perturbed(direction, SMALL)(pushed)
            one = self._source.copy(stack, lambda tree: put_back(tree, pushed))
            other = self._source.copy(stack)
            for action in actions:
                one.step(action)
                other.step(action)
            ours, theirs = state_of(one), state_of(other)
            return norm(difference_of(ours, theirs)), difference(ours, theirs)

    def _shows_nothing(self, reduce: Handle) -> bool:
        made = made_by("hidden", reduce, self.state)
        with ExitStack() as stack:
            seat = self._source.copy(stack, lambda tree: put_back(tree, made))
            (shown,) = self._pictures(seat, self._actions[self._cut : self._cut + 1])
        return bool(np.array_equal(shown, self.twin[0]))


def _taken(tree: Tree, state: State) -> Tree:
    """`put_back`; that a generator has no such state is the engine's to say."""
    with engine_at_work("to take the state"):
        return put_back(tree, state)


def _worst_db(ours: np.ndarray, theirs: np.ndarray) -> float:
    return min(psnr_db(one, other) for one, other in zip(ours, theirs, strict=True))


def text(found: Kill) -> str:
    """A line a handle."""
    lines = [f"{found.world}, handed over after block {found.cut}, {found.blocks} on; bound {found.bound_db:g} dB"]
    lines.append(f"{'handle':<36}{'kind':<14}{'state error':>12}{'worst dB':>10}{'last dB':>9}  verdict")
    for each in found.handles:
        worst, last = ("inf" if db >= EQUAL_DB else f"{db:.1f}" for db in (each.psnr_db_min, each.psnr_db_last))
        lines.append(f"{each.name:<36}{each.kind:<14}{each.state_error:>12.2e}{worst:>10}{last:>9}  {each.verdict}")
    lines.append(f"the twin by itself, from the first block to the last ones: {found.drift}")
    if not found.lossless_pass:
        lines.append("A LOSSLESS HANDLE DID NOT PASS: the harness can't say yes, and nothing here counts")
    return "\n".join(lines)


def report(found: Kill) -> Report:
    """A row a handle; the curves."""
    run, measured = "kill", Standing.MEASURED
    columns = tuple(
        Column(title, key, measured)
        for title, key in (
            ("handle", "name"), ("kind", "kind"), ("equal bytes", "equal_bytes"), ("state error", "state_error"),
            ("worst, dB", "psnr_db_min"), ("last, dB", "psnr_db_last"), ("first below", "first_below"),
            ("verdict", "verdict"),
        )
    )  # fmt: skip
    said = (
        f"World {{{run}/world}}, after block {{{run}/cut}}, for {{{run}/blocks}} blocks; bound {{{run}/bound_db}} dB."
    )
    worst = levels(("worst", "Worst block of each handle"), f"{run}/handles", "psnr_db_min", f"{run}/bound_db")
    lines = curves(("over-time", "Loss over blocks"), f"{run}/handles", "psnr_db", "PSNR, dB (measured)",
                   f"{run}/bound_db")  # fmt: skip
    parts = (Words(said), Listing("Handles", f"{run}/handles", columns), lines, worst)
    baseline = Section("The twin by itself, without any move", (drifting(f"{run}/drift"),))
    return Report(run, "What a reduced state costs", (Section("Against the twin", parts), baseline))


KILL = Experiment(measure, report, text, lambda found: found.lossless_pass)
