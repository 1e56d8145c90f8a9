"""What the target machine hears and says. Its machine is `migration.target`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from worldline.errors import Fact
from worldline.migration.attempt import Attempt
from worldline.migration.leaves import Leaves
from worldline.migration.story import Table
from worldline.schema.ids import Epoch
from worldline.schema.layout import Extent, Manifest
from worldline.schema.rows import Copy, Runs
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
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class ManifestIn:
    """Where the leaves lie at the source's latest cut. `generation` counts the cuts, from 1."""

    generation: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CopyIn:
    copy: Copy


@dataclass(frozen=True, slots=True)
class RowsIn:
    """Rows and their bytes, not yet in the arena."""

    runs: Runs
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class PutDone:
    """`Put` of the same ticket has ended."""

    ticket: int


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
    leaf_count: int
    generation: int


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
    | CopyIn
    | RowsIn
    | PutDone
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
    """Digest these leaves where they lie, on the lanes; answer `LaneDone` with the same ticket. `hurry`: a session may
    be waiting for it, so let more than the lanes read.
    """

    ticket: int
    extents: tuple[Extent, ...]
    hurry: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Put these rows in their place in the arena, after all that were ordered before; answer `PutDone` with the same
    ticket. `step` is within `manifest`.
    """

    ticket: int
    manifest: Manifest
    step: CopyIn | RowsIn


@dataclass(frozen=True, slots=True)
class SendRecord:
    record: records.Digests | records.Prepared | records.Refused


@dataclass(frozen=True, slots=True)
class ComputeRoot:
    """Layout digest and content root; answer `RootComputed`. `digests` in manifest order."""

    manifest: Manifest
    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The answer to `AwaitPrepared`: what the receipt is made of."""

    manifest: Manifest
    digests: tuple[bytes, ...]
    """As this host read them, in manifest order."""
    source_root: bytes
    target_root: bytes
    layout: bytes
    number: int
    leaf_count: int
    bytes_landed: int
    rounds: int
    early: frozenset[int] = frozenset()
    """Numbers of the leaves that were read before the source's last manifest, and so maybe before its fence."""
    leaves: Leaves = field(kw_only=True, compare=False)
    """The manifest's."""


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
class StopReceiving:
    """Call `Link.receive` no more: what is digested from now on must not be written again. The link still sends."""


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Fence the link: it writes nothing any more, whatever the other side does."""


Command: TypeAlias = (
    Digest | Put | SendRecord | ComputeRoot | Prepared | Failed | Install | Discard | StopReceiving | CloseLink
)


# ---- which event may lead where

_ANY = (Phase.DISCARDED,)
_RECORDS = (HelloIn, ManifestIn, CopyIn, RowsIn, RoundEndIn, SealIn, AbortIn)

TRANSITIONS: Table[Phase] = {
    Phase.WAITING: {
        LinkUp: (Phase.WAITING,),
        HelloIn: (Phase.RECEIVING, Phase.DISCARDED),
        ManifestIn: _ANY,
        CopyIn: _ANY,
        RowsIn: _ANY,
        RoundEndIn: _ANY,
        SealIn: _ANY,
        LandedIn: _ANY,
        AbortIn: _ANY,
        LinkLost: _ANY,
        Abort: _ANY,
        DiscardIn: _ANY,
        Deadline: (Phase.WAITING, Phase.DISCARDED),
    },
    Phase.RECEIVING: {
        HelloIn: _ANY,
        ManifestIn: (Phase.RECEIVING, Phase.DISCARDED),
        CopyIn: (Phase.RECEIVING, Phase.DISCARDED),
        RowsIn: (Phase.RECEIVING, Phase.DISCARDED),
        PutDone: (Phase.RECEIVING, Phase.DISCARDED),
        RoundEndIn: (Phase.RECEIVING, Phase.DISCARDED),
        SealIn: (Phase.VERIFYING, Phase.DISCARDED),
        LandedIn: (Phase.RECEIVING, Phase.DISCARDED),
        LaneDone: (Phase.RECEIVING, Phase.DISCARDED),
        AbortIn: _ANY,
        LinkLost: _ANY,
        Abort: _ANY,
        DiscardIn: _ANY,
        Deadline: (Phase.RECEIVING, Phase.DISCARDED),
    },
    Phase.VERIFYING: {
        **dict.fromkeys(_RECORDS, _ANY),
        LandedIn: _ANY,
        PutDone: (Phase.VERIFYING, Phase.DISCARDED),
        LaneDone: (Phase.VERIFYING, Phase.DISCARDED),
        RootComputed: (Phase.PREPARED, Phase.DISCARDED),
        LinkLost: (Phase.VERIFYING,),
        Abort: _ANY,
        DiscardIn: _ANY,
        Deadline: (Phase.VERIFYING, Phase.DISCARDED),
    },
    Phase.PREPARED: {
        ActivateIn: (Phase.ACTIVE,),
        DiscardIn: _ANY,
        **dict.fromkeys((*_RECORDS, LandedIn, PutDone, LaneDone, LinkLost, Abort, Deadline), (Phase.PREPARED,)),
    },
    Phase.ACTIVE: dict.fromkeys((ActivateIn, LaneDone, LinkLost, Abort, Deadline), (Phase.ACTIVE,)),
    Phase.DISCARDED: dict.fromkeys(
        (LinkUp, *_RECORDS, LandedIn, PutDone, LaneDone, RootComputed, LinkLost, Abort, DiscardIn, Deadline), _ANY
    ),
}
"""An active target takes no `DiscardIn`, and a discarded one no `ActivateIn`: the record can't say so."""
