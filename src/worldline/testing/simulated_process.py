"""Time, processes and trouble of the simulation: one queue of what is due, and what may go wrong, by one seed."""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Action = Callable[[], object]

TOLD_MAX = 20_000

CHANCES: Mapping[str, float] = {
    # of one chunk
    "flip": 0.004,
    "withhold": 0.003,
    "cut": 0.004,
    "late-landing": 0.5,  # of a link that was cut
    # of one freeze
    "late-write": 0.04,
    # of one call
    "request-lost": 0.02,
    "answer-lost": 0.02,
    "call-late": 0.03,
    "call-twice": 0.02,
    # of one proof
    "receipt-lies": 0.02,
    # of one write
    "record-fails": 0.02,
    "swap-unknown": 0.08,
    "image-fails": 0.06,
    "image-torn": 0.03,
    # of one block on its way to the gateway
    "blocks-late": 0.002,
    # of one change of owner
    "zombie-speaks": 0.05,
    # of one place between two commands
    "controller-ends": 0.004,
    "source-ends": 0.002,
    "target-ends": 0.002,
    "gateway-ends": 0.0008,
    # of one order
    "host-ends": 0.05,
    "host-stops": 0.1,
    "controller-stops": 0.06,
    "gateway-stops": 0.04,
    "host-out-of-reach": 0.06,
    "play-link-drops": 0.1,
}


@dataclass(frozen=True, slots=True)
class Ending:
    """The process in the role `who` (controller, source, target, gateway) ends at its `at`-th place between two
    commands.
    """

    who: str
    at: int


class Timeline:
    """What is due, in order of time and then of asking."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Action]] = []
        self._count = 0
        self._channels: dict[object, float] = {}

    def after(self, delay_s: float, action: Action) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s if delay_s > 0 else self.now_s, self._count, action))

    def in_order(self, channel: object, delay_s: float) -> float:
        """`delay_s`, or longer: after whatever went into the same channel before."""
        due_s = max(self._channels.get(channel, 0.0), self.now_s + delay_s)
        self._channels[channel] = due_s
        return due_s - self.now_s

    def step(self, end_s: float) -> bool:
        """Does what is due next; False where nothing is before `end_s`."""
        if not self._queue or self._queue[0][0] > end_s:
            return False
        self.now_s, _, action = heapq.heappop(self._queue)
        action()
        return True


class Trouble:
    """Chance, and what was planted by it. Quiet once `on` is False."""

    def __init__(self, rng: random.Random, chances: Mapping[str, float], ending: Ending | None = None) -> None:
        self.on = True
        self.planted: Counter[str] = Counter()
        self.places: Counter[str] = Counter()
        """Places between two commands that each role has passed."""
        self._rng = rng
        self._chances = chances
        self._ending = ending

    def chance(self, fault: str) -> bool:
        if not self.on or self._rng.random() >= self._chances[fault]:
            return False
        self.planted[fault] += 1
        return True

    def ends_here(self, who: str) -> bool:
        """Whether the process in this role ends between the command before and the next one."""
        if not self.on:
            return False
        self.places[who] += 1
        ending = self._ending
        if ending is not None and ending.who == who and ending.at == self.places[who]:
            self.planted[f"{who}-ends"] += 1
            return True
        return self.chance(f"{who}-ends")


class Process:
    """Something that ends, is stopped, wakes and begins anew. What it was about to do ends with it."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.alive = True
        self.stopped = False
        self.life = 1
        """Counts its incarnations: what was meant for an earlier one is dropped."""
        self._undone: deque[Action] = deque()

    def after(self, delay_s: float, action: Action) -> None:
        """`action` in this life, unless it ends before; a stopped process does it when it wakes."""
        if not self.alive:
            return
        life = self.life
        self.timeline.after(delay_s, lambda: self._act(life, action))

    def _act(self, life: int, action: Action) -> None:
        if not self.alive or life != self.life:
            return
        if self.stopped:
            self._undone.append(action)
        else:
            action()

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def wake(self) -> None:
        """SIGCONT: everything that came meanwhile is done now, in its order."""
        if self.stopped:
            self.stopped = False
            undone, self._undone = self._undone, deque()
            for action in undone:
                self.after(0.0, action)

    def end(self) -> None:
        """SIGKILL."""
        self.alive = self.stopped = False
        self.life += 1
        self._undone.clear()


class Transcript:
    """What happened, for people: the last lines, written out only when somebody reads them."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._lines: deque[tuple[float, str, str, tuple[object, ...]]] = deque(maxlen=TOLD_MAX)

    def tell(self, who: str, line: str, *facts: object) -> None:
        self._lines.append((self._timeline.now_s, who, line, facts))

    def lines(self) -> list[str]:
        return [f"{at_s:9.4f} s  {who:<10}  {line % facts}" for at_s, who, line, facts in self._lines]
