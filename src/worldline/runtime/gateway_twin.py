"""A session and its twin at the gateway: the same actions to both, and every block compared."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from worldline.control.twins import Print, TwinCheck, TwinSide
from worldline.errors import ActionGap
from worldline.runtime.gateway_told import Told, Trouble, TwinVerdict
from worldline.runtime.messages import Block, Session

AHEAD_MAX = 32
"""Actions that the twin may have unanswered."""
BACKLOG_MAX = 8192
"""Actions that may wait for a twin that is behind; beyond, the two are out of step, which is told."""


class PlaySide(Protocol):
    """One of the two: a `gateway_play.Play`."""

    session: Session
    mirror: Mirror | None

    @property
    def started(self) -> bool: ...

    @property
    def unanswered(self) -> int: ...

    def mirrored(self, number: int, action: int) -> bool:
        """As the twin: takes an action of the session it mirrors. False where its number is not the next one."""
        ...

    def tell(self, told: Told) -> None: ...


class Mirror:
    """Set as `mirror` of both sides. Only the session's watchers are told."""

    def __init__(self, session: PlaySide, twin: PlaySide) -> None:
        self.session = session
        self.twin = twin
        self._check = TwinCheck()
        self._backlog: deque[tuple[int, int]] = deque()
        self._in_step = True
        session.mirror = twin.mirror = self

    def take(self, number: int, action: int) -> None:
        """An action that the session has taken."""
        if not self._in_step:
            return
        if len(self._backlog) >= BACKLOG_MAX:
            self._lose_step(number)
            return
        self._backlog.append((number, action))
        self.feed()

    def feed(self) -> None:
        """Sends what waits to a twin that is not too far behind."""
        while self._in_step and self._backlog and self.twin.started and self.twin.unanswered < AHEAD_MAX:
            number, action = self._backlog.popleft()
            if not self.twin.mirrored(number, action):
                self._lose_step(number)

    def compare(self, side: PlaySide, block: Block) -> None:
        """One side's block; a verdict is told when the other side's is there."""
        which = TwinSide.SESSION if side is self.session else TwinSide.TWIN
        pair = self._check.add(which, Print(block.block, block.digest, block.root))
        if which is TwinSide.TWIN:
            self.feed()
        if pair is not None:
            self.session.tell(self._verdict())

    def _verdict(self) -> TwinVerdict:
        check, found = self._check, self._check.first_difference
        return TwinVerdict(
            equal=found is None,
            blocks=check.equal,
            differs=None if found is None else found.block,
            frames_differ=found is not None and found.frames_differ,
            state_differs=found is not None and found.state_differs,
            unwitnessed=check.unwitnessed,
            skipped=check.skipped,
        )

    def _lose_step(self, number: int) -> None:
        self._in_step = False
        self._backlog.clear()
        twin = self.twin.session.id
        self.session.tell(
            Trouble(ActionGap(f"twin {twin} missed an action before {number}: no more is compared", number=number))
        )
