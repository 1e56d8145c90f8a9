r"""Conformance of a world: what an adapter must do so that its sessions can be moved, each failure with its remedy.

    findings = check_world(MyWorld({}))
    assert not findings, "\n".join(map(str, findings))

`WORLD_CHECKS` names the checks, for one test each (tests/conformance/test_worlds.py). A check runs real sessions in
real arenas; choose options that make a block cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch

from worldline.errors import BadValue, LayoutRefused
from worldline.schema.inventory import Kind
from worldline.snapshot.walk import Rules
from worldline.testing.causes import Cause
from worldline.testing.global_chance import global_state, seed_globals
from worldline.testing.write_rules import broken, kept
from worldline.worlds.protocol import World
from worldline.worlds.scratch import Leaf
from worldline.worlds.seat import Look, Seat, is_empty, left_out
from worldline.worlds.told import FAULTS, told

SEED = 7
NO_ACTION = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and how to mend it."""

    check: str
    cause: Cause
    sentence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.check}: {self.sentence}\n    To mend it: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Trial:
    """One check's world and sessions, closed after it. `blocks` are played; sessions are copied in the middle."""

    world: World
    blocks: int
    entries_max: int
    stack: ExitStack

    @property
    def actions(self) -> Sequence[int]:
        """An action a block, over all of them in turn."""
        count = max(1, len(self.world.actions))
        return [(2 * block + 1) % count for block in range(self.blocks)]

    def open(self, seed: int = SEED) -> Seat:
        return Seat.open(self.world, seed, self.stack)

    def equal_at_open(self) -> bool:
        """Whether two sessions of one seed are equal before they have played. If not, `equal-seeds` tells it, and what
        is seen by comparing two sessions proves nothing else.
        """
        return self.open().look().root == self.open().look().root

    def at_block(self, block: int) -> Seat:
        """A new session that has played so many blocks."""
        seat = self.open()
        for action in self.actions[:block]:
            seat.step(action)
        return seat


Check = Callable[[Trial], Iterator[Finding]]


def check_world(world: World, blocks: int = 6, checks: Sequence[str] = (), entries_max: int = 200) -> list[Finding]:
    """Everything that is wrong with `world`, by the checks named or all of them. Empty: it conforms.

    `blocks` should be enough for its windows to fill and roll. Where a state has more than `entries_max` entries, that
    many of them, evenly spread, are left out in turn.
    """
    findings: list[Finding] = []
    for name in checks or WORLD_CHECKS:
        with ExitStack() as stack:
            trial = Trial(world, blocks, entries_max, stack)
            try:
                findings.extend(WORLD_CHECKS[name](trial))
            except LayoutRefused as error:
                findings.append(
                    Finding(
                        name, Cause.NOT_LAID_OUT, error.sentence, "lay the state out without it; see worlds/protocol.py"
                    )
                )
            except FAULTS as error:  # an adapter under test may raise anything; it is what is reported
                findings.append(Finding(name, Cause.ENGINE_FAILED, told(error), "the engine must not fail here"))
    return findings


def _equal_seeds(trial: Trial) -> Iterator[Finding]:
    """Two sessions of one seed show and hold the same bytes, block after block."""
    remedy = (
        "draw from the session's own generator only, leave unwritten memory out by `Partial`, use deterministic kernels"
    )
    one, two = trial.open(), trial.open()
    for block, action in enumerate(trial.actions):
        a, b = one.look(), two.look()
        if a.root != b.root:
            yield Finding(
                "equal-seeds",
                Cause.UNWRITTEN_MEMORY,
                f"after {block} blocks the states differ in {a.differences(b)}",
                remedy,
            )
            return
        if one.step(action) != two.step(action):
            yield Finding("equal-seeds", Cause.UNWRITTEN_MEMORY, f"block {block + 1} shows different frames", remedy)
            return


def _seeds_differ(trial: Trial) -> Iterator[Finding]:
    """Another seed is another session."""
    one, two = trial.open(SEED), trial.open(SEED + 1)
    if all(one.step(action) == two.step(action) for action in trial.actions):
        yield Finding(
            "seeds-differ",
            Cause.SEED_IGNORED,
            f"seeds {SEED} and {SEED + 1} show the same {trial.blocks} blocks",
            "seed the session's generator in `open` and let it reach the frames",
        )


def _restore(trial: Trial) -> Iterator[Finding]:
    """A session restored in other memory goes on bit for bit, from the first boundary as from any. The first boundary
    at which it does not is told.
    """
    for cut in sorted({0, 1, trial.blocks // 2, trial.blocks - 1}):
        source = trial.at_block(cut)
        before = source.look()
        target = source.copy(trial.stack)
        after = target.look()
        parted = source.aliases() - target.aliases()
        if parted:
            yield Finding(
                "restore",
                Cause.ALIAS_LOST,
                f"restored at block {cut}, {' and '.join(map(repr, min(map(sorted, parted))))} are no longer over one"
                " memory",
                "in `restore`, bind each tensor of the tree as it is: none of them cloned, none made contiguous",
            )
            return
        if before.root != after.root:
            yield Finding(
                "restore",
                Cause.RESTORE_CHANGED,
                f"restored at block {cut}, the state differs at once in {before.differences(after)}",
                "in `restore`, bind or copy what the tree holds and draw nothing from its generators",
            )
            return
        parting = next(_goes_on(source, target, trial.actions[cut:], cut), None)
        if parting is not None:
            yield parting
            return


def _goes_on(source: Seat, target: Seat, actions: Sequence[int], cut: int) -> Iterator[Finding]:
    for action in actions:
        shown, expected = target.step(action), source.step(action)
        before, after = source.look(), target.look()
        if shown != expected or before.root != after.root:
            what = before.differences(after) or "nothing but the frames"
            yield Finding(
                "restore",
                Cause.LEFT_OUT,
                f"restored at block {cut}, block {target.block} is another one; its state differs in {what}",
                "`state()` must hold all that the next block reads, also what lives on the module, and tensors over one"
                " storage must be used as such after `restore`",
            )
            return


def _pointers(trial: Trial) -> Iterator[Finding]:
    """What was allocated from the session's memory stays where it is."""
    seat = trial.open()
    given = seat.resident()
    for action in trial.actions:
        seat.step(action)
        moved = sorted(given - seat.resident())
        if moved:
            yield Finding(
                "pointers",
                Cause.POINTER_MOVED,
                f"{moved[0]!r} was allocated from the session's memory, and block {seat.block} bound it elsewhere",
                "write into it (`copy_`, slices), or allocate it as an ordinary tensor and declare `Realloc`",
            )
            return


def _nothing_left_out(trial: Trial) -> Iterator[Finding]:
    """Each entry matters: without it `restore` refuses, or what comes next is different."""
    cut = trial.blocks // 2
    source = trial.at_block(cut)
    rules = Rules(source.live.rules)
    paths = [path for path, leaf in source.leaves() if not is_empty(leaf)]
    paths = paths[:: -(-len(paths) // trial.entries_max)]
    whole = source.copy(trial.stack)
    expected = [whole.step(action) for action in trial.actions[cut:]]
    for path in paths:
        with ExitStack() as stack:
            if (
                _unnoticed(source, path, trial.actions[cut:], expected, stack)
                and rules.of(path).kind is not Kind.HORIZON
            ):
                yield Finding(
                    "nothing-left-out",
                    Cause.IDLE_ENTRY,
                    f"without {path!r} the next {len(expected)} blocks are the same",
                    "what can be rebuilt is DERIVED, what is read much later HORIZON; what is never read is not state",
                )


def _unnoticed(source: Seat, path: str, actions: Sequence[int], expected: list[bytes], stack: ExitStack) -> bool:
    try:
        target = source.copy(stack, lambda tree: left_out(tree, path))
        return [target.step(action) for action in actions] == expected
    except FAULTS:  # however the engine objects to a missing entry, it has noticed
        return False


def _private_chance(trial: Trial) -> Iterator[Finding]:
    """The process's random generators are neither read nor written, by any verb."""
    remedy = "give the session a generator of its own, pass it to every draw, and fork the global one around libraries"
    expected = trial.open()
    seed_globals(1)
    before = global_state()
    seat = trial.open()
    for block, action in enumerate(trial.actions):
        halfway = block == trial.blocks // 2
        if halfway:
            seat = seat.copy(trial.stack)
        if global_state() != before:
            sentence = "`open` or `restore` wrote the process's random state"
            yield Finding("private-chance", Cause.GLOBAL_CHANCE, sentence, remedy)
            return
        shown = seat.step(action)
        if global_state() != before:
            sentence = f"block {block + 1} wrote the process's random state"
            yield Finding("private-chance", Cause.GLOBAL_CHANCE, sentence, remedy)
            return
        seed_globals(1000 + block)
        if halfway:
            expected = expected.copy(trial.stack)
        if shown != expected.step(action):
            if _alike_under_one_chance(trial):
                sentence = f"block {block + 1} depends on the process's random state"
                yield Finding("private-chance", Cause.GLOBAL_CHANCE, sentence, remedy)
            return
        seed_globals(block + 2)
        before = global_state()


def _alike_under_one_chance(trial: Trial) -> bool:
    """Whether two sessions are equal as long as each step finds the global generators in the same state."""
    one, two = trial.open(), trial.open()
    for block, action in enumerate(trial.actions):
        if block == trial.blocks // 2:
            one, two = one.copy(trial.stack), two.copy(trial.stack)
        seed_globals(block)
        shown = one.step(action)
        seed_globals(block)
        if two.step(action) != shown:
            return False
    return True


def _looking_changes_nothing(trial: Trial) -> Iterator[Finding]:
    """A session whose state is read at each boundary, twice, plays as one whose state is never read."""
    seen, unseen = trial.open(), trial.open()
    for block, action in enumerate(trial.actions):
        if seen.look().root != seen.look().root:
            yield Finding(
                "looking",
                Cause.LOOKING_WRITES,
                f"after {block} blocks two looks at the state differ",
                "`state()` must not change or draw anything",
            )
            return
        if seen.step(action) != unseen.step(action) and trial.equal_at_open():
            yield Finding(
                "looking",
                Cause.LOOKING_WRITES,
                f"block {block + 1} depends on whether the state was read",
                "`state()` must have no effect",
            )
            return


def _write_rules(trial: Trial) -> Iterator[Finding]:
    """Blocks write what the rules say and no more."""
    seat = trial.open()
    rules = Rules(seat.live.rules)
    before: dict[str, Leaf] = {path: kept(leaf) for path, leaf in seat.leaves()}
    writes = dict.fromkeys(before, 0)
    accused: set[str] = set()
    for action in trial.actions:
        seat.step(action)
        after = {path: kept(leaf) for path, leaf in seat.leaves()}
        for path in after.keys() & before.keys() - accused:
            what = broken(rules.of(path), before[path], after[path], writes[path])
            writes[path] += what is not None or _changed(before[path], after[path])
            if what is not None:
                accused.add(path)
                yield Finding(
                    "write-rules",
                    Cause.UNDECLARED_WRITE,
                    f"{path!r} {what} in block {seat.block}; its rule is {rules.of(path).write}",
                    "declare how it is really written; `Free` promises nothing",
                )
        before = after
        writes = {path: writes.get(path, 0) for path in after}


def _changed(before: Leaf, after: Leaf) -> bool:
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        return before.shape != after.shape or not torch.equal(before, after)
    return before is not after and before != after


def _sessions_apart(trial: Trial) -> Iterator[Finding]:
    """Two sessions of one world, stepped in turn, are what each is alone."""
    if not trial.equal_at_open():
        return
    alone = trial.open()
    frames = []
    for block, action in enumerate(trial.actions):
        seed_globals(block)  # what two sessions share by the global generators is another check's to find
        frames.append(alone.step(action))
    one, two = trial.open(), trial.open(SEED + 1)
    for block, action in enumerate(trial.actions):
        two.step(trial.actions[-1 - block])
        seed_globals(block)
        if one.step(action) != frames[block]:
            yield Finding(
                "sessions-apart",
                Cause.SHARED_STATE,
                f"block {block + 1} is another one where a second session plays on the same world",
                "state on the module is a session's: keep it there and put it in place for each step, under a lock",
            )
            return


def _within_bound(trial: Trial) -> Iterator[Finding]:
    """No state is larger than `state_bytes_max`."""
    seat = trial.open()
    largest = seat.look().nbytes
    for action in trial.actions:
        seat.step(action)
        largest = max(largest, seat.look().nbytes)
    if largest > trial.world.state_bytes_max:
        yield Finding(
            "within-bound",
            Cause.BOUND_EXCEEDED,
            f"the state took {largest} bytes, more than state_bytes_max = {trial.world.state_bytes_max}",
            "state_bytes_max must bound every state a session can come to: arenas are made by it",
        )


def _readout(trial: Trial) -> Iterator[Finding]:
    """Frames are what `readout` declares, and stay what they were."""
    declared, seat = trial.world.readout, trial.open()
    first = seat.live.step(trial.actions[0])
    copy = first.copy()
    image = (declared.frames_per_block, declared.height, declared.width, 3)
    fits = first.shape == image if declared.kind == "image" else first.ndim == 1
    if first.dtype != np.uint8 or not fits:
        yield Finding(
            "readout",
            Cause.READOUT_WRONG,
            f"a block is {first.dtype} {first.shape}, not as declared: {declared}",
            "make them agree",
        )
        return
    for action in trial.actions[1:]:
        frames = seat.live.step(action)
        if declared.kind == "text":
            frames.tobytes().decode()
    if not np.array_equal(first, copy):
        yield Finding(
            "readout",
            Cause.READOUT_WRONG,
            "a later block wrote over the first one's frames",
            "return an array of the block's own",
        )


def _wrong_actions(trial: Trial) -> Iterator[Finding]:
    """An action that does not exist is refused before anything has changed."""
    seat = trial.open()
    before: Look = seat.look()
    remedy = "raise BadValue for an action outside the range, first thing in `step`"
    try:
        seat.live.step(NO_ACTION)
    except BadValue:
        after = seat.look()
        if before.root != after.root:
            yield Finding(
                "wrong-actions", Cause.ACTION_TAKEN, f"a refused action changed {before.differences(after)}", remedy
            )
    except FAULTS as error:  # any other error is the finding
        yield Finding(
            "wrong-actions",
            Cause.ACTION_TAKEN,
            f"action {NO_ACTION} raised {type(error).__name__}, not BadValue",
            remedy,
        )
    else:
        yield Finding("wrong-actions", Cause.ACTION_TAKEN, f"action {NO_ACTION} was taken", remedy)


def _facts(trial: Trial) -> Iterator[Finding]:
    """The world tells what decides its bits, the same each time it is asked."""
    facts = trial.world.facts()
    strangers = [name for name, value in facts.items() if not isinstance(value, str)]  # type: ignore[redundant-expr]
    if strangers:
        yield Finding("facts", Cause.FACTS_WRONG, f"the fact {strangers[0]!r} is not text", "write each fact as text")
    if not any("weights" in name for name in facts) or dict(trial.world.facts()) != dict(facts):
        yield Finding(
            "facts",
            Cause.FACTS_WRONG,
            "no fact names the weights, or facts change",
            "give a digest of the weights, taken once",
        )


WORLD_CHECKS: Mapping[str, Check] = {
    "equal-seeds": _equal_seeds,
    "seeds-differ": _seeds_differ,
    "restore": _restore,
    "nothing-left-out": _nothing_left_out,
    "private-chance": _private_chance,
    "pointers": _pointers,
    "looking": _looking_changes_nothing,
    "write-rules": _write_rules,
    "sessions-apart": _sessions_apart,
    "within-bound": _within_bound,
    "readout": _readout,
    "wrong-actions": _wrong_actions,
    "facts": _facts,
}
"""Every check by its name."""
