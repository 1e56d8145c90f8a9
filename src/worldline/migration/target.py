"""The target's side of one attempt to move a session: a machine that a host drives.

Invariants
  Nothing is installed unless the root over the target's own resident bytes equals the seal.
  A digest counts only for the bytes that lie there now: a landing takes back the digests of the leaves it touches.
  `Prepared` and `Failed` exclude each other, and each comes at most once; after `Failed` or `Discard` nothing is installed.
  The stream is hostile: every record is checked against the attempt and the protocol's order before it has an effect.
  A handed-over arena is never written before `Install`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from worldline.errors import Fact
from worldline.schema.ids import Epoch
from worldline.schema.layout import Extent, Manifest
from worldline.wire import records


class Phase(StrEnum):
    """Where the target is."""

    WAITING = "waiting"
    """For the link and its hello."""
    RECEIVING = "receiving"
    """Bytes land in an arena that belongs to this attempt alone."""
    VERIFYING = "verifying"
    """Sealed: the leaves not yet digested where they lie are, then the root."""
    PREPARED = "prepared"
    """Proven; waits for the controller's word, for as long as it takes."""
    ACTIVE = "active"
    """The session's owner."""
    DISCARDED = "discarded"
    """Over: nothing was installed and the arena is gone."""


# ---- events


@dataclass(frozen=True, slots=True)
class LinkUp:
    """The source that knows the key has connected."""


@dataclass(frozen=True, slots=True)
class HelloIn:
    move: str
    session: str
    epoch: int
    mode: str


@dataclass(frozen=True, slots=True)
class ManifestIn:
    """Where the leaves lie at the source's latest cut. `generation` counts the cuts, from 1."""

    generation: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class RoundEndIn:
    round: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SealIn:
    root: bytes
    layout: bytes
    block: int
    number: int


@dataclass(frozen=True, slots=True)
class AbortIn:
    """The source calls the attempt off."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class LandedIn:
    extent: Extent


@dataclass(frozen=True, slots=True)
class LaneDone:
    """`Digest` of the same ticket has ended."""

    ticket: int
    items: tuple[tuple[Extent, bytes], ...]


@dataclass(frozen=True, slots=True)
class RootComputed:
    root: bytes
    layout: bytes


@dataclass(frozen=True, slots=True)
class LinkLost:
    sentence: str


@dataclass(frozen=True, slots=True)
class Abort:
    """This host can't go on: a lane failed, the arena is gone, a record broke the format."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ActivateIn:
    """The controller's word: the record names this host, with this epoch."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class DiscardIn:
    """The controller's word: forget the attempt."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time of `wake_at_s` has come."""


Event: TypeAlias = (
    LinkUp
    | HelloIn
    | ManifestIn
    | RoundEndIn
    | SealIn
    | AbortIn
    | LandedIn
    | LaneDone
    | RootComputed
    | LinkLost
    | Abort
    | ActivateIn
    | DiscardIn
    | Deadline
)


# ---- commands, to be carried out in order


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest these leaves where they lie, on the lanes; answer `LaneDone` with the same ticket."""

    ticket: int
    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class SendRecord:
    record: records.Record


@dataclass(frozen=True, slots=True)
class ComputeRoot:
    """Layout digest and content root; answer `RootComputed`. `digests` in manifest order."""

    manifest: Manifest
    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The answer to `AwaitPrepared`: what the receipt is made of."""

    manifest: Manifest
    source_root: bytes
    target_root: bytes
    layout: bytes
    number: int
    leaf_count: int
    bytes_landed: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The other answer to `AwaitPrepared`. Comes after `Discard` in the same list."""

    code: str
    sentence: str
    facts: Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Install:
    """Bind the engine to the arena's state and play on from there as owner of `epoch`."""

    manifest: Manifest
    number: int
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Discard:
    """Fence the link, wait for the lanes, then zero and free a copied arena, or unmap a handed-over one unwritten."""

    zero: bool


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Fence the link: the proven bytes can't change any more."""


Command: TypeAlias = Digest | SendRecord | ComputeRoot | Prepared | Failed | Install | Discard | CloseLink


class TargetMachine:
    """Drives one attempt at the target. `handle` is the only way in."""

    def __init__(
        self,
        attempt: Attempt,
        hands_over: bool,
        capacity: int,
        deadline_s: float,
        limits: Limits | None = None,
    ) -> None:
        """`capacity`: bytes of the arena; `deadline_s`: monotonic time by which the target must be PREPARED."""
        raise NotImplementedError

    phase: Phase

    @property
    def story(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def wake_at_s(self) -> float | None:
        raise NotImplementedError

    def handle(self, event: Event, now_s: float) -> list[Command]:
        raise NotImplementedError


def event_of(record: records.Record) -> Event:
    """The event that a record from the source is. Raises `Malformed` for one that only a target sends."""
    raise NotImplementedError
