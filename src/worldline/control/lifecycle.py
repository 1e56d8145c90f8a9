"""What may be done to a session in which condition, and what it is afterwards.

Invariant: a session leaves MOVING exactly when the one order that changes its owner ends; nothing leaves CLOSED, and
LOST is left for CLOSED alone. A world is never begun anew in a lost one's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from worldline.control.order import Outcome
from worldline.errors import (
    AlreadyThere,
    Conflict,
    MoveInProgress,
    NotParked,
    SessionClosed,
    SessionParked,
    StateLost,
    WorldlineError,
)
from worldline.schema.ids import HostId, SessionId


class Status(StrEnum):
    RUNNING = "running"
    MOVING = "moving"
    """An order that changes its owner is under way; it may play meanwhile."""
    PARKED = "parked"
    """In an image, owned by nobody."""
    LOST = "lost"
    """Its only holder ended. Its record and receipts stay."""
    CLOSED = "closed"


class Verb(StrEnum):
    STEP = "step"
    """An action, by HTTP or from a player."""
    MOVE = "move"
    PARK = "park"
    RESUME = "resume"
    CLOSE = "close"
    SABOTAGE = "sabotage"
    """A planted bit flip, for proofs."""


Answer: TypeAlias = Status | type[WorldlineError]

LEGAL: Mapping[Status, Mapping[Verb, Answer]] = {
    Status.RUNNING: {
        Verb.STEP: Status.RUNNING,
        Verb.MOVE: Status.MOVING,
        Verb.PARK: Status.MOVING,
        Verb.RESUME: NotParked,
        Verb.CLOSE: Status.CLOSED,
        Verb.SABOTAGE: Status.RUNNING,
    },
    Status.MOVING: {
        Verb.STEP: Status.MOVING,
        Verb.MOVE: MoveInProgress,
        Verb.PARK: MoveInProgress,
        Verb.RESUME: MoveInProgress,
        Verb.CLOSE: MoveInProgress,
        Verb.SABOTAGE: MoveInProgress,
    },
    Status.PARKED: {
        Verb.STEP: SessionParked,
        Verb.MOVE: SessionParked,
        Verb.PARK: SessionParked,
        Verb.RESUME: Status.MOVING,
        Verb.CLOSE: Status.CLOSED,
        Verb.SABOTAGE: SessionParked,
    },
    Status.LOST: {**dict.fromkeys(Verb, StateLost), Verb.CLOSE: Status.CLOSED},
    Status.CLOSED: dict.fromkeys(Verb, SessionClosed),
}
"""The status while the verb runs (its last one, for verbs that are no orders), or the error that answers it."""

_SENTENCES: Mapping[type[WorldlineError], str] = {
    NotParked: "is running, so there is nothing to resume",
    MoveInProgress: "is changing its owner; one order at a time",
    SessionParked: "is parked; resume it first",
    StateLost: "is lost: {why}",
    SessionClosed: "is closed",
}


def begin(session: SessionId, status: Status, verb: Verb, why: str | None = None) -> Status:
    """The status from now on. Raises the typed error that the table has; `why` tells how a session was lost."""
    answer = LEGAL[status][verb]
    if isinstance(answer, Status):
        return answer
    sentence = _SENTENCES[answer].format(why=why or "its host ended")
    raise answer(f"session {session} {sentence}", session=session, status=status.value, verb=verb.value)


def check_elsewhere(session: SessionId, owner: HostId | None, target: HostId) -> None:
    """Raises `AlreadyThere` for a move to the host that the session is on."""
    if owner == target:
        raise AlreadyThere(f"session {session} is on {target} already", session=session, host=target)


def settle(verb: Verb, outcome: Outcome, lost: bool) -> Status:
    """The status after an order has ended: `outcome` and `lost` as its `Finish` has them."""
    if lost or outcome is Outcome.LOST:
        return Status.LOST
    done = outcome is Outcome.DONE
    match verb:
        case Verb.MOVE:
            return Status.RUNNING
        case Verb.PARK:
            return Status.PARKED if done else Status.RUNNING
        case Verb.RESUME:
            return Status.RUNNING if done else Status.PARKED
        case Verb.STEP | Verb.CLOSE | Verb.SABOTAGE:
            raise Conflict(f"{verb.value} is no order that changes an owner")
