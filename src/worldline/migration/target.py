"""The target's side of one attempt to move a session: a machine that a host drives.

Invariants
  Nothing is installed unless the root over the target's own resident bytes equals the seal.
  A digest counts only for the bytes that lie there now: a landing takes back the digests of the leaves it touches.
  `Prepared` and `Failed` exclude each other, and each comes at most once; after `Discard` nothing is installed.
  The stream is hostile: every record is checked against the attempt and the protocol's order before it has an effect.
  A handed-over arena is never written before `Install`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from worldline.errors import (
    Corrupt,
    DeadlineMissed,
    Fact,
    LayoutRefused,
    LinkCut,
    Malformed,
    Refused,
    StaleEpoch,
    Unauthenticated,
    WrongSession,
)
from worldline.migration.attempt import Attempt
from worldline.migration.leaves import Ground, check_placed
from worldline.migration.puts import Puts
from worldline.migration.rounds import Limits
from worldline.migration.steps import written_span
from worldline.migration.story import Story
from worldline.migration.target_words import (
    TRANSITIONS,
    Abort,
    AbortIn,
    ActivateIn,
    CloseLink,
    Command,
    ComputeRoot,
    CopyIn,
    Deadline,
    Digest,
    Discard,
    DiscardIn,
    Event,
    Failed,
    HelloIn,
    Install,
    LandedIn,
    LaneDone,
    LinkLost,
    LinkUp,
    ManifestIn,
    Phase,
    Prepared,
    Put,
    PutDone,
    RootComputed,
    RoundEndIn,
    RowsIn,
    SealIn,
    SendRecord,
    StopReceiving,
)
from worldline.schema.receipt import Mode
from worldline.schema.rows import Copy
from worldline.units import format_bytes
from worldline.wire import records


@dataclass(slots=True)
class _Round:
    """The round whose bytes land."""

    number: int
    generation: int
    """The manifest's when the round began: what lands under it was named within a block, before the round's own cut."""
    nbytes: int = 0
    leaves: set[int] = field(default_factory=set)
    puts: Puts = field(default_factory=Puts)
    ended: bool = False
    """Its end came; the source waits for what the lanes read."""


class TargetMachine:
    """Drives one attempt at the target. `handle` is the only way in; times are monotonic seconds."""

    def __init__(
        self,
        attempt: Attempt,
        capacity: int,
        started_at_s: float,
        deadline_at_s: float,
        *,
        hands_over: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """`capacity`: of the arena (the source's, where `hands_over`). The proof must stand by `deadline_at_s`."""
        self.phase = Phase.WAITING
        self._attempt = attempt
        self._capacity = capacity
        self._deadline_at_s = deadline_at_s
        self._hands_over = hands_over
        self._limits = limits or Limits()
        self._story = Story("target", started_at_s)
        self._linked = False
        self._ground: Ground | None = None
        self._generation = 0
        self._round = _Round(1, 0)
        self._tickets = 0
        self._bytes_landed = 0
        self._seal: SealIn | None = None

    @property
    def story(self) -> tuple[str, ...]:
        """The last lines of what happened."""
        return self._story.lines

    @property
    def wake_at_s(self) -> float | None:
        """When the driver must say `Deadline`, unless something else happens before."""
        waits = self.phase in (Phase.WAITING, Phase.RECEIVING, Phase.VERIFYING)
        return self._deadline_at_s if waits else None

    def forget(self) -> None:
        """The attempt is over and only remembered: what describes the state, an entry a leaf, is not kept for that."""
        self._ground = None
        self._round = _Round(self._round.number, self._generation)

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """What to do now, in order.

        Raises `IllegalTransition` for an event that this phase does not know, and `StaleEpoch` for an activation that
        names another epoch than the one after the attempt's.
        """
        known = TRANSITIONS[self.phase].get(type(event))
        if known is None:
            raise self._story.illegal(self.phase, event)
        commands = self._react(event, now_s)
        assert self.phase in known, f"{type(event).__name__} led to {self.phase}, which the table does not have"
        return commands

    def _react(self, event: Event, now_s: float) -> list[Command]:
        if self.phase is Phase.DISCARDED:
            return []
        if isinstance(event, ActivateIn):
            return self._activate(event, now_s)
        if isinstance(event, DiscardIn):
            return self._give_up(StaleEpoch.code, "the controller has given the attempt up", now_s)
        if self.phase is Phase.PREPARED or self.phase is Phase.ACTIVE:
            return []
        try:
            return self._take(event, now_s)
        except Refused as refusal:
            return self._refuse(refusal, now_s)

    def _take(
        self,
        event: LinkUp
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
        | Deadline,
        now_s: float,
    ) -> list[Command]:
        match event:
            case LinkUp():
                self._linked = True
                self._story.tell(now_s, "the source has connected")
                return []
            case HelloIn():
                return self._hello(event, now_s)
            case ManifestIn():
                return self._manifest(event, now_s)
            case LandedIn():
                return self._landed(event)
            case CopyIn() | RowsIn():
                return self._rows(event)
            case PutDone():
                return self._put_done(event)
            case RoundEndIn():
                return self._round_end(event, now_s)
            case LaneDone():
                return self._lane_done(event)
            case SealIn():
                return self._sealed(event, now_s)
            case RootComputed():
                return self._root_computed(event, now_s)
            case AbortIn() | Abort():
                return self._give_up(event.code, event.sentence, now_s)
            case LinkLost():
                return self._link_lost(event, now_s)
            case Deadline():
                if now_s < self._deadline_at_s:
                    return []
                raise DeadlineMissed("the state was not verified at the target before the completion deadline")
            case _:
                assert_never(event)

    def _enter(self, phase: Phase, line: str, now_s: float) -> None:
        self.phase = phase
        self._story.tell(now_s, line)

    # ---- receiving

    def _hello(self, event: HelloIn, now_s: float) -> list[Command]:
        if self.phase is not Phase.WAITING:
            raise Malformed("a second hello")
        theirs, mine = event.attempt, self._attempt
        if theirs.session != mine.session:
            raise WrongSession(f"the source offers session {theirs.session}, and {mine.session} is expected")
        if theirs.move != mine.move:
            raise Unauthenticated(f"the source names move {theirs.move}, and {mine.move} is expected")
        if theirs.epoch != mine.epoch:
            raise StaleEpoch(
                f"the source is of epoch {theirs.epoch}, and {mine.epoch} is in force",
                theirs=theirs.epoch,
                ours=mine.epoch,
            )
        if theirs.mode is not mine.mode:
            raise Malformed(f"the source says {theirs.mode.value}, and {mine.mode.value} was agreed")
        self._enter(Phase.RECEIVING, "hello", now_s)
        return []

    def _manifest(self, event: ManifestIn, now_s: float) -> list[Command]:
        self._expect_receiving("a manifest")
        if event.generation != self._generation + 1:
            raise Malformed(f"manifest {event.generation} came where {self._generation + 1} was due")
        if self._round.leaves and not self._early:
            raise Malformed("a manifest in the middle of a round")
        check_placed(event.manifest, self._capacity, self._limits.leaves_max)
        before, self._ground = self._ground, Ground(event.manifest, self._ground)
        self._generation = event.generation
        if before is not None:
            self._round.leaves = self._ground.leaves.carried(before.leaves, self._round.leaves)
        self._story.tell(
            now_s,
            f"manifest {event.generation}: block {event.manifest.block}, {format_bytes(event.manifest.layout.nbytes)}",
        )
        return []

    @property
    def _early(self) -> bool:
        """Whether a handed-over round has not come to its own cut yet: its leaves are named while a block is made."""
        return self._hands_over and self._round.generation == self._generation

    def _landed(self, event: LandedIn) -> list[Command]:
        ground = self._expect_round("bytes")
        whole, covered = ground.land(event.extent)
        if covered != event.extent.nbytes:
            raise Malformed("bytes outside the state's leaves", offset=event.extent.offset, nbytes=event.extent.nbytes)
        self._round.nbytes += covered
        self._round.leaves.update(ground.leaves.touched(event.extent))
        self._bytes_landed += covered
        if self._hands_over and not self._early:
            return []  # all of it is there already: the round's end has it read as a whole
        return self._digest(ground, whole)

    def _rows(self, event: CopyIn | RowsIn) -> list[Command]:
        """Rows are not there yet: they are put in their place beside the path on which chunks land, in their order."""
        ground = self._expect_round("rows")
        if self._hands_over:
            raise Malformed("rows for an arena that was handed over")
        step = event.copy if isinstance(event, CopyIn) else event.runs
        span = written_span(step, ground.manifest)
        leaves = set(ground.leaves.touched(span))
        self._tickets += 1
        self._round.puts.order(self._tickets, step, leaves)
        _, covered = ground.land(span)
        if covered != span.nbytes:
            raise Malformed("rows outside the state's leaves", offset=span.offset, nbytes=span.nbytes)
        nbytes = 0 if isinstance(step, Copy) else step.nbytes
        self._round.nbytes += nbytes
        self._round.leaves |= leaves
        self._bytes_landed += nbytes
        return [Put(self._tickets, ground.manifest, event)]

    def _put_done(self, event: PutDone) -> list[Command]:
        ground = self._ground
        assert ground is not None, "rows follow a manifest"
        puts = self._round.puts
        written, ready = puts.done(event.ticket)
        for index in written:  # whoever read them since they were ordered read what lies there no more
            ground.forget(index)
        commands = self._digest(ground, ready)
        if puts.pending or not self._round.ended:
            return commands
        return commands + (self._read_rest(ground) if self._seal is None else self._verify(ground))

    def _digest(self, ground: Ground, indices: list[int], hurry: bool = False) -> list[Command]:
        if not indices:
            return []
        self._tickets += 1
        return [Digest(self._tickets, ground.lend(indices, self._tickets), hurry)]

    def _round_end(self, event: RoundEndIn, now_s: float) -> list[Command]:
        ground = self._expect_receiving("a round's end")
        if ground is None or event.round != self._round.number or self._round.ended:
            raise Malformed(f"the end of round {event.round} came in round {self._round.number}")
        if event.nbytes != self._round.nbytes:
            raise Corrupt(
                f"round {event.round} ended with {self._round.nbytes} of its {event.nbytes} bytes",
                landed_bytes=self._round.nbytes,
                announced_bytes=event.nbytes,
            )
        self._round.ended = True
        self._round.puts.close()
        self._story.tell(now_s, f"round {event.round} landed: {format_bytes(event.nbytes)}")
        return self._read_rest(ground)

    def _read_rest(self, ground: Ground) -> list[Command]:
        """Digests what of the round nobody has read, once all of it is in place."""
        if self._round.puts.pending:
            return []
        missing = [index for index in ground.missing() if index in self._round.leaves]
        # The first round of a pre-copy is all of the state and the session plays on; a later one may be the last.
        hurry = self._attempt.mode is not Mode.PRECOPY or self._round.number > 1
        return self._digest(ground, missing, hurry) or self._answer_round(ground)

    def _answer_round(self, ground: Ground) -> list[Command]:
        """Tells the source what lies here, once the lanes have read all of the round."""
        if not self._round.ended or ground.waiting or self._round.puts.pending:
            return []
        leaves = tuple(records.LeafDigest(extent, digest) for extent, digest in ground.read(self._round.leaves))
        number = self._round.number
        self._round = _Round(number + 1, self._generation)
        return [SendRecord(records.Digests(number, leaves))] if self._linked else []

    def _lane_done(self, event: LaneDone) -> list[Command]:
        ground = self._ground
        assert ground is not None, "lanes read leaves of a manifest"
        ground.settle(event.ticket, event.items)
        return self._complete(ground) if self._seal is not None else self._answer_round(ground)

    def _expect_round(self, what: str) -> Ground:
        ground = self._expect_receiving(what)
        if ground is None:
            raise Malformed(f"{what} before a manifest")
        if self._round.ended:
            raise Malformed(f"{what} of the next round before this one was digested")
        return ground

    def _expect_receiving(self, what: str) -> Ground | None:
        if self.phase is Phase.WAITING:
            raise Malformed(f"{what} before the hello")
        if self.phase is not Phase.RECEIVING:
            raise Malformed(f"{what} after the seal")
        return self._ground

    # ---- verifying

    def _sealed(self, event: SealIn, now_s: float) -> list[Command]:
        ground = self._expect_receiving("a seal")
        if ground is None or event.generation != self._generation or self._generation == 0:
            raise Malformed(f"a seal of manifest {event.generation}, and the latest is {self._generation}")
        if self._round.leaves and not self._round.ended:
            raise Malformed("a seal in the middle of a round")
        if (event.block, event.leaf_count) != (ground.manifest.block, len(ground.leaves)):
            raise Malformed(
                f"a seal of block {event.block} with {event.leaf_count} leaves; its manifest has block "
                f"{ground.manifest.block} and {len(ground.leaves)}"
            )
        self._seal = event
        self._enter(Phase.VERIFYING, f"sealed at block {event.block}", now_s)
        return [StopReceiving(), *self._verify(ground)]

    def _verify(self, ground: Ground) -> list[Command]:
        """Reads what nobody has read, once everything is in place."""
        if self._round.puts.pending:
            return []
        return self._digest(ground, ground.missing(), hurry=True) or self._complete(ground)

    def _complete(self, ground: Ground) -> list[Command]:
        if ground.waiting or self._round.puts.pending:
            return []
        digests = tuple(digest for digest in ground.digests if digest is not None)
        if len(digests) != len(ground.leaves):
            return self._digest(ground, ground.missing(), hurry=True)
        return [ComputeRoot(ground.manifest, digests)]

    def _root_computed(self, event: RootComputed, now_s: float) -> list[Command]:
        seal, ground = self._seal, self._ground
        assert seal is not None and ground is not None, "VERIFYING has both"
        if event.layout != seal.layout:
            raise LayoutRefused(
                "the layout that was received is not the one that was sealed",
                ours=event.layout.hex(),
                sealed=seal.layout.hex(),
            )
        if not self._roots_agree(event, seal):
            raise Corrupt(
                "the bytes at the target are not the bytes that the source sealed; nothing was installed",
                target_root=event.root.hex(),
                source_root=seal.root.hex(),
            )
        self._enter(Phase.PREPARED, f"proven at block {seal.block}", now_s)
        told: list[Command] = [SendRecord(records.Prepared(event.root))] if self._linked else []
        proof = Prepared(
            manifest=ground.manifest,
            digests=tuple(digest for digest in ground.digests if digest is not None),
            source_root=seal.root,
            target_root=event.root,
            layout=event.layout,
            number=seal.number,
            leaf_count=len(ground.leaves),
            bytes_landed=self._bytes_landed,
            rounds=self._round.number if self._round.ended else self._round.number - 1,
            early=frozenset(ground.early),
            leaves=ground.leaves,
        )
        return [*told, CloseLink(), proof]

    def _roots_agree(self, event: RootComputed, seal: SealIn) -> bool:
        return event.root == seal.root

    # ---- the end

    def _activate(self, event: ActivateIn, now_s: float) -> list[Command]:
        after = self._attempt.epoch + 1
        if event.epoch != after:
            raise StaleEpoch(f"an activation of epoch {event.epoch}; this attempt leads to {after}")
        if self.phase is Phase.ACTIVE:
            return []
        seal, ground = self._seal, self._ground
        assert seal is not None and ground is not None, "PREPARED has both"
        self._enter(Phase.ACTIVE, f"owner of epoch {event.epoch}", now_s)
        return [Install(ground.manifest, seal.number, event.epoch)]

    def _link_lost(self, event: LinkLost, now_s: float) -> list[Command]:
        self._linked = False
        if self.phase is Phase.VERIFYING:
            self._story.tell(now_s, "the link is gone, and nothing more is needed from it")
            return []
        return self._give_up(LinkCut.code, f"the link closed before the seal: {event.sentence}", now_s)

    def _refuse(self, refusal: Refused, now_s: float) -> list[Command]:
        why = records.Refused.of(refusal)
        told: list[Command] = [SendRecord(why)] if self._linked else []
        return [*told, *self._give_up(refusal.code, refusal.sentence, now_s, **refusal.facts)]

    def _give_up(self, code: str, sentence: str, now_s: float, **facts: Fact) -> list[Command]:
        answered = self.phase is Phase.PREPARED
        self._enter(Phase.DISCARDED, f"discarded, {code}: {sentence}", now_s)
        failed: list[Command] = [] if answered else [Failed(code, sentence, facts)]
        return [Discard(zero=not self._hands_over), *failed]
