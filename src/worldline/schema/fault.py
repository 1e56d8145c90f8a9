"""Faults that can be planted in a verb by name: `NAME`, `NAME@step`, `NAME,seed`, `NAME@step,seed`.

Invariant: a planted fault may cost the verb, and a process that it kills what that process alone held; nothing else.
Equal texts plant equal faults: what a fault chooses, it chooses by its seed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from worldline.errors import BadValue

SEED = 1
"""Where the text names none."""
_TEXT = re.compile(r"(?P<name>[a-z-]+)(?:@(?P<step>[a-z-]+))?(?:,(?P<seed>[0-9]{1,9}))?\Z", re.ASCII)


class Verb(StrEnum):
    """What a fault can be planted in."""

    MOVE = "move"
    PARK = "park"


class Step(StrEnum):
    """Places of the protocol, in its order: each just before the thing is done, `prepared` when the proof is heard."""

    PREPARE = "prepare"
    RUN = "run"
    PREPARED = "prepared"
    SWAP = "swap"
    ACTIVATE = "activate"
    RETIRE = "retire"


class FaultName(StrEnum):
    FLIP = "flip"
    LIE = "lie"
    DROP = "drop"
    TRUNCATE = "truncate"
    DELAY = "delay"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    STALL = "stall"
    CUT = "cut"
    LATE_WRITE = "late-write"
    KILL_SOURCE = "kill-source"
    KILL_TARGET = "kill-target"
    KILL_CONTROLLER = "kill-controller"
    STOP_SOURCE = "stop-source"
    STOP_TARGET = "stop-target"
    LOSE_ANSWER = "lose-answer"
    ENOSPC = "enospc"
    EIO = "eio"
    SHORT_WRITE = "short-write"
    STORE_UNREACHABLE = "store-unreachable"


@dataclass(frozen=True, slots=True)
class About:
    """`steps`: where it can be planted, the first where the text names none; empty where it has no step."""

    sentence: str
    verbs: frozenset[Verb] = frozenset({Verb.MOVE})
    steps: tuple[Step, ...] = ()


_BOTH = frozenset(Verb)
_ANY = tuple(Step)
_CALLS = (Step.RUN, Step.PREPARE, Step.ACTIVATE, Step.RETIRE)
_LINES = (Step.SWAP, Step.PREPARE, Step.RETIRE)

FAULTS: Mapping[FaultName, About] = {
    FaultName.FLIP: About("one bit of the state arrives wrong, however often it is sent"),
    FaultName.LIE: About("the transport says that all has landed and leaves 64 bytes out"),
    FaultName.DROP: About("one part of the first transfer never leaves, and nobody is told"),
    FaultName.TRUNCATE: About("the end of each transfer never leaves, and nobody is told"),
    FaultName.DELAY: About("everything arrives late"),
    FaultName.DUPLICATE: About("everything that is sent arrives twice"),
    FaultName.REORDER: About("the parts of a transfer arrive in another order"),
    FaultName.STALL: About("nothing of the state is ever delivered"),
    FaultName.CUT: About("the link closes in the middle of the first transfer"),
    FaultName.LATE_WRITE: About("the source goes on writing after it froze"),
    FaultName.KILL_SOURCE: About("the source's process is killed", _BOTH, (Step.RUN, *_ANY)),
    FaultName.KILL_TARGET: About("the target's process is killed; without a step, while bytes arrive", steps=_ANY),
    FaultName.KILL_CONTROLLER: About("the controller's process is killed", _BOTH, (Step.SWAP, *_ANY)),
    FaultName.STOP_SOURCE: About("the source's process stands still for a second", _BOTH, (Step.SWAP, *_ANY)),
    FaultName.STOP_TARGET: About("the target's process stands still for a second", steps=(Step.SWAP, *_ANY)),
    FaultName.LOSE_ANSWER: About("what a host answers at this step is never heard, once", _BOTH, _CALLS),
    FaultName.ENOSPC: About(
        "the disk is full for a while: the record's at its step; in a park without a step, the image's", _BOTH, _LINES
    ),
    FaultName.EIO: About(
        "the disk fails for a while: the record's at its step; in a park without a step, the image's", _BOTH, _LINES
    ),
    FaultName.SHORT_WRITE: About("the image's disk keeps less than it says", frozenset({Verb.PARK})),
    FaultName.STORE_UNREACHABLE: About("the commit's answer is lost, and the record can't be read for a while"),
}
"""Every fault, and what it does, for people."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one verb. `step` None: the fault has none, or happens where its sentence says."""

    name: FaultName
    step: Step | None = None
    seed: int = SEED

    def __str__(self) -> str:
        step = "" if self.step is None else f"@{self.step}"
        return f"{self.name}{step}" + ("" if self.seed == SEED else f",{self.seed}")


def parse_fault(text: str, verb: Verb = Verb.MOVE) -> Fault:
    """Raises `BadValue`, which lists what this verb knows, or the steps that this fault has."""
    read = _TEXT.match(text)
    known = {name.value for name, about in FAULTS.items() if verb in about.verbs}
    if read is None or read["name"] not in known:
        raise BadValue(
            f"no fault of a {verb} is called {text[:80]!r}; known are {', '.join(sorted(known))}, each as "
            f"NAME[@step][,seed]",
            fault=text[:80],
        )
    name = FaultName(read["name"])
    steps = FAULTS[name].steps
    if read["step"] is not None and read["step"] not in steps:
        at = f"at {', '.join(dict.fromkeys(steps))}" if steps else "at no step"
        raise BadValue(f"{name} can be planted {at}, not at {read['step'][:80]!r}", fault=text[:80])
    step = None if read["step"] is None else Step(read["step"])
    return Fault(name, step, SEED if read["seed"] is None else int(read["seed"]))


def fault_in(text: str | None, name: FaultName) -> Fault | None:
    """The move's fault, if it is the one of this name. Its text was parsed before."""
    fault = None if text is None else parse_fault(text)
    return fault if fault is not None and fault.name is name else None
