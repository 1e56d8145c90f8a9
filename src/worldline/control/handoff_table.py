"""Where an order to change an owner can be, and which event may lead where. Its machine is `control.handoff`."""

from __future__ import annotations

from enum import StrEnum

from worldline.control.order import (
    Activated,
    Begin,
    DeadlinePassed,
    Discarded,
    HostGone,
    ImageWritten,
    OwnerRead,
    PeerFailed,
    Recovered,
    Retired,
    SourceProgress,
    SourceSealed,
    Swapped,
    SwapUnknown,
    TargetPrepared,
    TargetReady,
    Thawed,
)
from worldline.migration.story import Table


class Phase(StrEnum):
    """Where an order is. Up to COMMITTING nothing has changed hands."""

    NEW = "new"
    PREPARING = "preparing"
    """The target reserves an arena and listens, or verifies an image."""
    COPYING = "copying"
    """The source sends (or writes an image), and the target lands and digests."""
    VERIFYING = "verifying"
    """The source is frozen and sealed; the target's proof is awaited."""
    COMMITTING = "committing"
    """The swap was asked for, and only the record knows its outcome."""
    FENCING = "fencing"
    """Committed; a handed-over arena's source must let go before the target may write."""
    ACTIVATING = "activating"
    """Committed; the new owner takes the session up."""
    RETURNING = "returning"
    """The target ended before it was known to play: the owner is swapped back, to the source or the image."""
    THAWING = "thawing"
    """The record names the source again; it plays on under the epoch after the target's."""
    RETIRING = "retiring"
    """The new owner plays, or the image holds the session; the old one lets go."""
    ABORTING = "aborting"
    """Given up: the target forgets, the source plays on."""
    ENDED = "ended"


_LATE = (SourceProgress, SourceSealed, TargetReady, TargetPrepared, ImageWritten, DeadlinePassed)
_GIVEN_UP = (Phase.ABORTING, Phase.ENDED)
_COMPLETING = (Phase.FENCING, Phase.ACTIVATING, Phase.RETURNING, Phase.RETIRING, Phase.ENDED)

TRANSITIONS: Table[Phase] = {
    Phase.NEW: {
        Begin: (Phase.PREPARING, Phase.COPYING),
        Recovered: (
            Phase.COPYING,
            Phase.ABORTING,
            Phase.FENCING,
            Phase.ACTIVATING,
            Phase.THAWING,
            Phase.RETIRING,
            Phase.ENDED,
        ),
    },
    Phase.PREPARING: {
        TargetReady: (Phase.COPYING,),
        TargetPrepared: (Phase.COMMITTING, *_GIVEN_UP),
        PeerFailed: (Phase.PREPARING, *_GIVEN_UP),
        HostGone: (Phase.PREPARING, *_GIVEN_UP),
        DeadlinePassed: (Phase.PREPARING, *_GIVEN_UP),
    },
    Phase.COPYING: {
        SourceProgress: (Phase.COPYING,),
        SourceSealed: (Phase.VERIFYING, Phase.COMMITTING, *_GIVEN_UP),
        TargetPrepared: (Phase.COPYING, Phase.COMMITTING, *_GIVEN_UP),
        ImageWritten: (Phase.COPYING, Phase.COMMITTING, *_GIVEN_UP),
        PeerFailed: (Phase.COPYING, Phase.COMMITTING, *_GIVEN_UP),
        HostGone: (Phase.COPYING, Phase.COMMITTING, *_GIVEN_UP),
        DeadlinePassed: (Phase.COPYING, *_GIVEN_UP),
    },
    Phase.VERIFYING: {
        SourceProgress: (Phase.VERIFYING,),
        TargetPrepared: (Phase.COMMITTING, *_GIVEN_UP),
        PeerFailed: (Phase.VERIFYING, *_GIVEN_UP),
        HostGone: (Phase.VERIFYING, *_GIVEN_UP),
        DeadlinePassed: (Phase.VERIFYING, *_GIVEN_UP),
    },
    Phase.COMMITTING: {
        Swapped: (Phase.COMMITTING, *_COMPLETING),
        SwapUnknown: (Phase.COMMITTING,),
        OwnerRead: (*_COMPLETING, Phase.ABORTING),
        HostGone: (Phase.COMMITTING,),
        **dict.fromkeys((*_LATE, PeerFailed), (Phase.COMMITTING,)),
    },
    Phase.FENCING: {
        Retired: (Phase.ACTIVATING, Phase.ENDED),
        PeerFailed: (Phase.FENCING,),
        HostGone: (Phase.FENCING, Phase.ACTIVATING, Phase.ENDED),
        **dict.fromkeys(_LATE, (Phase.FENCING,)),
    },
    Phase.ACTIVATING: {
        Activated: (Phase.RETIRING, Phase.ENDED),
        PeerFailed: (Phase.ACTIVATING, Phase.RETIRING, Phase.ENDED),
        HostGone: (Phase.ACTIVATING, Phase.RETURNING, Phase.ENDED),
        **dict.fromkeys((*_LATE, Retired), (Phase.ACTIVATING,)),
    },
    Phase.RETURNING: {
        Swapped: (Phase.RETURNING, Phase.THAWING, Phase.ENDED),
        SwapUnknown: (Phase.RETURNING,),
        OwnerRead: (Phase.RETURNING, Phase.THAWING, Phase.RETIRING, Phase.ENDED),
        HostGone: (Phase.RETURNING,),
        **dict.fromkeys((*_LATE, Activated, PeerFailed), (Phase.RETURNING,)),
    },
    Phase.THAWING: {
        Thawed: (Phase.ENDED,),
        PeerFailed: (Phase.THAWING,),
        HostGone: (Phase.THAWING, Phase.ENDED),
        **dict.fromkeys((*_LATE, Activated), (Phase.THAWING,)),
    },
    Phase.RETIRING: {
        Retired: (Phase.ENDED,),
        PeerFailed: (Phase.RETIRING, Phase.ENDED),
        HostGone: (Phase.RETIRING, Phase.ENDED),
        **dict.fromkeys((*_LATE, Activated), (Phase.RETIRING,)),
    },
    Phase.ABORTING: {
        Discarded: _GIVEN_UP,
        Thawed: _GIVEN_UP,
        Retired: _GIVEN_UP,
        PeerFailed: _GIVEN_UP,
        HostGone: _GIVEN_UP,
        **dict.fromkeys(_LATE, (Phase.ABORTING,)),
    },
    Phase.ENDED: dict.fromkeys(
        (*_LATE, PeerFailed, HostGone, Activated, Retired, Discarded, Thawed, SwapUnknown), (Phase.ENDED,)
    ),
}
