"""Simulated players of real sessions: they act, think, go away and come back; what each of them saw is kept.

Sources of the figures. *Bursts*: a public trace of requests to a code model (Azure LLM inference 2023, 8,819 rows)
has arrivals whose count varies 13.2 times as much as its mean; geometric batches of 7 give 2 x 7 - 1. *Away*: the gaps
between the turns of 3,958 conversations (Mooncake, FAST 2025) are lognormal, median 130.26 s, sigma 0.982; it is chat
and no play, so it serves as a proxy of players who leave the keyboard, shortened as the experiment says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from threading import Condition, Event, Thread

from worldline.clock import Clock
from worldline.errors import Unavailable, WorldlineError
from worldline.lab.experiments.traffic import BATCH_MEAN
from worldline.service.client import Client, SessionHandle
from worldline.service.verbs import StepBlock

AWAY_MEDIAN_S, AWAY_SIGMA = 130.26, 0.982
THINKS_EVERY = 12
"""Blocks, on average, after which a player stops for a thought."""
ASKED_AGAIN_MAX = 5


def bursts(chance: Random, mean_gap_s: float) -> Iterator[tuple[float, int]]:
    """Endless: the gap before a burst, and how many arrive in it. One arrival every `mean_gap_s` on average."""
    while True:
        size = 1
        while chance.random() > 1 / BATCH_MEAN:
            size += 1
        yield chance.expovariate(1.0) * mean_gap_s * BATCH_MEAN, size


@dataclass(frozen=True, slots=True)
class Habit:
    """Of one player. Times as they pass here."""

    plays_s: float
    """Mean of a phase of play."""
    thinks_s: float
    away_median_s: float

    def away_s(self, chance: Random) -> float:
        return self.away_median_s * chance.lognormvariate(0.0, AWAY_SIGMA)


@dataclass(frozen=True, slots=True)
class Seen:
    """One action and its block."""

    asked_at_s: float
    """Wall time."""
    action: int
    block: StepBlock


@dataclass(slots=True)
class Player:
    """One player of one session, in a thread. `seen` grows while it plays."""

    url: str
    session: str
    actions: int
    habit: Habit
    chance: Random
    clock: Clock
    pace_s: float = 0.0
    """Between two actions at least: a world without a pace of its own takes all of a processor from those with one."""
    seen: list[Seen] = field(default_factory=list)
    error: WorldlineError | None = None
    """What ended the player: the session is lost to it."""
    playing: bool = True
    """In a phase of play, which goes on after the next block."""
    away_s: float = 0.0
    _stop: Event = field(default_factory=Event)
    _going: Event = field(default_factory=Event)
    """Away after the next block."""
    _changed: Condition = field(default_factory=Condition)
    _thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._run, name=f"player-{self.session}")
        self._thread.start()

    def stop(self) -> None:
        """It acts no more; what it has asked for it still waits for."""
        self._stop.set()

    def go(self, habit: Habit) -> None:
        """It goes away after its next block, if it is not away, and has this habit from then on."""
        self.habit = habit
        self._going.set()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def wait_for(self, blocks: int, within_s: float) -> bool:
        """Whether so many blocks were seen in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= blocks or self.error is not None, within_s)

    def _run(self) -> None:
        try:
            with Client(self.url) as client:
                handle = client.session(self.session)
                while not self._stop.is_set():
                    self._phase(handle)
        except WorldlineError as error:
            self.error = error
        finally:
            self.playing = False

    def _phase(self, handle: SessionHandle) -> None:
        ends_at_s = self.clock.monotonic_s() + self.chance.expovariate(1.0) * self.habit.plays_s
        self.playing = True
        while not (self._stop.is_set() or self._going.is_set()) and self.clock.monotonic_s() < ends_at_s:
            next_at_s = self.clock.monotonic_s() + self.pace_s
            self._act(handle, self.chance.randrange(self.actions))
            if self._going.is_set():
                break
            self._stop.wait(max(0.0, next_at_s - self.clock.monotonic_s()))
            if self.chance.random() < 1 / THINKS_EVERY:
                self._stop.wait(self.chance.expovariate(1.0) * self.habit.thinks_s)
        self.playing = False
        self._going.clear()
        began_s = self.clock.monotonic_s()
        self._stop.wait(self.habit.away_s(self.chance))
        self.away_s += self.clock.monotonic_s() - began_s

    def _act(self, handle: SessionHandle, action: int) -> None:
        """One action under its own number: asked again after a silence, it is not applied twice."""
        asked_at_s = self.clock.wall_s()
        first = self.seen[-1].block.number + 1 if self.seen else None
        block = self._ask(handle, action, first)
        with self._changed:
            self.seen.append(Seen(asked_at_s, action, block))
            self._changed.notify_all()

    def _ask(self, handle: SessionHandle, action: int, first: int | None) -> StepBlock:
        left = ASKED_AGAIN_MAX
        while True:
            try:
                (block,) = handle.step(action, first=first)
            except Unavailable:
                left -= 1
                if left == 0:
                    raise
            else:
                return block
