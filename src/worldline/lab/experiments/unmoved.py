"""The same session without a move: opened anew, given the same actions, and compared at every block at which the other
one changed its owner.

Exact: the digest of every block's frames, and the content root of the whole state (BLAKE3-256 over layout and leaves)
at each receipt's block, for which the unmoved session is parked and read back. At the end both states lie in images,
which the second reader checks and which are compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worldline.errors import Internal, Unavailable, WorldlineError
from worldline.lab.experiments.players import ASKED_AGAIN_MAX, Seen
from worldline.lab.parked import compare_parked
from worldline.runtime.messages import Session
from worldline.schema.receipt import Receipt
from worldline.service.client import Client, SessionHandle
from worldline.service.verbs import StepBlock
from worldline.verify.reader import verify_image, verify_receipt
from worldline.verify.receipts import write_receipt
from worldline.worlds.protocol import OptionValue

AT_ONCE = 16
"""Blocks that are asked for in one request: a busy machine makes them within its wait."""


@dataclass(frozen=True, slots=True)
class Played:
    """A session as it was played: parked, and what its player saw."""

    session: Session
    seen: Sequence[Seen]
    receipts: Sequence[Receipt]
    """Of every change of owner, by block."""
    options: dict[str, OptionValue]
    """Of the unmoved one: the same state, without the pace."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What differs, in words; `differing` are the moves that did not keep the state."""

    differences: tuple[str, ...]
    differing: frozenset[str]


class _Unmoved:
    def __init__(self, played: Played, client: Client, host: str) -> None:
        self._played = played
        session = played.session
        self.handle: SessionHandle = client.open(
            session.world, seed=session.seed, options=played.options, contract=session.contract, host=host
        )
        self._host = host
        self.parked: Session | None = None
        self.differences: list[str] = []
        self._done = 0
        """Blocks played."""

    def play_to(self, block: int) -> None:
        """Up to the state after `block` actions."""
        if self._done < block and self.parked is not None:
            self.handle.resume(self._host)
            self.parked = None
        while self._done < block:
            saw = self._played.seen[self._done : min(block, self._done + AT_ONCE)]
            for was, now in zip(saw, self._step([each.action for each in saw]), strict=True):
                if (was.block.block, was.block.digest) != (now.block, now.digest):
                    self.differences.append(f"frames of block {now.block} of session {self._played.session.id} differ")
            self._done += len(saw)

    def _step(self, actions: list[int]) -> list[StepBlock]:
        """Under their own numbers: asked again after a silence, they are not applied twice."""
        left = ASKED_AGAIN_MAX
        while True:
            try:
                return self.handle.step(*actions, first=self._done + 1)
            except Unavailable:
                left -= 1
                if left == 0:
                    raise

    def root(self) -> tuple[int, str]:
        """Block and root of the state as it is; the session is parked for it."""
        if self.parked is None:
            self.parked = self.handle.park()
        receipt = self.handle.client.receipt(self.parked.receipts[-1])
        return receipt.block, receipt.source_root


def compare(played: Played, client: Client, host: str, run_dir: Path) -> Verdict:
    """Plays the session again on `host`, and says what differs. Returns also when something can't be compared."""
    try:
        return _compare(played, client, host, run_dir)
    except (WorldlineError, ValueError) as error:
        text = f"session {played.session.id} could not be compared: {error}"
        return Verdict((text,), frozenset(receipt.move for receipt in played.receipts))


def _compare(played: Played, client: Client, host: str, run_dir: Path) -> Verdict:
    unmoved = _Unmoved(played, client, host)
    differing: set[str] = set()
    for receipt in sorted(played.receipts, key=lambda each: each.block):
        unmoved.play_to(receipt.block)
        before = len(unmoved.differences)
        if unmoved.root() != (receipt.block, receipt.target_root) or receipt.source_root != receipt.target_root:
            unmoved.differences.append(f"the root of move {receipt.move} is not that of the unmoved session")
        _check(receipt, run_dir)
        if len(unmoved.differences) > before:
            differing.add(receipt.move)
    unmoved.play_to(len(played.seen))
    unmoved.root()
    assert unmoved.parked is not None
    difference = _first_difference(played.session, unmoved.parked, run_dir)
    if difference is not None:
        unmoved.differences.append(difference)
    if unmoved.differences:  # from the first wrong block on nothing is shown to be identical
        differing |= {receipt.move for receipt in played.receipts}
    unmoved.handle.close()
    return Verdict(tuple(unmoved.differences), frozenset(differing))


def _check(receipt: Receipt, run_dir: Path) -> None:
    """By the reader that shares no code with the writers. Raises what does not hold."""
    folder = run_dir / "receipts"
    folder.mkdir(exist_ok=True)
    path = folder / f"{receipt.id}.json"
    write_receipt(path, receipt)
    verify_receipt(path)


def _first_difference(moved: Session, unmoved: Session, run_dir: Path) -> str | None:
    paths = []
    for session in (moved, unmoved):
        if session.image is None:
            raise Internal(f"session {session.id} is parked without an image", session=session.id)
        paths.append(run_dir / "images" / session.image)
        verify_image(paths[-1], session.id)
    found = compare_parked(paths[0], moved.id, paths[1], unmoved.id)
    return None if found is None else f"state of session {moved.id}: {found}"
