"""Every error Worldline raises, as one tree.

A class is a kind of trouble a caller can act on; its `code` is the name used by the library, the CLI, HTTP and the
wire alike.

    WorldlineError                      1
    |- BadValue                         2  the call's own words are wrong
    |- NotFound                         3  UNKNOWN_WORLD UNKNOWN_HOST UNKNOWN_SESSION UNKNOWN_MOVE UNKNOWN_RECEIPT
    |                                      UNKNOWN_OPERATION
    |- Conflict                         4  ALREADY_THERE MOVE_IN_PROGRESS SESSION_CLOSED SESSION_PARKED NOT_PARKED
    |                                      ACTION_GAP KEY_REUSED ILLEGAL_TRANSITION HOST_CORDONED
    |                                      OPERATION_IN_PROGRESS
    |- Refused                          5  the guarantee could not be kept, so nothing was installed:
    |                                      CORRUPT STALE_EPOCH PLAN_MISMATCH LAYOUT NO_CAPACITY DEADLINE BANDWIDTH LANE
    |                                      INCAST STATE_LOST POISONED UNAUTHENTICATED MALFORMED VERSION BYTE_ORDER
    |                                      WRONG_SESSION VOID
    |- Unavailable                      6  HOST_GONE CONTROLLER_GONE RECORD_FAILED LINK_CUT TIMEOUT
    |- MissingExtra                     7  a part of the package that is not installed, and what to install
    |- Unsupported                      8  this machine's kernel, or this process's rights, do not allow it
    `- Internal                        70  a broken invariant of ours
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

Fact: TypeAlias = str | int | float | bool | None


class WorldlineError(Exception):
    """A sentence for a person, and the facts it was made from as `facts`."""

    code: ClassVar[str] = "ERROR"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, sentence: str, **facts: Fact) -> None:
        super().__init__(_carried(sentence))
        self.sentence: str = self.args[0]
        self.facts: Mapping[str, Fact] = {name: _carried(fact) for name, fact in facts.items()}

    def to_record(self) -> dict[str, object]:
        """The error as it crosses a process boundary: code, sentence, facts."""
        return {"code": self.code, "sentence": self.sentence, "facts": dict(self.facts)}


def _carried(fact: Any) -> Any:
    """As every message and every JSON can carry it: numbers of 64 bits and text of whole characters, else their text.

    An error that can't be told takes with it the connection on which it was to be told.
    """
    if isinstance(fact, int) and not -(2**63) <= fact < 2**63:
        return hex(fact)
    if isinstance(fact, str):
        return fact.encode(errors="backslashreplace").decode()
    return fact


class BadValue(WorldlineError):
    """The call's own words are wrong: a number out of range, an unknown option."""

    code = "BAD_VALUE"
    exit_code = 2
    http_status = 400


class NotFound(WorldlineError):
    """Something named does not exist. It is never created in its place."""

    exit_code = 3
    http_status = 404


class UnknownWorld(NotFound):
    """No world of this name; the sentence lists the known ones."""

    code = "UNKNOWN_WORLD"


class UnknownHost(NotFound):
    """No host of this name in the fleet."""

    code = "UNKNOWN_HOST"


class UnknownSession(NotFound):
    """No session of this id was ever opened here."""

    code = "UNKNOWN_SESSION"


class UnknownMove(NotFound):
    """No move of this id in the journal."""

    code = "UNKNOWN_MOVE"


class UnknownReceipt(NotFound):
    """No receipt of this id."""

    code = "UNKNOWN_RECEIPT"


class UnknownOperation(NotFound):
    """No operation of this id."""

    code = "UNKNOWN_OPERATION"


class Conflict(WorldlineError):
    """The thing exists, but not in a condition in which this may be done to it."""

    exit_code = 4
    http_status = 409


class AlreadyThere(Conflict):
    """A move to the host that the session is on."""

    code = "ALREADY_THERE"


class MoveInProgress(Conflict):
    """Another verb is changing this session's owner; one at a time."""

    code = "MOVE_IN_PROGRESS"


class SessionClosed(Conflict):
    """A verb on a session that was closed."""

    code = "SESSION_CLOSED"


class SessionParked(Conflict):
    """A verb that needs a running session, on a parked one."""

    code = "SESSION_PARKED"


class NotParked(Conflict):
    """Resume of a session that is not parked."""

    code = "NOT_PARKED"


class ActionGap(Conflict):
    """An action number that jumps ahead: one in between was lost, so nothing is applied."""

    code = "ACTION_GAP"


class KeyReused(Conflict):
    """An idempotency key used before with another request."""

    code = "KEY_REUSED"


class IllegalTransition(Conflict):
    """An event that a machine's phase does not allow; the sentence tells the story so far."""

    code = "ILLEGAL_TRANSITION"


class OperationInProgress(Conflict):
    """An operation is emptying the host; one at a time."""

    code = "OPERATION_IN_PROGRESS"


class HostCordoned(Conflict):
    """The host takes no sessions: it was cordoned, or given back."""

    code = "HOST_CORDONED"


class Refused(WorldlineError):
    """The guarantee could not be kept: nothing was installed and the source is unharmed."""

    exit_code = 5
    http_status = 409


class Corrupt(Refused):
    """Bytes differ from their digest."""

    code = "CORRUPT"


class StaleEpoch(Refused):
    """A message of an owner or attempt that is over."""

    code = "STALE_EPOCH"


class PlanMismatch(Refused):
    """The target would compute other bits: another kernel plan, engine, weights or device."""

    code = "PLAN_MISMATCH"


class LayoutRefused(Refused):
    """State that can't be described exactly, or two descriptions that differ."""

    code = "LAYOUT"


class NoCapacity(Refused):
    """The target has too little memory for the state."""

    code = "NO_CAPACITY"


class DeadlineMissed(Refused):
    """The move would break, or broke, the contract's pause bound or completion deadline."""

    code = "DEADLINE"


class BandwidthShort(Refused):
    """The link is slower than the state and its dirty rate ask for, so pre-copy can't converge."""

    code = "BANDWIDTH"


class LaneFull(Refused):
    """The verification lanes can't take the move in time."""

    code = "LANE"


class IncastRefused(Refused):
    """The receiver grants no more transfers now."""

    code = "INCAST"


class StateLost(Refused):
    """The session's state is gone. A fresh world is never passed off as it."""

    code = "STATE_LOST"


class Poisoned(Refused):
    """The session's engine failed inside a block, so its state is not at a boundary and can't be trusted."""

    code = "POISONED"


class Unauthenticated(Refused):
    """A peer without the key of this attempt, or a client without a token."""

    code = "UNAUTHENTICATED"
    http_status = 401


class Malformed(Refused):
    """A record, image or message that breaks the format's rules."""

    code = "MALFORMED"


class VersionUnknown(Refused):
    """A format newer than this program reads."""

    code = "VERSION"


class ByteOrderRefused(Refused):
    """State written on a machine of another byte order."""

    code = "BYTE_ORDER"


class WrongSession(Refused):
    """An image of another session."""

    code = "WRONG_SESSION"


class RunVoid(Refused):
    """A measurement that nobody watched over: its numbers count for nothing, whatever they are."""

    code = "VOID"


class Unavailable(WorldlineError):
    """A process or a link that is needed did not answer. Says nothing about what was done."""

    exit_code = 6
    http_status = 503


class HostGone(Unavailable):
    """The host's process has ended or its socket is closed."""

    code = "HOST_GONE"


class ControllerGone(Unavailable):
    """The controller can't be reached; sessions play on."""

    code = "CONTROLLER_GONE"


class RecordFailed(Unavailable):
    """The disk of the record or of an image fails: what was asked for is not known to be kept. Asking again is safe."""

    code = "RECORD_FAILED"


class LinkCut(Unavailable):
    """The data-plane link closed before the move was sealed."""

    code = "LINK_CUT"


class TimedOut(Unavailable):
    """No answer within the time allowed."""

    code = "TIMEOUT"


class MissingExtra(WorldlineError):
    """A part of the package that is not installed; the sentence says what to install."""

    code = "MISSING_EXTRA"
    exit_code = 7
    http_status = 501


class Unsupported(WorldlineError):
    """The kernel or this process's rights lack something; the sentence says what, and what would help."""

    code = "UNSUPPORTED"
    exit_code = 8
    http_status = 501


class Internal(WorldlineError):
    """A broken invariant of ours, never a user's doing."""

    code = "INTERNAL"
    exit_code = 70


def _leaves(cls: type[WorldlineError]) -> list[type[WorldlineError]]:
    below = [leaf for sub in cls.__subclasses__() for leaf in _leaves(sub)]
    return ([cls] if "code" in vars(cls) else []) + below


BY_CODE: Mapping[str, type[WorldlineError]] = {cls.code: cls for cls in _leaves(WorldlineError)}
"""Every concrete class by its code."""


def from_record(code: str, sentence: str, facts: Mapping[str, Fact]) -> WorldlineError:
    """The error that `to_record` wrote in another process; an unknown code becomes `Internal` and keeps its name."""
    cls = BY_CODE.get(code)
    if cls is None:
        return Internal(f"{code}: {sentence}", **facts)
    return cls(sentence, **facts)
