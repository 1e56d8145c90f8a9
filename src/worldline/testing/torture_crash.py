"""What one crash run does, drawn from its seed, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from worldline.schema.fault import Fault, FaultName, Step, faults_of
from worldline.schema.fault import Verb as Struck
from worldline.schema.receipt import Mode


@dataclass(frozen=True, slots=True)
class Crash:
    """What one run does, drawn from its seed: the same processes, the same moment, as far as real ones repeat it."""

    seed: int
    verb: str
    mode: Mode
    transport: str
    victim: str
    """source, target, controller or gateway; nobody, where a fault is planted."""
    kills: bool
    """SIGKILL; else SIGSTOP, and SIGCONT after `stopped_s`."""
    stopped_s: float
    moment: float
    """As a part of the verb's usual time; beyond 1 it may be over."""
    fault: Fault | None = None
    """Planted in the verb in place of the blow."""

    @classmethod
    def draw(cls, seed: int) -> Crash:
        rng = Random(seed)
        verb = rng.choice(("move", "move", "move", "park", "resume"))
        absent = {"park": "target", "resume": "source"}.get(verb)
        victims = [who for who in ("source", "target", "controller", "gateway") if who != absent]
        return cls(
            seed=seed,
            verb=verb,
            mode=rng.choice((Mode.FREEZE, Mode.PRECOPY)),
            transport=rng.choice(("tcp", "shm")),
            victim=rng.choice(victims),
            kills=rng.random() < 0.5,
            stopped_s=rng.uniform(0.05, 1.5),
            moment=rng.uniform(0.0, 1.3),
            fault=_draw_fault(rng, Struck(verb)) if rng.random() < 0.5 else None,
        )

    @classmethod
    def planted(cls, seed: int, verb: str, mode: Mode, transport: str, fault: Fault) -> Crash:
        """A run with this fault, and no blow beside it."""
        return cls(seed, verb, mode, transport, "nobody", False, 0.0, 0.0, fault)

    @property
    def killed(self) -> str | None:
        """Who ends: source, target, controller or gateway."""
        if self.fault is None:
            return self.victim if self.kills else None
        if self.fault.step is Step.RETURN:
            return "target"
        what, _, who = self.fault.name.partition("-")
        return who if what == "kill" else None

    def __str__(self) -> str:
        if self.fault is not None:
            return f"{self._what}, with {self.fault}"
        how = "kill" if self.kills else f"stop {self.stopped_s:.2f} s"
        return f"{self._what}, {how} the {self.victim} at {self.moment:.2f}"

    @property
    def _what(self) -> str:
        return f"{self.verb} by {self.mode.value} over {self.transport}" if self.verb == "move" else self.verb


def _draw_fault(rng: Random, verb: Struck) -> Fault:
    """Each name as often as any other, and each of its steps."""
    by_name: dict[FaultName, list[Fault]] = {}
    for fault in faults_of(verb):
        by_name.setdefault(fault.name, []).append(fault)
    return replace(rng.choice(by_name[rng.choice(list(by_name))]), seed=rng.randrange(1, 10_000))


@dataclass(slots=True)
class Fate:
    """What came of one run. `bad` says what must not be, by the name of its count."""

    crash: Crash
    moves: int = 0
    seconds: float = 0.0
    died_with_host: bool = False
    returned: bool = False
    """The committed target ended before it was known to play: the session is where it was."""
    source_stood: bool = False
    """Of a session that died with its host: its target was never known to play, and a copy stood at its source."""
    refused: str | None = None
    recovery_s: float | None = None
    """Of a controller that was killed: from its first answer until no order held the session."""
    bad: list[tuple[str, str]] = field(default_factory=list)
