"""One session's engine side: the live world, its arena, and the state between two blocks as a fingerprinted cut.

Everything here is called from the session's own engine thread, one call at a time, and only at block boundaries;
nothing here knows of peers, moves or owners. An exception out of `step` leaves the state inside a block: the caller
must never capture it after that.
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from worldline.clock import Clock
from worldline.errors import BadValue, Corrupt, Internal, LayoutRefused, NoCapacity
from worldline.migration.leaves import Leaves
from worldline.runtime.frames import Shown, show
from worldline.runtime.host_handover import HandedOver
from worldline.runtime.host_readings import Readings, leaves_at_rest, without_written
from worldline.schema.inventory import rules_under
from worldline.schema.layout import Extent, Manifest
from worldline.snapshot.arena import Arena
from worldline.snapshot.gather import Gatherer
from worldline.snapshot.memory import ArenaMemory
from worldline.snapshot.rebuild import rebuild
from worldline.units import format_bytes
from worldline.verify.digests import layout_digest, root
from worldline.verify.lanes import Lanes
from worldline.verify.row_digests import row_digests
from worldline.worlds.protocol import Announces, LiveWorld, Partial, Tree, World

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a session is in its input and output. It is state: it moves with the rest and is part of the root."""

    block: int = 0
    number: int = 0
    """Last action number applied."""
    frame: int = 0
    """Frames shown so far, so the number of the next one."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The state at one boundary: where its bytes lie, what they are, and when the engine reached it (monotonic)."""

    manifest: Manifest
    digests: tuple[bytes, ...]
    layout: bytes
    root: bytes
    number: int
    at_s: float


class Read(Enum):
    """How much of a state a survey reads."""

    ALL = "all"
    """Whatever is not known by the watch."""
    DOUBTFUL = "doubtful"
    """Nothing where there is a watch: what it does not know is taken to be rewritten. All where there is none."""
    ROLLING = "rolling"
    """What is declared to roll, or says nothing of its rows."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a survey. `withdraw`: from it on nothing in this process writes the arena, until `go_on`."""

    read: Read
    withdraw: bool
    rows: bool = False
    """Also what rows hold, of views that say nothing of how they are written."""


@dataclass(frozen=True, slots=True)
class Proven:
    """A state as it was verified where it lies in this process: `leaves` and their `digests` by manifest order."""

    manifest: Manifest
    leaves: Leaves
    digests: tuple[bytes, ...]
    root: bytes


@dataclass(frozen=True, slots=True)
class Survey:
    """The state at one boundary, read as far as its caller asked: `digests` has None for what was not."""

    manifest: Manifest
    digests: tuple[bytes | None, ...]
    layout: bytes
    number: int
    at_s: float
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def text_leaves(self) -> int:
        """The first so many leaves are the tree's text."""
        layout = self.manifest.layout
        return -(-layout.segments[0].nbytes // layout.leaf_bytes)

    @property
    def root(self) -> bytes | None:
        """None where something is unread."""
        digests = [digest for digest in self.digests if digest is not None]
        return root(self.layout, digests) if len(digests) == len(self.digests) else None


@dataclass(frozen=True, slots=True)
class Made:
    """One generated block."""

    block: int
    number: int
    frame: int
    shown: Shown
    root: str | None
    step_s: float


class Engine:
    """A live world bound to its arena. Made by `open` and `install`."""

    def __init__(
        self,
        world: World,
        live: LiveWorld,
        gatherer: Gatherer,
        position: Position,
        clock: Clock,
        lanes: Lanes | None = None,
    ) -> None:
        self._world = world
        self._live: LiveWorld | None = live
        self._gatherer = gatherer
        self.clock = clock
        self._rules = rules_under("world", live.rules)
        self._reached_at_s = clock.monotonic_s()
        self._readings = Readings(gatherer.arena, lanes)
        self._lets_go_on = False
        """Nobody asks for surveys any more; heard by the engine's thread when it comes by."""
        if isinstance(live, Announces):
            live.written = self._written
        self.position = position
        self.state_bytes = 0
        """As of the last capture."""

    @classmethod
    def open(cls, world: World, seed: int, arena: Arena, clock: Clock, lanes: Lanes | None = None) -> Engine:
        """A new session at block 0. Raises `LayoutRefused` for a world whose state can't be described exactly."""
        memory = ArenaMemory(arena)
        engine = cls(world, world.open(seed, memory), Gatherer(memory), Position(), clock, lanes)
        engine._capture()
        return engine

    @classmethod
    def install(cls, world: World, proven: Proven, arena: Arena, clock: Clock, lanes: Lanes | None = None) -> Engine:
        """The session whose proven bytes lie in `arena`, ready for its next block.

        What the world took over is captured again and must have the proven root: an importer that drops or changes
        something raises `Corrupt` or `LayoutRefused`, before the session has made a block.
        """
        rebuilt = rebuild(proven.manifest, arena)
        position = _read_position(rebuilt.tree, proven.manifest)
        assert isinstance(rebuilt.tree, dict)
        live = world.restore(rebuilt.tree["world"], rebuilt.memory)
        engine = cls(world, live, rebuilt.gatherer, position, clock, lanes)
        engine.refuse_change(proven)
        return engine

    def refuse_change(self, proven: Proven) -> None:
        """Raises `LayoutRefused` or `Corrupt` unless the state, captured anew where it lies, is the proven one.

        Where nobody but this process can write the arena, and it says which pages it wrote, the other leaves are what
        the proof read and are not read again. Everywhere else all of it is.
        """
        manifest = self._capture()
        if manifest.layout != proven.manifest.layout:
            raise LayoutRefused("the world took over a state of another layout than the one that was verified")
        written = self.arena.written_here() if isinstance(self.arena, HandedOver) else None
        digests: Sequence[bytes | None] = [None] * len(proven.digests)
        leaves = self._readings.leaves_at(manifest, proven.leaves)
        if written is not None and leaves is proven.leaves:
            digests = without_written(leaves, proven.digests, written)
        if root(layout_digest(manifest.layout), self._readings.read(manifest, digests)) != proven.root:
            raise Corrupt("the world's state after the installation is not the state that was verified")

    @property
    def arena(self) -> Arena:
        return self._gatherer.arena

    def step(self, number: int, action: int, witness: bool) -> Made:
        """Generates the next block from action `number`."""
        # Only the engine's thread moves the arena: a move may be called off while this thread withdraws it for a cut.
        self.arena.give_back()
        self._hear()
        self._readings.begin_block()
        began_s = self.clock.monotonic_s()
        shown = show(self._world_now.step(action), self._world.readout)
        ended_s = self.clock.monotonic_s()
        self._readings.end_block()
        self._refuse_foreign()
        before = self.position
        self.position = Position(before.block + 1, number, before.frame + shown.frames)
        self._reached_at_s = ended_s
        return Made(
            block=self.position.block,
            number=number,
            frame=before.frame,
            shown=shown,
            root=self.cut().root.hex() if witness else None,
            step_s=ended_s - began_s,
        )

    def cut(self) -> Cut:
        """The state as it is now, gathered into the arena and all of it read where it lies."""
        manifest = self._capture()
        layout = layout_digest(manifest.layout)
        digests = self._readings.read(manifest, [None] * manifest.layout.leaf_count)
        return Cut(manifest, digests, layout, root(layout, digests), self.position.number, self._reached_at_s)

    # ---- after a hand-over

    def read_again(self, proven: Proven, early: Iterable[int]) -> None:
        """From now on the arena is this process's alone. The leaves of these numbers were proven before that: they are
        read once more while the first block is made, and no block is shown, and no cut taken, before they have been.
        """
        extents = proven.leaves.extents
        at_rest = leaves_at_rest(proven.manifest)
        order = sorted(early, key=at_rest.__contains__)
        armed = self.arena.armed if isinstance(self.arena, HandedOver) else ()
        self._readings.read_again({extents[number]: proven.digests[number] for number in order}, armed)

    def _refuse_foreign(self) -> None:
        unknown = self._readings.refuse_foreign()
        if unknown:
            log.info("%d leaves were written here before they could be read once more", unknown)

    # ---- while the session is on its way out

    def survey(self, wish: Wish) -> Survey:
        """The state as it is now, its leaves read as `wish` says. Begins to watch what the engine writes.

        What is declared never to be written is believed by nobody: a leaf that is not read here was read before, and
        the kernel saw no write to it since.
        """
        self._hear()
        manifest = self._capture()
        self._readings.settle()
        if wish.withdraw:
            self.arena.withdraw()
        elif not self._readings.watching:
            self._readings.watch()
        digests = self._readings.take(manifest)
        if wish.read is Read.ALL or (wish.read is Read.DOUBTFUL and not self._readings.watching):
            digests = self._readings.read(manifest, digests)
        elif wish.read is Read.ROLLING:
            digests = self._readings.read_rolling(manifest, digests)
        else:
            digests = self._readings.read_first(manifest, digests)
        rows = row_digests(self.arena, manifest) if wish.rows else {}
        return Survey(manifest, digests, layout_digest(manifest.layout), self.position.number, self._reached_at_s, rows)

    def finish(self, survey: Survey) -> Survey:
        """Reads what the survey left unread. The engine has been held since."""
        return replace(survey, digests=self._readings.read(survey.manifest, survey.digests))

    def keep_quiet(self, manifest: Manifest) -> None:
        """The session is to play on, and another survey follows that of `manifest`."""
        self.arena.give_back()
        self._readings.keep_quiet(manifest)

    def tell_final(self, on_final: Callable[[tuple[Extent, ...]], None] | None) -> None:
        """Who is told of leaves that the world says are final until the boundary, from the engine's thread; those
        announced before in the same block are told of with the next ones. From any thread.
        """
        self._readings.on_final = on_final

    def let_go_on(self) -> None:
        """No survey will follow. From any thread; takes effect before the next block."""
        self._lets_go_on = True

    def _written(self, tensor: Any) -> None:
        """The world's word within a block; see `Announces`. Only a hint for what lies in the arena as one piece."""
        if not self._readings.watching or not tensor.is_contiguous():
            return
        offset = tensor.data_ptr() - self.arena.address
        if 0 <= offset <= self.arena.capacity - tensor.nbytes:
            self._readings.announce(Extent(offset, tensor.nbytes))

    def _hear(self) -> None:
        if self._lets_go_on:
            self._lets_go_on = False
            self._readings.unwatch()

    def flip(self, bit: int) -> str:
        """Sabotage: flips one bit of the world's live tensors (bit number modulo their bits). Returns the tensor's
        path.
        """
        before = self.cut()
        paths = [view.path for view in before.manifest.layout.views if _is_flippable(view.path, view.dtype)]
        state = self._world_now.state()
        parts = {path: _valid_part(state, path.split("/")[1:]) for path in paths}
        total = sum(part.bits for part in parts.values())
        if total == 0:
            raise BadValue("this world has no tensor of which a bit could be flipped")
        at = bit % total
        for path, part in parts.items():  # noqa: B007 - the path of the part that was found is the answer
            if at < part.bits:
                part.flip(at)
                break
            at -= part.bits
        if self.cut().root == before.root:
            raise Internal(f"the bit flipped in {path} does not show in the state")
        return path

    def let_go(self) -> None:
        """Drops the live world, and with it every tensor over the arena, and what was known of its leaves: a host
        remembers sessions that it had. Idempotent.
        """
        self._live = None
        self._readings.forget()
        self._gatherer.forget()

    def close(self) -> None:
        """Lets go of the world and unmaps the arena. The memory is freed when nobody else has it mapped."""
        self.let_go()
        self.arena.close()

    @property
    def _world_now(self) -> LiveWorld:
        assert self._live is not None, "the engine has let go of its world"
        return self._live

    def _capture(self) -> Manifest:
        self.arena.give_back()  # as in `step`
        tree: dict[str, Tree] = {
            "position": {"block": self.position.block, "number": self.position.number, "frame": self.position.frame},
            "world": self._world_now.state(),
        }
        self._refuse_foreign()
        manifest = self._gatherer.capture(tree, self._rules, self.position.block)
        self.state_bytes = manifest.layout.nbytes
        if self.state_bytes > self._world.state_bytes_max:
            raise NoCapacity(
                f"the state has grown to {format_bytes(self.state_bytes)}, beyond the "
                f"{format_bytes(self._world.state_bytes_max)} that the world announced"
            )
        return manifest


def _read_position(tree: Tree, manifest: Manifest) -> Position:
    match tree:
        case {"position": {"block": int(block), "number": int(number), "frame": int(frame)}, "world": _}:
            if block != manifest.block:
                raise LayoutRefused(f"the state says block {block} and its manifest {manifest.block}")
            return Position(block, number, frame)
        case _:
            raise LayoutRefused("the state has no position: it was not captured by a host")


# ---- sabotage: below torch, so that this module needs none


def _is_flippable(path: str, dtype: str) -> bool:
    """Tensors of the world: not a generator, parts of whose state are padding, and no bool, which has but one bit."""
    return path.startswith("world/") and dtype not in {"rng", "bool"}


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a live tensor that is state, in elements from `address`."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int

    @property
    def bits(self) -> int:
        return 8 * self.item_bytes * math.prod(self.shape)

    def flip(self, bit: int) -> None:
        """Bit `bit` of the elements in order."""
        element, within = divmod(bit, 8 * self.item_bytes)
        address = self.address + within // 8
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            element, index = divmod(element, size)
            address += index * stride * self.item_bytes
        ctypes.c_uint8.from_address(address).value ^= 1 << within % 8


def _valid_part(tree: Any, path: Sequence[str]) -> _Part:
    for name in path:
        tree = tree[name] if isinstance(tree, dict) else tree[int(name)]
    tensor = tree.tensor if isinstance(tree, Partial) else tree
    shape = list(tensor.shape)
    if isinstance(tree, Partial):
        shape[tree.dim] = tree.stop
    return _Part(tensor.data_ptr(), tuple(shape), tuple(tensor.stride()), tensor.element_size())
