"""A proof by experiment: a session that moves while it is played, against a twin that never moves.

Real processes. Both sessions get the same actions; each block's frames are compared by bytes as they come. After the
last move the process that the session came from is ended, the world goes on for a while, and then the whole state of
both is written to images and compared by bytes. Every receipt and both images are checked by the second reader.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from threading import Condition, Thread

from worldline.clock import Clock, SystemClock
from worldline.errors import BadValue, Internal, WorldlineError
from worldline.lab.parked import compare_parked
from worldline.lab.telemetry import RunRecord, Telemetry
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.runtime.messages import Session
from worldline.schema.contract import Contract
from worldline.schema.receipt import Mode, Receipt
from worldline.service.client import Client, SessionHandle
from worldline.service.verbs import StepBlock
from worldline.verify.reader import verify_image, verify_receipt
from worldline.verify.receipts import write_receipt
from worldline.worlds.protocol import OptionValue

MOVING_HOSTS = ("a", "b")
TWIN_HOST = "twin"
TELEMETRY = "telemetry.jsonl"
"""The run's record, in its folder."""
BLOCKS_AFTER_EXIT = 3
"""Blocks generated at least after the last source's process has ended."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """What is to be proven. `blocks` is a lower bound: a long move is played through."""

    world: str
    moves: int
    blocks: int
    transport: str
    mode: Mode
    seed: int = 0
    options: dict[str, OptionValue] = field(default_factory=dict)
    contract: Contract = field(default_factory=lambda: Contract(pause_bound_s=10.0, completion_deadline_s=120.0))
    sabotage: bool = False
    """Flip one random live bit of the moved session at the end: the proof must then fail."""

    def __post_init__(self) -> None:
        if self.moves < 1 or self.blocks < self.moves + BLOCKS_AFTER_EXIT:
            raise BadValue(
                f"a proof takes 1 move or more and {BLOCKS_AFTER_EXIT} blocks more than moves, "
                f"not {self.moves} and {self.blocks}"
            )


@dataclass(frozen=True, slots=True)
class Sabotage:
    """What the flipped bit was, and whether the comparison saw it."""

    bit: int
    caught: bool
    difference: str | None


@dataclass(frozen=True, slots=True)
class Proof:
    """What was run and what was found.

    `identical`: every frame and every byte of state equal, every receipt good, and the run not void.
    """

    identical: bool
    world: str
    transport: str
    mode: Mode
    blocks: int
    moves: int
    bytes_moved: int
    state_bytes: int
    pause_ms: list[float]
    """By the receipts: from the last boundary at the source to the target's readiness."""
    gap_ms: list[float]
    """By the player: from the last block of the old host to the first of the new one."""
    block_ms_median: float
    """Between blocks outside moves, by the player."""
    receipts: list[Receipt]
    receipts_verified: int
    source_exited: bool
    differences: list[str]
    sabotage: Sabotage | None
    telemetry: RunRecord
    """On what machine, and whether the run counts: where `void` says why it does not, nothing here is proven."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A block as the player saw it."""

    block: StepBlock
    at_s: float


class _Play:
    """A player who never stops, and the twin that is given the same actions right after."""

    def __init__(self, moved: SessionHandle, twin: SessionHandle, actions: int, seed: int, clock: Clock) -> None:
        self._moved = moved
        self._twin = twin
        self._actions = actions
        self._random = random.Random(seed)
        self._clock = clock
        self._changed = Condition()
        self._to_twin: SimpleQueue[StepBlock | None] = SimpleQueue()
        self._taken: list[int] = []
        self._error: WorldlineError | None = None
        self._until = -1
        self.seen: list[_Seen] = []
        self.differences: list[str] = []
        self._threads = [Thread(target=self._run, args=(work,)) for work in (self._play, self._mirror)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait_for(self, blocks: int) -> None:
        """Returns when so many blocks were seen. Raises what stopped the player."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.seen) >= blocks or self._error is not None)
            if self._error is not None:
                raise self._error

    def finish(self, blocks: int) -> None:
        """Lets the player go on to `blocks` and ends both. Raises what stopped one of them."""
        with self._changed:
            self._until = max(blocks, len(self.seen))
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except WorldlineError as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()
            self._to_twin.put(None)

    def _play(self) -> None:
        while self._error is None and not 0 <= self._until <= len(self.seen):
            action = self._random.randrange(self._actions)
            (block,) = self._moved.step(action, frames="raw")
            self._taken.append(action)
            with self._changed:
                self.seen.append(_Seen(block, self._clock.monotonic_s()))
                self._changed.notify_all()
            self._to_twin.put(block)
        self._to_twin.put(None)

    def _mirror(self) -> None:
        for index in count():
            block = self._to_twin.get()
            if block is None:
                return
            (mirrored,) = self._twin.step(self._taken[index], frames="raw")
            if (block.number, block.frames) != (mirrored.number, mirrored.frames):
                self.differences.append(f"frames of block {block.block} on host {block.host} differ from the twin's")


def prove(challenge: Challenge, run_dir: Path, say: Callable[[str], None], clock: Clock | None = None) -> Proof:
    """Runs the challenge on a fleet of its own under `run_dir`; `say` is given a line of progress now and then.

    Returns also when something differs, or when the run is void. Raises the typed error of a move that was refused.
    """
    clock = clock or SystemClock()
    plan = FleetPlan(
        hosts=(*MOVING_HOSTS, TWIN_HOST),
        run_dir=run_dir,
        faults=challenge.sabotage,
        restarts=False,
        worlds=(challenge.world,) if ":" in challenge.world else (),
    )
    with Fleet.start(plan) as fleet, Client(fleet.url) as client:
        say(f"three hosts are up; {challenge.world} opens on {MOVING_HOSTS[0]} and, as its twin, on {TWIN_HOST}")
        with Telemetry(run_dir / TELEMETRY, clock) as telemetry:
            return _Run(challenge, fleet, client, run_dir, say, clock).run(telemetry)


class _Run:
    def __init__(
        self,
        challenge: Challenge,
        fleet: Fleet,
        client: Client,
        run_dir: Path,
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._challenge = challenge
        self._fleet = fleet
        self._client = client
        self._run_dir = run_dir
        self._say = say
        self._clock = clock

    def run(self, telemetry: Telemetry) -> Proof:
        challenge = self._challenge
        moved, twin = self._open(MOVING_HOSTS[0]), self._open(TWIN_HOST)
        facts = moved.describe()
        play = _Play(moved, twin, max(len(facts.actions), 1), challenge.seed, self._clock)
        play.start()
        try:
            receipts = self._move_all(moved, play)
            exited = self._end_source(receipts[-1].source)
        except BaseException:
            play.finish(0)
            raise
        play.finish(max(challenge.blocks, len(play.seen) + BLOCKS_AFTER_EXIT))
        self._say(f"{len(play.seen)} blocks played; comparing the whole state")
        sabotage_bit = self._sabotage(moved) if challenge.sabotage else None
        state = self._compare_state(moved.park(), twin.park())
        verified = self._verify(receipts)
        differences = play.differences + state
        record = telemetry.finish()
        return Proof(
            identical=not differences and verified == len(receipts) and exited and record.void is None,
            world=challenge.world,
            transport=challenge.transport,
            mode=challenge.mode,
            blocks=len(play.seen),
            moves=len(receipts),
            bytes_moved=sum(receipt.bytes_moved for receipt in receipts),
            state_bytes=receipts[-1].state_bytes,
            pause_ms=[receipt.pause_s * 1e3 for receipt in receipts],
            gap_ms=_gaps_ms(play.seen),
            block_ms_median=_block_ms_median(play.seen),
            receipts=receipts,
            receipts_verified=verified,
            source_exited=exited,
            differences=differences,
            sabotage=None if sabotage_bit is None else Sabotage(sabotage_bit, bool(state), next(iter(state), None)),
            telemetry=record,
        )

    def _open(self, host: str) -> SessionHandle:
        challenge = self._challenge
        return self._client.open(
            challenge.world,
            seed=challenge.seed,
            options=challenge.options,
            contract=challenge.contract,
            host=host,
        )

    def _move_all(self, moved: SessionHandle, play: _Play) -> list[Receipt]:
        challenge = self._challenge
        receipts: list[Receipt] = []
        for index in range(challenge.moves):
            play.wait_for(max(challenge.blocks * (index + 1) // (challenge.moves + 1), 1))
            target = MOVING_HOSTS[(index + 1) % 2]
            move = moved.move(target, mode=challenge.mode, transport=challenge.transport)
            if move.receipt is None:
                raise Internal(f"move {move.id} ended without a receipt", move=move.id)
            receipts.append(move.receipt)
            self._say(
                f"move {index + 1} of {challenge.moves} to {target}: paused {move.receipt.pause_s * 1e3:.1f} ms, "
                f"block {move.receipt.block}"
            )
            play.wait_for(len(play.seen) + 1)
        return receipts

    def _end_source(self, host: str) -> bool:
        pid = self._fleet.pid(host)
        self._fleet.stop_host(host)
        self._say(f"host {host}, the last source, has ended")
        return pid is not None and not Path(f"/proc/{pid}").exists()

    def _sabotage(self, moved: SessionHandle) -> int:
        bit = int.from_bytes(os.urandom(7), "little")
        moved.sabotage(bit)
        self._say("one bit of the moved session's live state was flipped")
        return bit

    def _compare_state(self, moved: Session, twin: Session) -> list[str]:
        ours, theirs = (self._run_dir / "images" / _image(session) for session in (moved, twin))
        verify_image(ours, moved.id)
        verify_image(theirs, twin.id)
        difference = compare_parked(ours, moved.id, theirs, twin.id)
        return [] if difference is None else [f"state: {difference}"]

    def _verify(self, receipts: list[Receipt]) -> int:
        folder = self._run_dir / "proof"
        folder.mkdir(exist_ok=True)
        for receipt in receipts:
            path = folder / f"{receipt.id}.json"
            write_receipt(path, receipt)
            verify_receipt(path)
        return len(receipts)


def _image(session: Session) -> str:
    if session.image is None:
        raise Internal(f"session {session.id} is parked without an image", session=session.id)
    return session.image


def _gaps_ms(seen: list[_Seen]) -> list[float]:
    """Between the last block of one host and the first of the next."""
    pairs = pairwise(seen)
    return [(after.at_s - before.at_s) * 1e3 for before, after in pairs if before.block.host != after.block.host]


def _block_ms_median(seen: list[_Seen]) -> float:
    pairs = pairwise(seen)
    spans = [(after.at_s - before.at_s) * 1e3 for before, after in pairs if before.block.host == after.block.host]
    return median(spans) if spans else 0.0
