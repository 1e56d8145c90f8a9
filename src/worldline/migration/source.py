"""The source's side of one attempt to move a session: a machine that a host drives.

Invariants
  The session plays on unless the machine says otherwise: the engine is held only between `CutTaken` and the next `Thaw`.
  A leaf is clean only if the *target* reported the digest that the source's own bytes have at the cut.
  After `Sealed` the session stays frozen until the controller's word (`Abort` or `Retire`) or the target's own refusal: a
  lost link, a missing reply or a passed deadline never thaws it, because the swap of the owner may already be made.
  Exactly one of `Thaw` and `Fence` is the last word to the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias, assert_never

from worldline.errors import Fact, IllegalTransition
from worldline.migration.rounds import Freeze, GoOn, Limits, Refuse, Round, RoundRate, decide, merge
from worldline.schema.contract import Contract
from worldline.schema.layout import Extent, Manifest
from worldline.schema.receipt import Mode
from worldline.wire import records

if TYPE_CHECKING:
    from worldline.schema.ids import Epoch, MoveId, SessionId

STORY_LINES_MAX = 64


class Phase(StrEnum):
    """Where the source is. Held: CUTTING's end to the decision, FROZEN, SEALED."""

    CONNECTING = "connecting"
    CUTTING = "cutting"
    """A cut was asked for; the engine plays to its next block boundary."""
    COPYING = "copying"
    """A round is on its way while the session plays."""
    FROZEN = "frozen"
    """The engine is held for good and the rest is on its way."""
    SEALED = "sealed"
    """Everything was sent. The session belongs to whom the record says."""
    PREPARED = "prepared"
    """The target has proven its bytes. Still frozen."""
    RETIRED = "retired"
    """The session is the target's, and this side has let go."""
    THAWED = "thawed"
    """The attempt is over and the session plays on here."""


# ---- what a move is at its source


@dataclass(frozen=True, slots=True)
class Attempt:
    """Names one attempt to both sides: what the hello says."""

    move: MoveId
    session: SessionId
    epoch: Epoch
    """The epoch in force, the source's."""
    mode: Mode


# ---- events


@dataclass(frozen=True, slots=True)
class Connected:
    """The link is up."""


@dataclass(frozen=True, slots=True)
class CutTaken:
    """The engine stands at a block boundary and is held. `digests` are the leaves' in manifest order."""

    manifest: Manifest
    digests: tuple[bytes, ...]
    root: bytes
    layout: bytes
    """The layout's digest."""
    number: int
    """Last action number applied."""


@dataclass(frozen=True, slots=True)
class Posted:
    """`Post` has ended: `nbytes` crossed the link, in `elapsed_s`."""

    nbytes: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class DigestsIn:
    """What the target read where the bytes of `round` landed."""

    round: int
    items: tuple[tuple[Extent, bytes], ...]


@dataclass(frozen=True, slots=True)
class PreparedIn:
    """The target's root over its resident bytes."""

    root: bytes


@dataclass(frozen=True, slots=True)
class RefusedIn:
    """The target has ended the attempt and installed nothing."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class LinkLost:
    sentence: str


@dataclass(frozen=True, slots=True)
class Abort:
    """The controller (or this host) calls the attempt off: the session plays on here."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Retire:
    """The controller says that the session is the target's."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time of `wake_at_s` has come."""


Event: TypeAlias = (
    Connected | CutTaken | Posted | DigestsIn | PreparedIn | RefusedIn | LinkLost | Abort | Retire | Deadline
)


# ---- commands, to be carried out in order


@dataclass(frozen=True, slots=True)
class TakeCut:
    """Hold the engine at its next block boundary, capture and digest everything, answer `CutTaken`."""


@dataclass(frozen=True, slots=True)
class Thaw:
    """Let the engine go on. Never follows `Fence`."""


@dataclass(frozen=True, slots=True)
class SendRecord:
    record: records.Record


@dataclass(frozen=True, slots=True)
class Post:
    """Make these arena extents land at the target; answer `Posted`, or `LinkLost`."""

    extents: tuple[Extent, ...]
    round: int
    deadline_s: float
    """From now; positive."""


@dataclass(frozen=True, slots=True)
class Report:
    """One step, for people: what `Progress` shows."""

    round: int
    bytes_moved: int
    dirty_bytes: int
    frozen: bool
    note: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """The answer to `RunSource`: the session is frozen and everything was sent."""

    root: bytes
    block: int
    number: int
    frozen_at_s: float
    bytes_moved: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt is over. Comes after `Thaw` in the same list, so the session plays already."""

    code: str
    sentence: str
    facts: Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Release:
    """Forget the session: drop its arena and mapping. Only after `Fence`."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Join the engine's thread and fence the link: nothing of this side writes the arena any more."""


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Fence the link; the session stays."""


Command: TypeAlias = TakeCut | Thaw | SendRecord | Post | Report | Sealed | Failed | Release | Fence | CloseLink


class SourceMachine:
    """Drives one attempt at the source. `handle` is the only way in."""

    def __init__(self, attempt: Attempt, contract: Contract, started_at_s: float, limits: Limits | None = None) -> None:
        """`started_at_s`: when the order was given; the completion deadline counts from it. Times are monotonic seconds."""
        raise NotImplementedError

    phase: Phase

    @property
    def story(self) -> tuple[str, ...]:
        """The last lines of what happened."""
        raise NotImplementedError

    @property
    def wake_at_s(self) -> float | None:
        """When the driver must say `Deadline`, unless something else happens before."""
        raise NotImplementedError

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """What to do now. Raises `IllegalTransition` for an event that this phase does not know."""
        raise NotImplementedError


def event_of(record: records.Record) -> Event:
    """The event that a record from the target is. Raises `Malformed` for one that only a source sends."""
    raise NotImplementedError
