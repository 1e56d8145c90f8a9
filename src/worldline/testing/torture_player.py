"""The player of a crash run: plays a session and its twin, and bears an outage for as long as the run is patient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Protocol

from worldline.clock import Clock
from worldline.errors import ActionGap, SessionParked, StateLost, Unavailable
from worldline.service.client import SessionHandle

ACTIONS = 5
HANG_S = 60.0
"""Longer than any bound of the contract and the start of a process."""
PAUSE_S = 0.02


class Twin(Protocol):
    """A world that nobody moves."""

    def step(self, action: int) -> bytes: ...


class Broken(Exception):
    """An invariant does not hold."""

    def __init__(self, count: str, sentence: str) -> None:
        super().__init__(sentence)
        self.count = count


class Player:
    """Plays a session and its twin with the same actions, and compares each block's pictures by their bytes."""

    def __init__(self, session: SessionHandle, twin: Twin, patience: Callable[[], Waiting]) -> None:
        self._session = session
        self._twin = twin
        self._patience = patience
        self._playing: Thread | None = None
        self._paused = Event()
        self._broken: Broken | None = None
        self.number = 0

    def play(self, blocks: int) -> None:
        """So many more. Raises `Broken`."""
        for _ in range(blocks):
            if not self._one():
                raise Broken("hangs", f"{self._session.id} can't be played after block {self.number}")

    def go_on(self) -> None:
        """Plays beside the caller, until `pause` or for as long as there is a session."""
        self._paused.clear()
        self._playing = Thread(target=self._play, name="player", daemon=True)
        self._playing.start()

    def pause(self) -> None:
        """Raises `Broken` for what went wrong meanwhile."""
        assert self._playing is not None, "who pauses has played"
        self._paused.set()
        self._playing.join(HANG_S)
        if self._playing.is_alive():
            raise Broken("hangs", f"block {self.number + 1} did not come")
        if self._broken is not None:
            raise self._broken

    def _play(self) -> None:
        try:
            while not self._paused.is_set():
                if not self._one():
                    self._paused.wait(PAUSE_S)
        except Broken as broken:
            self._broken = broken

    def _one(self) -> bool:
        """One block; False where the session is parked or lost."""
        number, action = self.number + 1, (7 * self.number + 3) % ACTIONS
        waiting, trouble = self._patience(), ""
        while True:
            waiting.check(f"block {number} did not come: {trouble}")
            try:
                (block,) = self._session.step(action, first=number, frames="raw")
            except ActionGap as gap:
                if int(str(gap.facts.get("expected", 0))) <= number:
                    raise Broken("wrong_bytes", f"action {number} was taken and is due again: {gap.sentence}") from gap
                shown: bytes | None = None  # it was applied; its picture went with a gateway or a host
                break
            except (SessionParked, StateLost):
                return False
            except Unavailable as error:
                trouble = f"{error.code}: {error.sentence}"
                continue
            shown = b"".join(block.frames)
            if (block.block, block.number) != (number, number):
                raise Broken("wrong_bytes", f"action {number} was applied by block {block.block}")
            break
        self.number = number
        expected = self._twin.step(action)
        if shown is not None and shown != expected:
            raise Broken("wrong_bytes", f"block {number} differs from the twin's")
        return True


@dataclass(slots=True)
class Waiting:
    """Bounded patience."""

    clock: Clock
    ends_at_s: float

    def check(self, what: str) -> None:
        """A short pause. Raises `Broken` once it took too long."""
        if self.clock.monotonic_s() > self.ends_at_s:
            raise Broken("hangs", what)
        Event().wait(PAUSE_S)
