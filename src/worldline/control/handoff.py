"""The controller's machine for one change of owner: move, park or resume. Its words are in `control.order`.

Invariants
  `SwapOwner` is asked for at most once, and only for a receipt whose two roots are equal.
  Before the swap an order can only be given up: ABORTED journalled first, then the target discarded, the source thawed.
  After the swap it can only be completed, unless the target is known to have ended before it was known to play: no
  bound and no silence undoes it, and nothing thaws the source that a second swap has not made the owner again.
  That second swap and the line ACTIVATED exclude each other, and nobody is told of the target before ACTIVATED is
  durable. So no frame of an epoch that was taken back was ever seen.
  An unknown outcome of a swap is read from the record, never assumed.
  A handed-over arena is activated only after its source is fenced or dead.
  Recovery is a function of the last durable phase and of the record. A move that was begun is given up, or, where the
  caller says so, taken up at its hosts; whichever of them does not have it ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from worldline.control.handoff_table import TRANSITIONS, Phase
from worldline.control.handoff_terms import UNANSWERED, Patience, Retries, contradiction
from worldline.control.order import (
    SIDE_OF,
    Activate,
    Activated,
    AwaitPrepared,
    Begin,
    Call,
    Command,
    DeadlinePassed,
    Discard,
    Discarded,
    Event,
    Failure,
    Finish,
    HostGone,
    ImageWritten,
    Journal,
    JournalPhase,
    LoadImage,
    Order,
    Outcome,
    Owner,
    OwnerRead,
    PeerFailed,
    PrepareTarget,
    PublishOwner,
    ReadOwner,
    Recovered,
    RejoinSource,
    Retire,
    Retired,
    ReturnOwner,
    RunSource,
    Side,
    SourceProgress,
    SourceSealed,
    SwapOwner,
    Swapped,
    SwapUnknown,
    TargetPrepared,
    TargetReady,
    Thaw,
    Thawed,
    WriteImage,
)
from worldline.errors import ControllerGone, DeadlineMissed, Fact, Internal, StaleEpoch, StateLost
from worldline.errors import HostGone as HostGoneError
from worldline.migration.story import Story
from worldline.schema.receipt import Mode, Receipt
from worldline.units import format_seconds


class Handoff:
    """Drives one order. `handle` is the only way in; times are monotonic seconds, shared with the hosts."""

    def __init__(self, order: Order, started_at_s: float, retries: Retries | None = None) -> None:
        self.phase = Phase.NEW
        self._order = order
        self._deadline_at_s = started_at_s + order.contract.completion_deadline_s
        self._story = Story("hand-over", started_at_s)
        self._sealed: SourceSealed | None = None
        self._receipt: Receipt | None = None
        self._patience = Patience(retries or Retries())
        self._gone: set[Side] = set()
        self._source_silent = False
        """`RunSource` will not be answered. If the target proves a seal, the source sent it and is frozen or dead."""
        self._dispossessed = False
        """The record names neither owner of this order, so the source may not play on."""
        self._awaited: set[Call] = set()
        """ABORTING: calls whose success ends the order."""
        self._failure: Failure | None = None
        self._outcome = Outcome.DONE
        """Of an order that was committed."""
        self._note: str | None = None

    @property
    def story(self) -> tuple[str, ...]:
        """The last lines of what happened."""
        return self._story.lines

    @property
    def wake_at_s(self) -> float | None:
        """When the driver must say `DeadlinePassed`, unless something else happens before."""
        if self.phase not in (Phase.PREPARING, Phase.COPYING, Phase.VERIFYING):
            return None
        if self._sealed is None:
            return self._deadline_at_s
        return min(self._deadline_at_s, self._sealed.frozen_at_s + self._order.contract.pause_bound_s)

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """What to do now, in order. Raises `IllegalTransition` for an event that this phase does not know."""
        known = TRANSITIONS[self.phase].get(type(event))
        if known is None:
            raise self._story.illegal(self.phase, event)
        commands = self._react(event, now_s)
        assert self.phase in known, f"{type(event).__name__} led to {self.phase}, which the table does not have"
        return commands

    def _react(self, event: Event, now_s: float) -> list[Command]:
        if self.phase is Phase.ENDED:
            return []
        match event:
            case Begin():
                return self._begin(now_s)
            case TargetReady() if self.phase is Phase.PREPARING:
                self._enter(Phase.COPYING, "the target is ready", now_s)
                return [RunSource(event.transport, event.address, event.key), AwaitPrepared()]
            case SourceProgress():
                self._story.tell(now_s, f"source, round {event.round}: {event.note}")
                return []
            case SourceSealed() if self.phase is Phase.COPYING:
                return self._source_sealed(event, now_s)
            case TargetPrepared() if self.phase in (Phase.PREPARING, Phase.COPYING, Phase.VERIFYING):
                return self._proof(event.receipt, now_s)
            case ImageWritten() if self.phase is Phase.COPYING and self._order.mode is Mode.PARK:
                return self._proof(event.receipt, now_s)
            case TargetReady() | SourceSealed() | TargetPrepared() | ImageWritten():
                return []
            case Swapped():
                return self._swapped(event, now_s)
            case SwapUnknown():
                self._story.tell(now_s, f"the swap's outcome is unknown ({event.sentence}); reading the record")
                again = self.phase is Phase.RETURNING
                return [ReadOwner(self._patience.next_delay_s(None) if again else 0.0)]
            case OwnerRead() if self.phase is Phase.RETURNING:
                return self._owner_read_again(event, now_s)
            case OwnerRead():
                return self._owner_read(event, now_s)
            case Activated():
                return self._activated(now_s) if self.phase is Phase.ACTIVATING else []
            case Retired():
                return self._retired(now_s)
            case Discarded():
                return self._settled(Call.DISCARD, now_s)
            case Thawed() if self.phase is Phase.THAWING:
                return self._returned(now_s)
            case Thawed():
                return self._settled(Call.THAW, now_s)
            case PeerFailed():
                return self._peer_failed(event, now_s)
            case HostGone():
                return self._host_gone(event.who, now_s)
            case DeadlinePassed():
                return self._deadline(now_s)
            case Recovered():
                return self._recovered(event, now_s)
            case _:
                assert_never(event)

    def _enter(self, phase: Phase, line: str, now_s: float) -> None:
        self.phase = phase
        self._story.tell(now_s, line)

    # ---- before the swap

    def _begin(self, now_s: float) -> list[Command]:
        order = self._order
        facts: dict[str, Fact] = {"source": order.source, "target": order.target, "epoch": order.epoch}
        begun = Journal(JournalPhase.BEGUN, facts)
        match order.mode:
            case Mode.FREEZE | Mode.PRECOPY:
                self._enter(Phase.PREPARING, f"{order.mode.value} from {order.source} to {order.target}", now_s)
                return [begun, PrepareTarget()]
            case Mode.PARK:
                assert order.image is not None, "a park has an image"
                self._enter(Phase.COPYING, f"park from {order.source}", now_s)
                return [begun, WriteImage(order.image)]
            case Mode.RESUME:
                assert order.image is not None, "a resume has an image"
                self._enter(Phase.PREPARING, f"resume at {order.target}", now_s)
                return [begun, LoadImage(order.image)]
            case _:
                assert_never(order.mode)

    def _source_sealed(self, event: SourceSealed, now_s: float) -> list[Command]:
        self._sealed = event
        self._enter(Phase.VERIFYING, f"the source is sealed at block {event.block}", now_s)
        return self._proof(self._receipt, now_s) if self._receipt is not None else []

    def _proof(self, receipt: Receipt, now_s: float) -> list[Command]:
        """The swap, if the receipt proves this order and every bound is still kept.

        A move waits for the source's own word too, which says when the pause began, unless the source fell silent.
        """
        self._receipt = receipt
        if self.phase is Phase.COPYING and self._order.mode is not Mode.PARK and not self._source_silent:
            return []
        late = self._deadline(now_s)
        if late:
            return late
        wrong = contradiction(self._order, self._sealed, receipt)
        if wrong is not None:
            return self._give_up(wrong, now_s)
        self._enter(Phase.COMMITTING, f"proven at block {receipt.block}", now_s)
        return [SwapOwner(self._order.before, self._order.after, receipt)]

    def _deadline(self, now_s: float) -> list[Command]:
        wake_at_s = self.wake_at_s
        if wake_at_s is None or now_s < wake_at_s:
            return []
        contract = self._order.contract
        if wake_at_s < self._deadline_at_s:
            sentence = f"the session would have been paused for longer than {format_seconds(contract.pause_bound_s)}"
        else:
            sentence = f"the move did not complete within {format_seconds(contract.completion_deadline_s)}"
        return self._give_up(Failure(DeadlineMissed.code, sentence), now_s)

    # ---- giving up

    def _give_up(self, failure: Failure, now_s: float) -> list[Command]:
        self._failure = failure
        self._enter(Phase.ABORTING, f"given up, {failure.code}: {failure.sentence}", now_s)
        facts: Mapping[str, Fact] = {"code": failure.code, "sentence": failure.sentence}
        return [Journal(JournalPhase.ABORTED, facts), *self._undo(now_s)]

    def _undo(self, now_s: float) -> list[Command]:
        commands: list[Command] = []
        if self._order.target is not None and Side.TARGET not in self._gone:
            self._awaited.add(Call.DISCARD)
            commands.append(Discard(0.0))
        if self._order.source is not None and Side.SOURCE not in self._gone:
            call = Call.RETIRE if self._dispossessed else Call.THAW
            self._awaited.add(call)
            commands.append(Retire(self._order.epoch, 0.0) if self._dispossessed else Thaw(0.0))
        return commands or self._finish_refused(now_s)

    def _settled(self, call: Call, now_s: float) -> list[Command]:
        self._awaited.discard(call)
        return [] if self._awaited else self._finish_refused(now_s)

    def _finish_refused(self, now_s: float) -> list[Command]:
        lost = Side.SOURCE in self._gone
        self._enter(Phase.ENDED, "refused; the session's state went with its host" if lost else "refused", now_s)
        return [Finish(Outcome.REFUSED, self._failure, lost, self._note)]

    # ---- after the swap

    def _swapped(self, event: Swapped, now_s: float) -> list[Command]:
        if not event.ok:
            self._story.tell(now_s, "the swap was not made; reading the record")
            return [ReadOwner(0.0)]
        if self.phase is Phase.RETURNING:
            return self._thaw_again(now_s)
        self._story.tell(now_s, f"COMMITTED: {self._order.target or 'the image'} owns epoch {self._order.after.epoch}")
        return self._complete(now_s)

    def _owner_read(self, event: OwnerRead, now_s: float) -> list[Command]:
        if event.owner == self._order.after:
            return self._swapped(Swapped(ok=True), now_s)
        self._dispossessed = event.owner != self._order.before
        whose = f"{event.owner.host or 'nobody'} with epoch {event.owner.epoch}"
        return self._give_up(Failure(StaleEpoch.code, f"the swap was not made: the record names {whose}"), now_s)

    def _complete(self, now_s: float) -> list[Command]:
        """From the swap to the end; every step may be repeated."""
        order = self._order
        if order.target is None:
            return [*self._publish(order.after), *self._retire(now_s)]
        if Side.TARGET in self._gone:
            return self._take_back(now_s)
        if order.source is not None and order.hands_over and Side.SOURCE not in self._gone:
            self._enter(Phase.FENCING, "the source lets go first: its arena was handed over", now_s)
            return [Retire(order.epoch, 0.0)]
        return self._activate(now_s)

    def _publish(self, owner: Owner) -> list[Command]:
        assert self._receipt is not None, "a committed order has its receipt"
        return [PublishOwner(owner, self._receipt.block)]

    def _activate(self, now_s: float) -> list[Command]:
        self._enter(Phase.ACTIVATING, f"{self._order.target} takes the session up", now_s)
        return [Activate(self._order.after.epoch, 0.0)]

    def _activated(self, now_s: float) -> list[Command]:
        self._story.tell(now_s, f"ACTIVATED: {self._order.target} plays")
        return [Journal(JournalPhase.ACTIVATED, {}), *self._hand_on(now_s)]

    def _hand_on(self, now_s: float) -> list[Command]:
        """The target is known to play, durably: now it may be told of, and the source may go."""
        published = self._publish(self._order.after)
        return [*published, *(self._finish(now_s) if self._order.hands_over else self._retire(now_s))]

    def _retire(self, now_s: float) -> list[Command]:
        if self._order.source is None or Side.SOURCE in self._gone:
            return self._finish(now_s)
        self._enter(Phase.RETIRING, f"{self._order.source} lets go", now_s)
        return [Retire(self._order.epoch, 0.0)]

    def _retired(self, now_s: float) -> list[Command]:
        if self.phase is Phase.ABORTING:
            return self._settled(Call.RETIRE, now_s)
        if self.phase is Phase.FENCING:
            return self._lost(now_s) if Side.TARGET in self._gone else self._activate(now_s)
        return self._finish(now_s) if self.phase is Phase.RETIRING else []

    def _finish(self, now_s: float) -> list[Command]:
        outcome = self._outcome
        self._enter(Phase.ENDED, outcome.value, now_s)
        facts: Mapping[str, Fact] = {"outcome": outcome.value, "note": self._note}
        done = Finish(outcome, self._failure, lost=outcome is Outcome.LOST, note=self._note)
        return [Journal(JournalPhase.DONE, facts), done]

    def _lost(self, now_s: float) -> list[Command]:
        """The owner of the record is gone, and nobody has what it had. A source that stands may not play on."""
        self._outcome = Outcome.LOST
        host = self._order.source if self.phase is Phase.THAWING else self._order.target
        self._failure = Failure(StateLost.code, f"host {host} ended after the session had become its own")
        fenced = self._order.hands_over and self.phase in (Phase.FENCING, Phase.ACTIVATING)
        return self._finish(now_s) if fenced else self._retire(now_s)

    # ---- the way back

    def _take_back(self, now_s: float) -> list[Command]:
        """The target has ended, and nobody was told of it. The bytes of the cut stand at a source that was neither
        fenced nor retired, or lie in the image: a second swap gives the session back.
        """
        order, gone = self._order, self._gone
        fenced = order.hands_over and self.phase is not Phase.COMMITTING
        if fenced or (order.source is not None and Side.SOURCE in gone):
            return self._lost(now_s)
        self._failure = Failure(
            HostGoneError.code,
            f"host {order.target} ended before it was known to play; the session is back at {self._origin}",
            {"host": order.target, "epoch": order.returned.epoch},
        )
        self._enter(Phase.RETURNING, f"{order.target} never played: back to {self._origin}", now_s)
        return [self._return_owner()]

    @property
    def _origin(self) -> str:
        return self._order.source or "its image"

    def _return_owner(self) -> ReturnOwner:
        assert self._failure is not None, "who takes back says why"
        return ReturnOwner(self._order.after, self._order.returned, self._failure)

    def _owner_read_again(self, event: OwnerRead, now_s: float) -> list[Command]:
        if event.owner == self._order.returned:
            return self._thaw_again(now_s)
        if event.owner == self._order.after:
            return [self._return_owner()]
        return self._lost(now_s)

    def _thaw_again(self, now_s: float) -> list[Command]:
        """The record names the source again, or the image."""
        owner = self._order.returned
        self._outcome = Outcome.RETURNED
        self._story.tell(now_s, f"RETURNED: {self._origin} owns epoch {owner.epoch}, at the cut of the commit")
        if owner.host is None:
            return [*self._publish(owner), *self._finish(now_s)]
        self._enter(Phase.THAWING, f"{owner.host} plays on under epoch {owner.epoch}", now_s)
        return self._lost(now_s) if Side.SOURCE in self._gone else [Thaw(0.0, owner.epoch)]

    def _returned(self, now_s: float) -> list[Command]:
        return [*self._publish(self._order.returned), *self._finish(now_s)]

    # ---- trouble

    def _peer_failed(self, event: PeerFailed, now_s: float) -> list[Command]:
        """Before the swap a failed call ends the order, after it the call is repeated; a past call's is dropped."""
        self._story.tell(now_s, f"{event.call.value} failed, {event.code}: {event.sentence}")
        match self.phase:
            case Phase.PREPARING | Phase.COPYING | Phase.VERIFYING:
                return self._failed_before(event, now_s)
            case Phase.FENCING if event.call is Call.RETIRE:
                return [Retire(self._order.epoch, self._patience.next_delay_s(event.call))]
            case Phase.ACTIVATING if event.call is Call.ACTIVATE:
                if self._patience.denied(event.code):
                    return self._lost_by(event, now_s)
                return [Activate(self._order.after.epoch, self._patience.next_delay_s(event.call))]
            case Phase.THAWING if event.call is Call.THAW:
                return [Thaw(self._patience.next_delay_s(event.call), self._order.returned.epoch)]
            case Phase.RETIRING if event.call is Call.RETIRE:
                if self._patience.exhausted(event.call):
                    self._note = f"{self._order.source} did not let go: {event.sentence}"
                    return self._finish(now_s)
                return [Retire(self._order.epoch, self._patience.next_delay_s(event.call))]
            case Phase.ABORTING if event.call in self._awaited:
                return self._retry_undo(event.call, now_s)
            case _:
                return []

    def _failed_before(self, event: PeerFailed, now_s: float) -> list[Command]:
        if event.call is Call.RUN_SOURCE and self.phase is Phase.VERIFYING:
            return []
        if event.call is Call.RUN_SOURCE and event.code in UNANSWERED:
            return self._source_fell_silent(now_s)
        if Side.SOURCE in self._gone:
            return self._give_up(self._gone_failure(Side.SOURCE), now_s)
        return self._give_up(Failure(event.code, event.sentence, event.facts), now_s)

    def _source_fell_silent(self, now_s: float) -> list[Command]:
        """It may have sent everything and sealed: the target says so, or fails, or the deadline passes."""
        self._source_silent = True
        return self._proof(self._receipt, now_s) if self._receipt is not None else []

    def _gone_failure(self, who: Side) -> Failure:
        host = self._order.source if who is Side.SOURCE else self._order.target
        return Failure(HostGoneError.code, f"host {host} ended before the move was committed", {"host": host})

    def _lost_by(self, event: PeerFailed, now_s: float) -> list[Command]:
        self._outcome, self._failure = Outcome.LOST, Failure(event.code, event.sentence, event.facts)
        return self._finish(now_s) if self._order.hands_over else self._retire(now_s)

    def _retry_undo(self, call: Call, now_s: float) -> list[Command]:
        """A source that can't be reached stays frozen, so its thaw is repeated without end; a discard is not."""
        if call is Call.THAW:
            return [Thaw(self._patience.next_delay_s(call))]
        if call is Call.RETIRE:
            return [Retire(self._order.epoch, self._patience.next_delay_s(call))]
        if self._patience.exhausted(call):
            self._note = f"{self._order.target} did not confirm that it forgot the attempt"
            return self._settled(call, now_s)
        return [Discard(self._patience.next_delay_s(call))]

    def _host_gone(self, who: Side, now_s: float) -> list[Command]:
        if who in self._gone:
            return []
        self._gone.add(who)
        order = self._order
        host = order.source if who is Side.SOURCE else order.target
        self._story.tell(now_s, f"host {host} ({who.value}) is gone")
        match self.phase:
            case Phase.PREPARING | Phase.COPYING | Phase.VERIFYING:
                if who is Side.SOURCE and order.target is not None and self.phase is not Phase.PREPARING:
                    return [] if self.phase is Phase.VERIFYING else self._source_fell_silent(now_s)
                return self._give_up(self._gone_failure(who), now_s)
            case Phase.COMMITTING | Phase.RETURNING | Phase.NEW | Phase.ENDED:
                return []
            case Phase.THAWING:
                return self._lost(now_s) if who is Side.SOURCE else []
            case Phase.FENCING:
                return self._retired(now_s) if who is Side.SOURCE else []
            case Phase.ACTIVATING:
                return self._take_back(now_s) if who is Side.TARGET else []
            case Phase.RETIRING:
                return self._finish(now_s) if who is Side.SOURCE else []
            case Phase.ABORTING:
                self._awaited -= {call for call in self._awaited if SIDE_OF[call] is who}
                return [] if self._awaited else self._finish_refused(now_s)
            case _:
                assert_never(self.phase)

    # ---- a controller that starts again

    def _recovered(self, event: Recovered, now_s: float) -> list[Command]:
        self._receipt = event.receipt
        committed = event.owner == self._order.after
        self._story.tell(now_s, f"the controller is back; journal {event.phase.value}, record {event.owner}")
        match event.phase:
            case JournalPhase.DONE:
                self.phase = Phase.ENDED
                return []
            case JournalPhase.BEGUN if not committed and event.goes_on:
                assert self._order.source is not None and self._order.target is not None, "only a move goes on"
                self._enter(Phase.COPYING, "its hosts have it under way, and it goes on", now_s)
                return [RejoinSource(), AwaitPrepared()]
            case JournalPhase.BEGUN if not committed:
                return self._give_up(Failure(ControllerGone.code, "the controller ended before the commit"), now_s)
            case JournalPhase.ABORTED:
                self._failure = Failure(ControllerGone.code, "the order had been given up when the controller ended")
                self._enter(Phase.ABORTING, "goes on giving up", now_s)
                return self._undo(now_s)
            case JournalPhase.BEGUN | JournalPhase.COMMITTED | JournalPhase.ACTIVATED | JournalPhase.RETURNED:
                if event.receipt is None:
                    raise Internal(f"order {self._order.move} is committed without a receipt")
                if event.phase is JournalPhase.RETURNED:
                    return self._thaw_again(now_s)
                return self._hand_on(now_s) if event.phase is JournalPhase.ACTIVATED else self._complete(now_s)
            case _:
                assert_never(event.phase)
