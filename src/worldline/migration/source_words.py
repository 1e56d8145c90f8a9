"""What the source machine hears and says. Its machine is `migration.source`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from worldline.errors import Fact
from worldline.migration.grains import Step
from worldline.migration.story import Table
from worldline.schema.layout import Extent, Manifest
from worldline.wire import records


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


# ---- events


@dataclass(frozen=True, slots=True)
class Connected:
    """The link is up."""


@dataclass(frozen=True, slots=True)
class Announced:
    """The engine says within a block that it writes these leaves of the latest manifest no more before the boundary.
    They are watched from before it said so.
    """

    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class CutTaken:
    """The engine stands at a block boundary and is held. `digests` are the leaves' in manifest order, None for one that
    was not read: it is taken to differ from what the target has.
    """

    manifest: Manifest
    digests: tuple[bytes | None, ...]
    root: bytes | None
    """None where a leaf is unread."""
    layout: bytes
    """The layout's digest."""
    number: int
    """Last action number applied."""
    held_at_s: float
    """When the engine reached the boundary, or was asked for the cut if it stood there idle: a pause counts from here,
    capture and digests included.
    """
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What rows hold, 8 octets each, by the path of a view of which nothing is declared; where it was asked for."""
    doubted: frozenset[int] = frozenset()
    """Numbers of leaves that the target is to read again whatever it has reported."""


@dataclass(frozen=True, slots=True)
class RestRead:
    """`ReadRest` has ended: the frozen cut's digests, all of them."""

    digests: tuple[bytes, ...]
    root: bytes


@dataclass(frozen=True, slots=True)
class Posted:
    """`Post` has ended: `nbytes` crossed the link, which for `idle_s` was not to be used, as there was no grant."""

    nbytes: int
    idle_s: float = 0.0


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
    Connected
    | Announced
    | CutTaken
    | RestRead
    | Posted
    | DigestsIn
    | PreparedIn
    | RefusedIn
    | LinkLost
    | Abort
    | Retire
    | Deadline
)


# ---- commands, to be carried out in order


@dataclass(frozen=True, slots=True)
class TakeCut:
    """Hold the engine at its next block boundary and capture its state; answer `CutTaken`. Where `compares`, read what
    is worth comparing with the target's reports; else nothing is known there, and nothing need be read. Where it
    `remembers`, also read what rolls, and what rows hold: a later cut can tell by it where rows of an earlier one went.
    """

    compares: bool
    remembers: bool = False


@dataclass(frozen=True, slots=True)
class ReadRest:
    """Read what the cut left unread, the engine held; answer `RestRead`."""


@dataclass(frozen=True, slots=True)
class Thaw:
    """Let the engine go on. Never follows `Fence`."""


@dataclass(frozen=True, slots=True)
class SendRecord:
    record: records.Hello | records.ManifestRecord | records.RoundEnd | records.Seal | records.Abort


@dataclass(frozen=True, slots=True)
class Post:
    """Send these copies and rows in their order, then make these arena extents land at the target; answer `Posted` with
    the bytes of rows and extents, or `LinkLost`.
    """

    extents: tuple[Extent, ...]
    round: int
    deadline_s: float
    """From now; positive."""
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class PostEarly:
    """Name these extents of a handed-over arena to the target while the block is still being made. Not answered: the
    round that the next cut begins counts them with its own.
    """

    extents: tuple[Extent, ...]
    deadline_s: float
    """As in `Post`."""


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
class Fence:
    """Forget the session: fence the link, join the engine's thread, drop the mapping of its arena. Nothing of this side
    writes the arena any more.
    """


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Fence the link; the session stays."""


Command: TypeAlias = (
    TakeCut | ReadRest | Thaw | SendRecord | Post | PostEarly | Report | Sealed | Failed | Fence | CloseLink
)


# ---- which event may lead where

TRANSITIONS: Table[Phase] = {
    Phase.CONNECTING: {
        Connected: (Phase.CUTTING,),
        LinkLost: (Phase.THAWED,),
        Abort: (Phase.THAWED,),
        Deadline: (Phase.CONNECTING, Phase.THAWED),
    },
    Phase.CUTTING: {
        Announced: (Phase.CUTTING,),
        CutTaken: (Phase.COPYING, Phase.FROZEN, Phase.SEALED, Phase.THAWED),
        DigestsIn: (Phase.CUTTING, Phase.THAWED),
        PreparedIn: (Phase.THAWED,),
        RefusedIn: (Phase.THAWED,),
        LinkLost: (Phase.THAWED,),
        Abort: (Phase.THAWED,),
        Deadline: (Phase.CUTTING, Phase.THAWED),
    },
    Phase.COPYING: {
        Posted: (Phase.COPYING,),
        DigestsIn: (Phase.COPYING, Phase.CUTTING, Phase.THAWED),
        PreparedIn: (Phase.THAWED,),
        RefusedIn: (Phase.THAWED,),
        LinkLost: (Phase.THAWED,),
        Abort: (Phase.THAWED,),
        Deadline: (Phase.COPYING, Phase.THAWED),
    },
    Phase.FROZEN: {
        Posted: (Phase.FROZEN, Phase.SEALED, Phase.THAWED),
        RestRead: (Phase.FROZEN, Phase.SEALED, Phase.THAWED),
        DigestsIn: (Phase.FROZEN, Phase.SEALED, Phase.THAWED),
        PreparedIn: (Phase.THAWED,),
        RefusedIn: (Phase.THAWED,),
        LinkLost: (Phase.THAWED,),
        Abort: (Phase.THAWED,),
        Deadline: (Phase.FROZEN, Phase.THAWED),
    },
    Phase.SEALED: {
        DigestsIn: (Phase.SEALED,),
        PreparedIn: (Phase.PREPARED, Phase.SEALED),
        RefusedIn: (Phase.THAWED,),
        LinkLost: (Phase.SEALED,),
        Abort: (Phase.THAWED,),
        Retire: (Phase.RETIRED,),
        Deadline: (Phase.SEALED,),
    },
    Phase.PREPARED: {
        PreparedIn: (Phase.PREPARED,),
        RefusedIn: (Phase.PREPARED,),
        LinkLost: (Phase.PREPARED,),
        Abort: (Phase.THAWED,),
        Retire: (Phase.RETIRED,),
        Deadline: (Phase.PREPARED,),
    },
    Phase.RETIRED: dict.fromkeys((PreparedIn, RefusedIn, LinkLost, Abort, Retire, Deadline), (Phase.RETIRED,)),
    Phase.THAWED: dict.fromkeys(
        (Connected, Announced, CutTaken, RestRead, Posted, DigestsIn, PreparedIn, RefusedIn, LinkLost, Abort, Deadline),
        (Phase.THAWED,),
    ),
}
"""A thawed source takes no `Retire`: the session would have two owners or none."""
