"""Whole histories of a fleet in one thread and no real time: `python -m worldline.testing.simulation --seed 7`.

The machines are the real ones: source, target, hand-over and playback. Around them everything that may go wrong does,
by one seed: calls and answers are lost or come late, links flip, lie and break, something writes into a frozen session,
hosts and the controller end at any moment and the controller comes back with its journal. A player acts all along, and
orders move, park and resume the session.

Checked after every step
  At most one engine can generate the session's next block.
  An owner that takes over has, byte for byte, the state that an unmoved session has after the same actions.
  The player's blocks come in order, none twice, each with the picture of the unmoved session.
Checked at the end, when trouble has stopped
  The record's owner plays, alone, and has applied each action exactly once; or the session is lost, and then its only
  holder had ended. No attempt is left open anywhere.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from worldline.clock import ManualClock
from worldline.control.handoff import Handoff
from worldline.control.playback import Playback
from worldline.migration import source, target
from worldline.schema.ids import HostId
from worldline.testing.simulated_control import Controller, Gateway
from worldline.testing.simulated_host import Host, StoredImage
from worldline.testing.simulated_session import CAPACITY, Arena, Engine, advance

ACTIONS = 60
ACTION_GAP_S = 0.05
ORDERS = 6
TROUBLE_ENDS_S = 12.0
END_S = 400.0

CHANCES: Mapping[str, float] = {
    "flip": 0.004,
    "lie": 0.003,
    "cut": 0.004,
    "late-write": 0.05,
    "request-lost": 0.03,
    "answer-lost": 0.03,
    "call-late": 0.04,
    "swap-unknown": 0.1,
    "host-crash": 0.07,
    "controller-crash": 0.35,
    "play-link-drop": 0.2,
}
"""Of one chunk, call, swap or order each."""


class Violation(AssertionError):
    """An invariant does not hold; the text has the seed and the time."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """The machines under test; sabotage puts others in their place."""

    source: type[source.SourceMachine] = source.SourceMachine
    target: type[target.TargetMachine] = target.TargetMachine
    handoff: type[Handoff] = Handoff
    playback: type[Playback] = Playback


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened in one history."""

    seed: int
    moves_done: int
    moves_refused: int
    lost: bool
    blocks: int
    missed: int
    crashes: int
    steps: int


@dataclass(slots=True)
class _Counts:
    crashes: int = 0
    steps: int = 0


@dataclass(order=True, slots=True)
class _Due:
    at_s: float
    order: int
    action: Callable[[], object] = field(compare=False)


class Simulation:
    """One history."""

    def __init__(self, seed: int, kinds: Kinds | None = None, chances: Mapping[str, float] = CHANCES) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.kinds = kinds or Kinds()
        self.chances = chances
        self.trouble = True
        self.clock = ManualClock()
        self.engines: list[Engine] = []
        self.images: dict[str, StoredImage] = {}
        self._queue: list[_Due] = []
        self._count = 0
        self._channels: dict[str, float] = {}
        self._counts = _Counts()
        self.actions = [self.rng.randrange(256) for _ in range(ACTIONS)]
        self._states = self._unmoved()
        self.hosts = {HostId(name): Host(self, name) for name in ("a", "b", "c")}
        self.gateway = Gateway(self)
        self.controller = Controller(self)

    # ---- time and chance

    @property
    def now_s(self) -> float:
        return self.clock.monotonic_s()

    def after(self, delay_s: float, action: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._queue, _Due(self.now_s + max(delay_s, 0.0), self._count, action))

    def wake(self, at_s: float | None, action: Callable[[], object]) -> None:
        if at_s is not None:
            self.after(at_s - self.now_s + 1e-6, action)

    def in_order(self, channel: str, action: Callable[[], object]) -> None:
        """After a while, and after whatever went into the same channel before."""
        due_s = max(self._channels.get(channel, 0.0), self.now_s + self.rng.uniform(0.0005, 0.02))
        self._channels[channel] = due_s
        self.after(due_s - self.now_s, action)

    def chance(self, fault: str) -> bool:
        return self.trouble and self.rng.random() < self.chances[fault]

    # ---- the history

    def run(self) -> Tally:
        """Plays the history out. Raises `Violation`."""
        self.hosts[HostId("a")].install(self.controller.record.owner.epoch, Arena(self._states[0]), 0)
        self.gateway.begin()
        for number, action in enumerate(self.actions, 1):
            self.after(number * ACTION_GAP_S, lambda n=number, a=action: self.gateway.act(n, a))  # type: ignore[misc]
        for order in range(ORDERS):
            self.after(0.3 + order * 1.5 + self.rng.uniform(0, 0.5), self._order)
        self.after(TROUBLE_ENDS_S, self._end_trouble)
        while self._queue and self._queue[0].at_s < END_S:
            due = heapq.heappop(self._queue)
            self.clock.advance(max(due.at_s - self.now_s, 0.0))
            due.action()
            self._counts.steps += 1
            self._check_owners()
        self._check_end()
        return self._tally()

    def _order(self) -> None:
        if self.chance("controller-crash"):
            self._counts.crashes += 1
            self.after(self.rng.uniform(0, 0.6), self.controller.crash)
        dead = sum(not host.alive for host in self.hosts.values())
        if dead < len(self.hosts) - 1 and self.chance("host-crash"):
            host = self.rng.choice([host for host in self.hosts.values() if host.alive])
            self.after(self.rng.uniform(0, 0.6), lambda: self._crash(host))
        if self.chance("play-link-drop"):
            self.after(self.rng.uniform(0, 0.6), self.gateway.drop_link)
        self.controller.wish()

    def _crash(self, host: Host) -> None:
        self._counts.crashes += 1
        host.crash()
        self.gateway.host_gone(host)
        self.after(self.rng.uniform(0.01, 0.5), lambda: self.controller.host_gone(host.name))

    def _end_trouble(self) -> None:
        self.trouble = False
        self.after(5.0, self.controller.resume_if_parked)

    # ---- what must hold

    def _unmoved(self) -> list[bytes]:
        data = bytearray(hashlib.shake_128(str(self.seed).encode()).digest(CAPACITY))
        states = [bytes(data)]
        for block, action in enumerate(self.actions, 1):
            advance(data, block, action)
            states.append(bytes(data))
        return states

    def picture(self, block: int) -> bytes:
        """What the unmoved session shows."""
        return hashlib.blake2b(self._states[block], digest_size=16).digest()

    def picture_of(self, engine: Engine) -> bytes:
        return hashlib.blake2b(bytes(engine.arena.data), digest_size=16).digest()

    def fail(self, what: str) -> None:
        raise Violation(f"seed {self.seed} at {self.now_s:.4f} s: {what}")

    def check_state(self, arena: Arena, block: int, when: str) -> None:
        if bytes(arena.data) != self._states[block]:
            self.fail(f"{when}: the state of block {block} is not the unmoved session's")

    def _check_owners(self) -> None:
        playing = [engine for engine in self.engines if engine.plays]
        if len(playing) > 1:
            owners = ", ".join(f"{engine.host.name} epoch {engine.epoch}" for engine in playing)
            self.fail(f"two owners play: {owners}")

    def _check_end(self) -> None:
        record = self.controller.record
        playing = [engine for engine in self.engines if engine.plays]
        if record.lost:
            if playing:
                self.fail("the session is said to be lost and plays")
            if record.owner.host is None or self.hosts[record.owner.host].alive:
                self.fail("the session is said to be lost and its owner has not ended")
            return
        if self.controller.handoff is not None:
            self.fail(f"an order never ended: {self.controller.handoff.phase}, {self.controller.handoff.story[-6:]}")
        owner = record.owner
        if owner.host is None:
            self.fail("the session stayed parked although a resume was asked for")
        if [(engine.host.name, engine.epoch) for engine in playing] != [(owner.host, owner.epoch)]:
            self.fail(f"the record says {owner}, and {[(e.host.name, e.epoch) for e in playing]} play")
        self.check_state(playing[0].arena, playing[0].block, "at the end")
        if playing[0].block != ACTIONS or self.gateway.playback.delivered_block != ACTIONS:
            delivered = self.gateway.playback.delivered_block
            self.fail(f"{ACTIONS} actions, {playing[0].block} applied and {delivered} shown")
        self._check_leftovers()

    def _check_leftovers(self) -> None:
        for host in self.hosts.values():
            if host.alive:
                for move, incoming in host.targets.items():
                    if incoming.machine.phase not in (target.Phase.ACTIVE, target.Phase.DISCARDED):
                        self.fail(f"{move} is still {incoming.machine.phase} at its target")
                for move, outgoing in host.sources.items():
                    if outgoing.machine.phase not in (source.Phase.THAWED, source.Phase.RETIRED):
                        self.fail(f"{move} is still {outgoing.machine.phase} at its source")

    def _tally(self) -> Tally:
        control = self.controller
        return Tally(
            seed=self.seed,
            moves_done=control.done,
            moves_refused=control.refused,
            lost=control.record.lost,
            blocks=self.gateway.shown,
            missed=self.gateway.missed,
            crashes=self._counts.crashes,
            steps=self._counts.steps,
        )


def main(arguments: list[str] | None = None) -> int:
    """Replays histories, one line each; ends at the first violation with status 1."""
    parser = argparse.ArgumentParser(prog="python -m worldline.testing.simulation", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--histories", type=int, default=1)
    options = parser.parse_args(arguments)
    for seed in range(options.seed, options.seed + options.histories):
        try:
            tally = Simulation(seed).run()
        except Violation as violation:
            sys.stderr.write(f"{violation}\n")
            return 1
        sys.stdout.write(f"{tally}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
