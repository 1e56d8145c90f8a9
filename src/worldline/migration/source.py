"""The source's side of one attempt to move a session: a machine that a host drives.

Invariants
  The session plays on unless the machine says otherwise: the engine is held only from `CutTaken` to the next `Thaw`.
  A leaf is clean only if the *target* reported the digest that the source's own bytes have at the cut. A frozen cut's
  unread leaves are sent while they are read, and nothing is sealed before all are.
  After `Sealed` the session stays frozen until the controller's word (`Abort` or `Retire`) or the target's refusal: a
  lost link, a missing reply or a passed deadline never thaws it, because the swap of the owner may already be made.
  Exactly one of `Thaw` and `Fence` is the last word to the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from worldline.errors import DeadlineMissed, Fact, LinkCut, Malformed
from worldline.migration.attempt import Attempt
from worldline.migration.reported import Reported
from worldline.migration.rolls import Residual, whole_leaves
from worldline.migration.rounds import Cut, Freeze, GoOn, Limits, Refuse, RoundRate, decide, merge
from worldline.migration.source_words import (
    TRANSITIONS,
    Abort,
    Announced,
    CloseLink,
    Command,
    Connected,
    CutTaken,
    Deadline,
    DigestsIn,
    Event,
    Failed,
    Fence,
    LinkLost,
    Phase,
    Post,
    PostEarly,
    Posted,
    PreparedIn,
    ReadRest,
    RefusedIn,
    Report,
    RestRead,
    Retire,
    Sealed,
    SendRecord,
    TakeCut,
    Thaw,
)
from worldline.migration.story import Story
from worldline.schema.contract import Contract
from worldline.schema.receipt import Mode
from worldline.units import format_bytes, format_seconds
from worldline.wire import records


@dataclass(slots=True)
class _Round:
    """The round on its way: number 0 before the first."""

    number: int = 0
    nbytes: int = 0
    early_bytes: int = 0
    """Of them, named before the round was posted."""
    posted_at_s: float = 0.0
    idle_s: float = 0.0
    """Of the post: the link was not to be used."""
    arrived: bool = True
    """`Posted` came and the round's end was sent."""
    touched: frozenset[int] = frozenset()
    """Leaves whose rows the target was told of, not all their bytes: right once it has said so."""


class SourceMachine:
    """Drives one attempt at the source. `handle` is the only way in; times are monotonic seconds."""

    def __init__(self, attempt: Attempt, contract: Contract, started_at_s: float, limits: Limits | None = None) -> None:
        """`started_at_s`: when the order was given; the completion deadline counts from it."""
        self.phase = Phase.CONNECTING
        self._attempt = attempt
        self._contract = contract
        self._limits = limits or Limits()
        self._deadline_at_s = started_at_s + contract.completion_deadline_s
        self._story = Story("source", started_at_s)
        self._rate = RoundRate(self._limits)
        self._reported = Reported()
        self._round = _Round()
        self._cut: CutTaken | None = None
        self._generation = 0
        self._dirty_bytes_before = 0
        self._early_bytes = 0
        """Named since the last round, and part of the next one."""
        self._bytes_moved = 0
        self._frozen_at_s = 0.0
        self._held = False
        self._linked = False

    @property
    def story(self) -> tuple[str, ...]:
        """The last lines of what happened."""
        return self._story.lines

    @property
    def wake_at_s(self) -> float | None:
        """When the driver must say `Deadline`, unless something else happens before."""
        match self.phase:
            case Phase.CONNECTING | Phase.CUTTING | Phase.COPYING:
                return self._deadline_at_s
            case Phase.FROZEN:
                return min(self._deadline_at_s, self._frozen_at_s + self._contract.pause_bound_s)
            case Phase.SEALED | Phase.PREPARED | Phase.RETIRED | Phase.THAWED:
                return None
            case _:
                assert_never(self.phase)

    def forget(self) -> None:
        """The attempt is over and only remembered: what describes the state, an entry a leaf, is not kept for that."""
        self._cut = None
        self._reported = Reported()

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """What to do now, in order. Raises `IllegalTransition` for an event that this phase does not know."""
        known = TRANSITIONS[self.phase].get(type(event))
        if known is None:
            raise self._story.illegal(self.phase, event)
        commands = self._react(event, now_s)
        assert self.phase in known, f"{type(event).__name__} led to {self.phase}, which the table does not have"
        return commands

    def _react(self, event: Event, now_s: float) -> list[Command]:
        if self.phase is Phase.THAWED:
            # A cut that was asked for before the end still holds the engine when it is taken.
            return [Thaw()] if isinstance(event, CutTaken) else []
        if self.phase is Phase.RETIRED:
            return []
        match event:
            case Connected():
                return self._connected(now_s)
            case Announced():
                return self._announced(event, now_s)
            case CutTaken():
                return self._cut_taken(event, now_s)
            case RestRead():
                return self._rest_read(event, now_s)
            case Posted():
                return self._posted(event, now_s)
            case DigestsIn():
                return self._digests_in(event, now_s)
            case PreparedIn():
                return self._prepared_in(event, now_s)
            case RefusedIn():
                return self._refused_in(event, now_s)
            case LinkLost():
                return self._link_lost(event, now_s)
            case Abort():
                return self._end(event.code, event.sentence, now_s)
            case Retire():
                self._enter(Phase.RETIRED, "retired: the session is the target's", now_s)
                return [Fence()]
            case Deadline():
                return self._deadline(now_s)
            case _:
                assert_never(event)

    def _enter(self, phase: Phase, line: str, now_s: float) -> None:
        self.phase = phase
        self._story.tell(now_s, line)

    def _connected(self, now_s: float) -> list[Command]:
        self._linked = self._held = True
        self._enter(Phase.CUTTING, "connected", now_s)
        attempt = self._attempt
        return [
            SendRecord(records.Hello(attempt.session, attempt.epoch, attempt.move, attempt.mode)),
            TakeCut(compares=False, remembers=self._limits.rolls and attempt.mode is Mode.PRECOPY),
        ]

    # ---- rounds

    def _announced(self, event: Announced, now_s: float) -> list[Command]:
        """The target reads what is final already, beside the source: after the freeze both have it behind them."""
        self._reported.name(event.extents)
        self._early_bytes += sum(extent.nbytes for extent in event.extents)
        return [PostEarly(event.extents, max(self._deadline_at_s - now_s, 0.001))]

    def _cut_taken(self, cut: CutTaken, now_s: float) -> list[Command]:
        self._cut = cut
        self._generation += 1
        residual = self._reported.residual(cut, self._limits.rows_bytes if self._rolls_pay else None)
        dirty_bytes = residual.nbytes
        decision = self._decide(dirty_bytes, now_s)
        self._dirty_bytes_before = dirty_bytes
        manifest = SendRecord(records.ManifestRecord(self._generation, cut.manifest))
        match decision:
            case Refuse():
                return self._end(decision.code, decision.sentence, now_s, dirty_bytes=dirty_bytes)
            case GoOn():
                self._held = False
                self._enter(Phase.COPYING, f"plays on, {format_bytes(dirty_bytes)} to send", now_s)
                return [Thaw(), manifest, *self._post(residual, now_s)]
            case Freeze():
                self._frozen_at_s = cut.held_at_s
                line = f"frozen at block {cut.manifest.block}, {format_bytes(dirty_bytes)} to send"
                self._enter(Phase.FROZEN, line, now_s)
                if not residual.leaves and not residual.steps and not self._early_bytes:
                    return [manifest, *self._seal(now_s)]
                rest: list[Command] = [ReadRest()] if cut.root is None else []
                return [manifest, *self._post(residual, now_s), *rest]
            case _:
                assert_never(decision)

    def _decide(self, dirty_bytes: int, now_s: float) -> Freeze | GoOn | Refuse:
        bytes_per_s = self._rate.bytes_per_s
        if self._attempt.mode is not Mode.PRECOPY or (dirty_bytes == 0 and self._round.number):
            return Freeze(0.0)
        if bytes_per_s is None:
            return GoOn(0.0)
        cut = Cut(
            rounds=self._round.number,
            dirty_bytes=dirty_bytes,
            dirty_bytes_before=self._dirty_bytes_before,
            bytes_per_s=bytes_per_s,
            pause_bound_s=self._contract.pause_bound_s,
            time_left_s=self._deadline_at_s - now_s,
        )
        return decide(cut, self._limits)

    @property
    def _rolls_pay(self) -> bool:
        """A link that is faster than rows are put in place carries whole leaves in less time."""
        bytes_per_s = self._rate.bytes_per_s
        return self._limits.rolls and (bytes_per_s is None or bytes_per_s < self._limits.rolls_bytes_per_s_max)

    def _post(self, residual: Residual, now_s: float) -> list[Command]:
        early_bytes, self._early_bytes = self._early_bytes, 0
        nbytes = residual.nbytes + early_bytes
        self._round = _Round(
            self._round.number + 1, nbytes, early_bytes, now_s, arrived=False, touched=residual.touched
        )
        wake_at_s = self.wake_at_s
        assert wake_at_s is not None, "a round is posted while COPYING or FROZEN"
        extents = merge(residual.leaves, self._limits.chunk_bytes, self._limits.tail_bytes_min)
        post = Post(extents, self._round.number, max(wake_at_s - now_s, 0.001), residual.steps)
        return [self._report("sending"), post]

    def _posted(self, event: Posted, now_s: float) -> list[Command]:
        if self._round.arrived:
            return []
        self._round.arrived = True
        self._round.idle_s = event.idle_s
        self._bytes_moved += event.nbytes
        end = SendRecord(records.RoundEnd(self._round.number, self._round.nbytes))
        self._story.tell(now_s, f"round {self._round.number} sent: {format_bytes(self._round.nbytes)}")
        if self.phase is Phase.COPYING:
            return [end]
        missed = self._deadline(now_s)
        return missed or [end, *self._seal_if_read(now_s)]

    def _rest_read(self, event: RestRead, now_s: float) -> list[Command]:
        assert self._cut is not None, "FROZEN has a cut"
        self._cut = replace(self._cut, digests=event.digests, root=event.root)
        if not self._round.arrived:
            return []
        return self._deadline(now_s) or self._seal_if_read(now_s)

    def _seal_if_read(self, now_s: float) -> list[Command]:
        assert self._cut is not None, "FROZEN has a cut"
        return [] if self._cut.root is None or self._round.touched else self._seal(now_s)

    def _digests_in(self, event: DigestsIn, now_s: float) -> list[Command]:
        ahead = event.round > self._round.number or (event.round == self._round.number and not self._round.arrived)
        if ahead:
            if self.phase is Phase.FROZEN or self.phase is Phase.SEALED:
                return []
            return self._end(Malformed.code, f"the target reports round {event.round}, which has not ended", now_s)
        proves = self.phase is Phase.FROZEN and self._round.touched
        if event.round < self._round.number or not (self.phase is Phase.COPYING or proves):
            return []
        self._reported.add(event.items)
        if proves:
            return self._rows_reported(now_s)
        sending_s = now_s - self._round.posted_at_s - self._round.idle_s
        self._rate.add(self._round.nbytes - self._round.early_bytes, sending_s)
        self._held = True
        self._enter(Phase.CUTTING, f"the target has digested round {event.round}", now_s)
        return [TakeCut(compares=True, remembers=self._rolls_pay)]

    def _rows_reported(self, now_s: float) -> list[Command]:
        """A frozen cut's rows are in place. Leaves that they did not make right, because rows did not move as they were
        said to, are sent whole before anything is sealed.
        """
        cut = self._cut
        assert cut is not None, "FROZEN has a cut"
        wrong = self._reported.differing(self._round.touched, cut)
        self._round.touched = frozenset()
        missed = self._deadline(now_s)
        if missed or not wrong:
            return missed or self._seal_if_read(now_s)
        whole = whole_leaves(wrong)
        self._story.tell(now_s, f"rows did not move as declared: {format_bytes(whole.nbytes)} are sent whole")
        return self._post(whole, now_s)

    # ---- the end

    def _seal(self, now_s: float) -> list[Command]:
        cut = self._cut
        assert cut is not None and cut.root is not None, "only a cut that was read can be sealed"
        self._enter(Phase.SEALED, f"sealed at block {cut.manifest.block}", now_s)
        block = cut.manifest.block
        held_us = min(max(0, round(1e6 * (now_s - self._frozen_at_s))), 2**32 - 1)
        seal = records.Seal(cut.root, cut.layout, block, cut.number, len(cut.digests), self._generation, held_us)
        sealed = Sealed(cut.root, block, cut.number, self._frozen_at_s, self._bytes_moved, self._round.number)
        return [SendRecord(seal), self._report("sealed"), sealed]

    def _prepared_in(self, event: PreparedIn, now_s: float) -> list[Command]:
        if self.phase is Phase.PREPARED:
            return []
        if self.phase is not Phase.SEALED:
            return self._end(Malformed.code, "the target claims a state that was not sealed", now_s)
        cut = self._cut
        assert cut is not None, "SEALED has a cut"
        if event.root != cut.root:
            # The controller compares the roots too and will not swap, but its word is still to be waited for.
            self._story.tell(now_s, "the target claims another root; waiting for the controller")
            return []
        self._enter(Phase.PREPARED, "the target has proven its bytes", now_s)
        return [self._report("verified")]

    def _refused_in(self, event: RefusedIn, now_s: float) -> list[Command]:
        if self.phase is Phase.PREPARED:
            self._story.tell(now_s, f"the target takes its proof back ({event.code}); waiting for the controller")
            return []
        self._linked = False
        return self._end(event.code, event.sentence, now_s)

    def _link_lost(self, event: LinkLost, now_s: float) -> list[Command]:
        self._linked = False
        if self.phase is Phase.SEALED or self.phase is Phase.PREPARED:
            self._story.tell(now_s, "the link is gone; the record will say whose the session is")
            return []
        return self._end(LinkCut.code, f"the link closed before the move was sealed: {event.sentence}", now_s)

    def _deadline(self, now_s: float) -> list[Command]:
        wake_at_s = self.wake_at_s
        if wake_at_s is None or now_s < wake_at_s:
            return []
        if wake_at_s < self._deadline_at_s:
            bound = format_seconds(self._contract.pause_bound_s)
            return self._end(DeadlineMissed.code, f"the pause reached the contract's bound of {bound}", now_s)
        bound = format_seconds(self._contract.completion_deadline_s)
        return self._end(DeadlineMissed.code, f"the move did not complete within {bound}", now_s)

    def _end(self, code: str, sentence: str, now_s: float, **facts: Fact) -> list[Command]:
        """Gives the attempt up: the engine first, then the target and the caller learn of it."""
        answered = self.phase is Phase.SEALED or self.phase is Phase.PREPARED
        self._enter(Phase.THAWED, f"given up, {code}: {sentence}", now_s)
        commands: list[Command] = [Thaw()] if self._held else []
        self._held = False
        if self._linked:
            commands.append(SendRecord(records.Abort(code, sentence[: records.SENTENCE_CHARS_MAX])))
        commands.append(CloseLink())
        commands.append(self._report(f"plays on: {code}") if answered else Failed(code, sentence, facts))
        return commands

    def _report(self, note: str) -> Report:
        frozen = self.phase in (Phase.FROZEN, Phase.SEALED, Phase.PREPARED)
        return Report(self._round.number, self._bytes_moved, self._dirty_bytes_before, frozen, note)
