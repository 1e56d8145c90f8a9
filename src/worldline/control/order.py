"""What the hand-over machine hears and says: the order, the events and the commands of one move, park or resume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from worldline.errors import Fact
from worldline.schema.contract import Contract
from worldline.schema.ids import Epoch, HostId, MoveId, SessionId
from worldline.schema.receipt import Mode, Receipt


@dataclass(frozen=True, slots=True)
class Owner:
    """Who may generate the session's next block: a host, or nobody while the session lies in an image."""

    host: HostId | None
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt to change a session's owner.

    `source` is None for a resume, `target` for a park; `image` is the file of either.
    """

    move: MoveId
    session: SessionId
    mode: Mode
    source: HostId | None
    target: HostId | None
    epoch: Epoch
    """In force when the order was given."""
    contract: Contract
    hands_over: bool = False
    """The transport hands the source's arena over, so the source is fenced before the target may write."""
    image: str | None = None

    @property
    def before(self) -> Owner:
        return Owner(self.source, self.epoch)

    @property
    def after(self) -> Owner:
        return Owner(self.target, Epoch(self.epoch + 1))

    @property
    def returned(self) -> Owner:
        """Who owns the session again where the target has ended before it was known to play."""
        return Owner(self.source, Epoch(self.epoch + 2))


class Side(StrEnum):
    SOURCE = "source"
    TARGET = "target"


class Call(StrEnum):
    """A request to a host, named so that an answer can be told from the late answer to another one."""

    PREPARE_TARGET = "prepare-target"
    RUN_SOURCE = "run-source"
    AWAIT_PREPARED = "await-prepared"
    WRITE_IMAGE = "write-image"
    LOAD_IMAGE = "load-image"
    ACTIVATE = "activate"
    RETIRE = "retire"
    DISCARD = "discard"
    THAW = "thaw"


SIDE_OF: Mapping[Call, Side] = {
    Call.PREPARE_TARGET: Side.TARGET,
    Call.RUN_SOURCE: Side.SOURCE,
    Call.AWAIT_PREPARED: Side.TARGET,
    Call.WRITE_IMAGE: Side.SOURCE,
    Call.LOAD_IMAGE: Side.TARGET,
    Call.ACTIVATE: Side.TARGET,
    Call.RETIRE: Side.SOURCE,
    Call.DISCARD: Side.TARGET,
    Call.THAW: Side.SOURCE,
}


class JournalPhase(StrEnum):
    """What is durable about an order. COMMITTED and RETURNED are written by the transactions that change the owner, and
    by nothing else.
    """

    BEGUN = "begun"
    COMMITTED = "committed"
    ACTIVATED = "activated"
    """The target was heard to have taken the session up: from here on frames of its epoch may have been seen."""
    RETURNED = "returned"
    """The target had ended before that: the source, or the image, owns the session again."""
    ABORTED = "aborted"
    DONE = "done"


class Outcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    """Nothing was installed; the session is where it was (or lost with its host, if `lost` says so)."""
    RETURNED = "returned"
    """The target ended after the commit and before it was known to play: the session is where it was, two epochs
    later.
    """
    LOST = "lost"
    """The owner of the record is gone for good, and with it the state."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an order was refused."""

    code: str
    sentence: str
    facts: Mapping[str, Fact] = field(default_factory=dict)


# ---- events


@dataclass(frozen=True, slots=True)
class Begin:
    """Admission has passed."""


@dataclass(frozen=True, slots=True)
class TargetReady:
    """Answer to `PrepareTarget`: where the source connects."""

    transport: str
    address: str
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SourceProgress:
    round: int
    bytes_moved: int
    dirty_bytes: int
    frozen: bool
    note: str


@dataclass(frozen=True, slots=True)
class SourceSealed:
    """Answer to `RunSource`. `root` is hex."""

    root: str
    block: int
    number: int
    frozen_at_s: float
    bytes_moved: int
    rounds: int


@dataclass(frozen=True, slots=True)
class TargetPrepared:
    """Answer to `AwaitPrepared` and `LoadImage`."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class ImageWritten:
    """Answer to `WriteImage`."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Swapped:
    """The transaction of `SwapOwner` or `ReturnOwner` has ended. `ok` False: the record named another owner, or this
    order's journal entry was not the one demanded.
    """

    ok: bool


@dataclass(frozen=True, slots=True)
class SwapUnknown:
    """Nobody knows whether the transaction of `SwapOwner` or `ReturnOwner` was made."""

    sentence: str


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """Answer to `ReadOwner`. A swap that is still running is ordered before the read."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class Activated:
    pass


@dataclass(frozen=True, slots=True)
class Retired:
    pass


@dataclass(frozen=True, slots=True)
class Discarded:
    pass


@dataclass(frozen=True, slots=True)
class Thawed:
    pass


@dataclass(frozen=True, slots=True)
class PeerFailed:
    """A call ended in an error: the host answered it, or can't be reached now."""

    call: Call
    code: str
    sentence: str
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostGone:
    """The host's process is known to have ended: nothing of it runs or writes. Not reaching it is `PeerFailed`."""

    who: Side


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The time of `wake_at_s` has come."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The controller has started again: what its journal and its record say."""

    phase: JournalPhase
    owner: Owner
    receipt: Receipt | None
    goes_on: bool = False
    """A move that was begun is taken up where its hosts have it, and not given up: what it needs is booked again."""


Event: TypeAlias = (
    Begin
    | TargetReady
    | SourceProgress
    | SourceSealed
    | TargetPrepared
    | ImageWritten
    | Swapped
    | SwapUnknown
    | OwnerRead
    | Activated
    | Retired
    | Discarded
    | Thawed
    | PeerFailed
    | HostGone
    | DeadlinePassed
    | Recovered
)


# ---- commands, started in order; `Journal`, `SwapOwner` and `ReturnOwner` are durable before the next one starts


@dataclass(frozen=True, slots=True)
class Journal:
    phase: JournalPhase
    facts: Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class PrepareTarget:
    """Answer `TargetReady` or `PeerFailed`."""


@dataclass(frozen=True, slots=True)
class RunSource:
    """Answer `SourceSealed` or `PeerFailed`, with `SourceProgress` before it."""

    transport: str
    address: str
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RejoinSource:
    """As `RunSource`, for a source that has the attempt under way; one that has not is `PeerFailed`."""


@dataclass(frozen=True, slots=True)
class AwaitPrepared:
    """Answer `TargetPrepared` or `PeerFailed`. Runs beside `RunSource`, so that a refusal is heard at once."""


@dataclass(frozen=True, slots=True)
class WriteImage:
    """Answer `ImageWritten` or `PeerFailed`."""

    image: str


@dataclass(frozen=True, slots=True)
class LoadImage:
    """Answer `TargetPrepared` or `PeerFailed`."""

    image: str


@dataclass(frozen=True, slots=True)
class SwapOwner:
    """THE COMMIT, one durable transaction.

    If the record says `before` and this order's journal entry is still BEGUN, the record becomes `after`, the entry
    COMMITTED, and the receipt is kept. Answer `Swapped` or `SwapUnknown`.
    """

    before: Owner
    after: Owner
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class ReturnOwner:
    """The way back, one durable transaction; only where the target is known to have ended.

    If the record says `before` and this order's journal entry is still COMMITTED, the record becomes `after`, with the
    cut of the commit, and the entry RETURNED with its reason. Answer `Swapped` or `SwapUnknown`.
    """

    before: Owner
    after: Owner
    why: Failure


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """Read the record; answer `OwnerRead`. Asked again after `delay_s` where it can't be read."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Activate:
    """Answer `Activated` or `PeerFailed`."""

    epoch: Epoch
    delay_s: float


@dataclass(frozen=True, slots=True)
class Retire:
    """Answer `Retired` or `PeerFailed`."""

    epoch: Epoch
    """The epoch that is over."""
    delay_s: float


@dataclass(frozen=True, slots=True)
class Discard:
    """Answer `Discarded` or `PeerFailed`."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Thaw:
    """Answer `Thawed` or `PeerFailed`."""

    delay_s: float
    epoch: Epoch | None = None
    """Under which the source plays on; None: the one it has."""


@dataclass(frozen=True, slots=True)
class PublishOwner:
    """Tell the gateway: the record's owner, and the last block that the owner before it may show."""

    owner: Owner
    cut_block: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The order is over. `lost`: the session's state went with its host. `note` is for people."""

    outcome: Outcome
    error: Failure | None
    lost: bool = False
    note: str | None = None


Command: TypeAlias = (
    Journal
    | PrepareTarget
    | RunSource
    | RejoinSource
    | AwaitPrepared
    | WriteImage
    | LoadImage
    | SwapOwner
    | ReturnOwner
    | ReadOwner
    | Activate
    | Retire
    | Discard
    | Thaw
    | PublishOwner
    | Finish
)
