"""Whether a session and the twin that never moves stay equal, block after block."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PAIRS_WAITING_MAX = 1024


class TwinSide(StrEnum):
    SESSION = "session"
    TWIN = "twin"


@dataclass(frozen=True, slots=True)
class Print:
    """One block of one side: digest of its readout, root of the state after it (None where no witness digests it)."""

    block: int
    digest: str
    root: str | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The first block in which the two are not equal, and in what."""

    block: int
    frames_differ: bool
    state_differs: bool
    session: Print
    twin: Print


class TwinCheck:
    """Pairs the two sides' blocks by number, whichever comes first.

    `equal` counts blocks with equal frames and, where both sides have one, equal root; `unwitnessed`, those of them
    without a pair of roots; `skipped` counts blocks that one side brought and that waited for the other in vain.
    """

    def __init__(self) -> None:
        self.equal = 0
        self.unwitnessed = 0
        self.skipped = 0
        self.first_difference: Difference | None = None
        self._waiting: dict[TwinSide, dict[int, Print]] = {TwinSide.SESSION: {}, TwinSide.TWIN: {}}

    def add(self, side: TwinSide, print_: Print) -> bool | None:
        """True: the pair is equal; False: it differs; None: the other side's is not here yet."""
        other = TwinSide.TWIN if side is TwinSide.SESSION else TwinSide.SESSION
        theirs = self._waiting[other].pop(print_.block, None)
        if theirs is None:
            waiting = self._waiting[side]
            waiting[print_.block] = print_
            if len(waiting) > PAIRS_WAITING_MAX:
                del waiting[min(waiting)]
                self.skipped += 1
            return None
        session, twin = (print_, theirs) if side is TwinSide.SESSION else (theirs, print_)
        return self._compare(session, twin)

    def _compare(self, session: Print, twin: Print) -> bool:
        witnessed = session.root is not None and twin.root is not None
        frames_differ = session.digest != twin.digest
        state_differs = witnessed and session.root != twin.root
        if frames_differ or state_differs:
            found = Difference(session.block, frames_differ, state_differs, session, twin)
            if self.first_difference is None or found.block < self.first_difference.block:
                self.first_difference = found
            return False
        self.equal += 1
        self.unwitnessed += not witnessed
        return True
