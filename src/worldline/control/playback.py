"""The gateway's core: one session's numbered actions and ordered blocks, over changes of its owner.

Invariants
  Actions are taken in order 1, 2, 3, ... and kept until a block that applied them has come; whoever owns the session is
  sent every one it has not applied, so none is lost; numbers let it drop what it applied, so none counts twice.
  Blocks are delivered in order, each at most once. A block that nobody can bring any more is told as `Missed`, never
  passed over in silence.
  A block of an owner whose time is over counts only up to the cut at which the next owner began.
  Nothing grows without a bound.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from worldline.errors import ActionGap, SessionParked, TimedOut
from worldline.schema.ids import Epoch, HostId


@dataclass(frozen=True, slots=True)
class PlayLimits:
    actions_max: int = 256
    """Actions without an answer; a player who sends more is refused."""
    blocks_max: int = 256
    """Blocks that wait for earlier ones."""
    reigns_max: int = 8
    """Owners of the past whose late blocks are still judged; older ones bring nothing."""
    wait_s: float = 2.0
    """How long a new owner's block waits for the last ones of the owner before it."""


# ---- events


@dataclass(frozen=True, slots=True)
class ActionIn:
    """From the player."""

    number: int
    action: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The player takes back the actions from `number` on: none of them is applied, and nobody owns the session who
    could.
    """

    number: int


@dataclass(frozen=True, slots=True)
class BlockIn:
    """From a host. `content` is carried, never looked at."""

    epoch: Epoch
    block: int
    number: int
    content: object


@dataclass(frozen=True, slots=True)
class RejectedIn:
    """From a host: it did not take action `number` and waits for `expected`."""

    epoch: Epoch
    number: int
    expected: int


@dataclass(frozen=True, slots=True)
class OwnerChanged:
    """The record names another owner (None: parked). Blocks up to `cut_block` are for the owner before it to show."""

    host: HostId | None
    epoch: Epoch
    cut_block: int


@dataclass(frozen=True, slots=True)
class HostLinkUp:
    """Attached to the owner of `epoch`: it has applied actions up to `number`, and sends blocks after `block`."""

    epoch: Epoch
    block: int
    number: int


@dataclass(frozen=True, slots=True)
class HostLinkDown:
    """Nothing more comes from the owner of `epoch`, unless a `HostLinkUp` follows."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Waited:
    """The time of `wake_at_s` has come."""


PlayEvent: TypeAlias = ActionIn | Withdrawn | BlockIn | RejectedIn | OwnerChanged | HostLinkUp | HostLinkDown | Waited


# ---- commands


@dataclass(frozen=True, slots=True)
class SendAct:
    host: HostId
    epoch: Epoch
    number: int
    action: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """The player's next block."""

    block: BlockIn


@dataclass(frozen=True, slots=True)
class Missed:
    """Blocks that were generated, and whose frames went with a host or a link: the world is whole, the show is not."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class DropStale:
    """A block that is no longer, or not, this owner's to show; for logs and counts."""

    epoch: Epoch
    block: int


@dataclass(frozen=True, slots=True)
class Reject:
    """To the player: the action was not taken; `expected` is the number to go on with."""

    number: int
    expected: int
    code: str
    sentence: str


PlayCommand: TypeAlias = SendAct | Deliver | Missed | DropStale | Reject


@dataclass(slots=True)
class _Reign:
    """One owner: its blocks are those after `cut_block`, up to the next reign's."""

    host: HostId | None
    epoch: Epoch
    cut_block: int
    seen_block: int
    """Blocks up to here have come or will not come: a link keeps order."""
    linked: bool = False


class Playback:
    """One session at the gateway. `handle` is the only way in; times are monotonic seconds."""

    def __init__(self, owner: OwnerChanged, block: int, number: int, limits: PlayLimits | None = None) -> None:
        """A player who joins after `block` blocks and `number` applied actions (0, 0: from the start)."""
        self._limits = limits or PlayLimits()
        self._reigns = [_Reign(owner.host, owner.epoch, owner.cut_block, max(owner.cut_block, block))]
        self._delivered = block
        self._taken = number
        self._applied = number
        self._pending: deque[ActionIn] = deque()
        self._early: dict[int, BlockIn] = {}
        self._wake_at_s: float | None = None

    @property
    def delivered_block(self) -> int:
        """The last block delivered, or told as missed."""
        return self._delivered

    @property
    def expected_number(self) -> int:
        """The number of the next action."""
        return self._taken + 1

    @property
    def unanswered(self) -> int:
        return len(self._pending)

    @property
    def wake_at_s(self) -> float | None:
        """When the driver must say `Waited`."""
        return self._wake_at_s

    def handle(self, event: PlayEvent, now_s: float) -> list[PlayCommand]:
        """What to do now, in order."""
        match event:
            case ActionIn():
                return self._action(event)
            case Withdrawn():
                return self._withdraw(event)
            case BlockIn():
                return self._block(event, now_s)
            case RejectedIn():
                return self._rejected(event)
            case OwnerChanged():
                return self._owner_changed(event, now_s)
            case HostLinkUp():
                return self._link_up(event, now_s)
            case HostLinkDown():
                reign = self._reign_of_epoch(event.epoch)
                if reign is not None:
                    reign.linked = False
                return self._drain(now_s)
            case Waited():
                if self._wake_at_s is not None and now_s >= self._wake_at_s:
                    for reign in self._reigns[:-1]:
                        reign.linked = False
                return self._drain(now_s)
            case _:
                assert_never(event)

    # ---- actions

    def _action(self, event: ActionIn) -> list[PlayCommand]:
        owner = self._reigns[-1]
        if event.number <= self._taken:
            return []
        expected = self.expected_number
        if event.number != expected:
            sentence = f"action {event.number} came where {expected} was due: one was lost"
            return [Reject(event.number, expected, ActionGap.code, sentence)]
        if owner.host is None:
            return [Reject(event.number, expected, SessionParked.code, "the session is parked; resume it first")]
        if len(self._pending) >= self._limits.actions_max:
            sentence = f"{len(self._pending)} actions have no answer yet"
            return [Reject(event.number, expected, TimedOut.code, sentence)]
        self._taken = event.number
        self._pending.append(event)
        return self._send(event.number)

    def _withdraw(self, event: Withdrawn) -> list[PlayCommand]:
        while self._reigns[-1].host is None and self._pending and self._pending[-1].number >= event.number:
            self._taken = self._pending.pop().number - 1
        return []

    def _send(self, first: int) -> list[PlayCommand]:
        """Kept actions from number `first` on, to the owner, if it is attached."""
        owner = self._reigns[-1]
        if owner.host is None or not owner.linked:
            return []
        return [
            SendAct(owner.host, owner.epoch, action.number, action.action)
            for action in self._pending
            if action.number >= first
        ]

    def _rejected(self, event: RejectedIn) -> list[PlayCommand]:
        if event.epoch != self._reigns[-1].epoch:
            return []
        if any(action.number == event.expected for action in self._pending):
            return self._send(event.expected)
        sentence = f"the host waits for action {event.expected}, which was answered before or never taken"
        return [Reject(event.number, self.expected_number, ActionGap.code, sentence)]

    # ---- owners

    def _owner_changed(self, event: OwnerChanged, now_s: float) -> list[PlayCommand]:
        if event.epoch <= self._reigns[-1].epoch:
            return []
        self._reigns.append(_Reign(event.host, event.epoch, event.cut_block, event.cut_block))
        del self._reigns[: -self._limits.reigns_max]
        stale = [block for block in self._early.values() if not self._counts(block)]
        for block in stale:
            del self._early[block.block]
        self._wake_at_s = None
        return [*(DropStale(block.epoch, block.block) for block in stale), *self._drain(now_s)]

    def _link_up(self, event: HostLinkUp, now_s: float) -> list[PlayCommand]:
        reign = self._reign_of_epoch(event.epoch)
        if reign is None:
            return []
        reign.linked = True
        reign.seen_block = max(reign.seen_block, event.block)
        self._answer(event.number)
        resent = self._send(event.number + 1) if reign is self._reigns[-1] else []
        return [*resent, *self._drain(now_s)]

    def _reign_of_epoch(self, epoch: Epoch) -> _Reign | None:
        return next((reign for reign in self._reigns if reign.epoch == epoch), None)

    # ---- blocks

    def _counts(self, event: BlockIn) -> bool:
        """Whether the block is of a known owner and within its time."""
        for reign, successor in zip(self._reigns, [*self._reigns[1:], None], strict=True):
            if reign.epoch == event.epoch:
                return reign.cut_block < event.block and (successor is None or event.block <= successor.cut_block)
        return False

    def _block(self, event: BlockIn, now_s: float) -> list[PlayCommand]:
        repeated = event.block <= self._delivered or event.block in self._early
        if repeated or not self._counts(event) or len(self._early) >= self._limits.blocks_max:
            return [DropStale(event.epoch, event.block)]
        reign = self._reign_of_epoch(event.epoch)
        assert reign is not None, "a block that counts has an owner"
        reign.seen_block = max(reign.seen_block, event.block)
        self._early[event.block] = event
        return self._drain(now_s)

    def _drain(self, now_s: float) -> list[PlayCommand]:
        """Delivers what is next, for as long as it is here; tells what can't come; else waits, but not for ever."""
        commands: list[PlayCommand] = []
        while True:
            following = self._delivered + 1
            block = self._early.pop(following, None)
            if block is not None:
                self._answer(block.number)
                commands.append(Deliver(block))
            elif self._hopeless(following):
                last = commands[-1] if commands else None
                if isinstance(last, Missed):
                    commands[-1] = Missed(last.first, following)
                else:
                    commands.append(Missed(following, following))
            else:
                break
            self._delivered = following
        self._set_wake(now_s)
        return commands

    def _set_wake(self, now_s: float) -> None:
        """A wait begins when a later owner's block is here and an earlier owner's is due."""
        if self._delivered >= self._reigns[-1].cut_block or not self._early:
            self._wake_at_s = None
        elif self._wake_at_s is None:
            self._wake_at_s = now_s + self._limits.wait_s

    def _hopeless(self, block: int) -> bool:
        """Whether nobody can bring this block any more although it was generated."""
        owner = self._reigns[-1]
        if block > owner.cut_block:
            return block <= owner.seen_block
        theirs = next((reign for reign in reversed(self._reigns) if reign.cut_block < block), None)
        return theirs is None or block <= theirs.seen_block or not theirs.linked

    def _answer(self, number: int) -> None:
        self._applied = max(self._applied, number)
        while self._pending and self._pending[0].number <= self._applied:
            self._pending.popleft()
