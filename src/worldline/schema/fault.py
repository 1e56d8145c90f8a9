"""Faults that can be planted in a verb by name: `NAME`, `NAME@step`, `NAME,seed`, `NAME@step,seed`.

Invariant: a planted fault may cost the verb, and a process that it kills what that process alone held; nothing else.
Equal texts plant equal faults: what a fault chooses, it chooses by its seed. docs/faults.md has the table of what can
be planted in which message and which write; a test holds it against the code.
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
    RESUME = "resume"


class Step(StrEnum):
    """Places of the protocol: what the controller does, in its order, and the records of the data plane."""

    CLAIM = "claim"
    """The idempotency key's row is written."""
    BEGIN = "begin"
    """The order's first line is written."""
    PREPARE = "prepare"
    """The target is asked to prepare, or to load the image."""
    RUN = "run"
    """The source is asked to send, or to write the image."""
    PROGRESS = "progress"
    """The source tells how far it is."""
    AWAIT = "await"
    """The target is asked for its proof."""
    PREPARED = "prepared"
    """The proof is heard; as a record, the target's word to the source."""
    SWAP = "swap"
    """The commit: owner, line and receipt."""
    ACTIVATE = "activate"
    ACTIVATED = "activated"
    """The line that the target plays is written."""
    RETURN = "return"
    """The commit is taken back: the target is killed at `activate`, so that there is a way back, unless the arena was
    handed over.
    """
    OWNER = "owner"
    """The gateway is told of the new owner."""
    RETIRE = "retire"
    END = "end"
    """The order's last line is written."""
    GIVE_UP = "give-up"
    """The line that calls the order off. Here and at the next two the proof is turned down, so that there is something
    to undo.
    """
    DISCARD = "discard"
    THAW = "thaw"
    ANSWER = "answer"
    """The verb's answer is written beside its key."""
    HELLO = "hello"
    MANIFEST = "manifest"
    ROUND_END = "round-end"
    DIGESTS = "digests"
    SEAL = "seal"
    REFUSED = "refused"
    """The target's refusal; bytes are spoiled, so that there is one."""
    ABORT = "abort"
    """The source's; it can't read what the target tells it, so that there is one."""


KEYS = (Step.CLAIM, Step.ANSWER)
LINES = (Step.SWAP, Step.BEGIN, Step.END, Step.GIVE_UP, Step.ACTIVATED, Step.RETURN)
CALLS = (Step.RUN, Step.PREPARE, Step.AWAIT, Step.ACTIVATE, Step.RETIRE, Step.DISCARD, Step.THAW)
NOTICES = (Step.OWNER, Step.PROGRESS)
RECORDS = (
    Step.SEAL, Step.HELLO, Step.MANIFEST, Step.ROUND_END, Step.DIGESTS, Step.PREPARED, Step.REFUSED, Step.ABORT,
)  # fmt: skip
UNDOING = frozenset({Step.GIVE_UP, Step.DISCARD, Step.THAW})
"""Steps that an order comes to only where something went wrong before."""
_PLACES = (
    Step.BEGIN, Step.PREPARE, Step.RUN, Step.AWAIT, Step.PREPARED, Step.SWAP, Step.ACTIVATE, Step.ACTIVATED,
    Step.RETURN, Step.OWNER, Step.RETIRE, Step.END, Step.GIVE_UP, Step.DISCARD, Step.THAW,
)  # fmt: skip
"""Where a process can be struck."""

STEPS: Mapping[Verb, frozenset[Step]] = {
    Verb.MOVE: frozenset(Step),
    Verb.PARK: frozenset(
        {
            *KEYS,
            Step.BEGIN,
            Step.RUN,
            Step.PREPARED,
            Step.SWAP,
            Step.OWNER,
            Step.RETIRE,
            Step.END,
            Step.GIVE_UP,
            Step.THAW,
        },
    ),
    Verb.RESUME: frozenset(
        {*KEYS, *LINES, Step.PREPARE, Step.PREPARED, Step.ACTIVATE, Step.OWNER, Step.DISCARD},
    ),
}
"""The steps that each verb has."""


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
    KILL_GATEWAY = "kill-gateway"
    STOP_SOURCE = "stop-source"
    STOP_TARGET = "stop-target"
    STOP_CONTROLLER = "stop-controller"
    STOP_GATEWAY = "stop-gateway"
    LOSE_CALL = "lose-call"
    LATE_CALL = "late-call"
    REPEAT_CALL = "repeat-call"
    REORDER_CALL = "reorder-call"
    LOSE_ANSWER = "lose-answer"
    LATE_ANSWER = "late-answer"
    REPEAT_ANSWER = "repeat-answer"
    REORDER_ANSWER = "reorder-answer"
    LOSE_NOTICE = "lose-notice"
    LATE_NOTICE = "late-notice"
    REPEAT_NOTICE = "repeat-notice"
    REORDER_NOTICE = "reorder-notice"
    ENOSPC = "enospc"
    EIO = "eio"
    SHORT_WRITE = "short-write"
    STORE_UNREACHABLE = "store-unreachable"


@dataclass(frozen=True, slots=True)
class About:
    """`steps`: where it can be planted, the first that the verb has where the text names none. `bare`: verbs in which
    it has a place of its own where the text names no step, which the sentence tells.
    """

    sentence: str
    verbs: frozenset[Verb] = frozenset({Verb.MOVE})
    steps: tuple[Step, ...] = ()
    bare: frozenset[Verb] = frozenset()

    def steps_in(self, verb: Verb) -> tuple[Step, ...]:
        """Without repetition, the usual one first. Only a move has records."""
        if self.steps is RECORDS and verb is not Verb.MOVE:
            return ()
        return tuple(dict.fromkeys(step for step in self.steps if step in STEPS[verb]))


_ALL = frozenset(Verb)
_MOVE = frozenset({Verb.MOVE})
_LEAVES = frozenset({Verb.MOVE, Verb.PARK})
_ARRIVES = frozenset({Verb.MOVE, Verb.RESUME})


def _of_bytes(sentence: str, *, images: bool = False) -> About:
    """A fault of the data plane: of the state's bytes, or of one record at its step."""
    verbs = _ARRIVES if images else _MOVE
    return About(sentence, verbs, RECORDS, verbs)


def _of_process(sentence: str, verbs: frozenset[Verb], usual: Step, bare: frozenset[Verb] = frozenset()) -> About:
    return About(sentence, verbs, (usual, *_PLACES), bare)


def _of_disk(sentence: str, bare: frozenset[Verb]) -> About:
    return About(sentence, _ALL, (*LINES, *KEYS), bare)


FAULTS: Mapping[FaultName, About] = {
    FaultName.FLIP: _of_bytes(
        "one bit of the state arrives wrong, however often it is sent or read; at a step, one bit of that record",
        images=True,
    ),
    FaultName.LIE: About("the transport says that all has landed and leaves 64 bytes out", bare=_MOVE),
    FaultName.DROP: _of_bytes(
        "one part of the first transfer never leaves, and nobody is told; at a step, that record never does"
    ),
    FaultName.TRUNCATE: _of_bytes(
        "the end of each transfer never leaves, or the image's is not read; at a step, that record's end is missing",
        images=True,
    ),
    FaultName.DELAY: _of_bytes("everything arrives late; at a step, that record does"),
    FaultName.DUPLICATE: _of_bytes("everything that is sent arrives twice; at a step, that record does"),
    FaultName.REORDER: _of_bytes(
        "the parts of a transfer arrive in another order; at a step, that record comes after the next one"
    ),
    FaultName.STALL: About("nothing of the state is ever delivered", bare=_MOVE),
    FaultName.CUT: _of_bytes("the link closes in the middle of the first transfer; at a step, in place of that record"),
    FaultName.LATE_WRITE: About("the source goes on writing after it froze", bare=_MOVE),
    FaultName.KILL_SOURCE: _of_process("the source's process is killed", _LEAVES, Step.RUN),
    FaultName.KILL_TARGET: _of_process(
        "the target's process is killed; in a move without a step, while bytes arrive", _ARRIVES, Step.PREPARE, _MOVE
    ),
    FaultName.KILL_CONTROLLER: _of_process("the controller's process is killed", _ALL, Step.SWAP),
    FaultName.KILL_GATEWAY: _of_process("the gateway's process is killed", _ALL, Step.SWAP),
    FaultName.STOP_SOURCE: _of_process("the source's process stands still for a second", _LEAVES, Step.SWAP),
    FaultName.STOP_TARGET: _of_process("the target's process stands still for a second", _ARRIVES, Step.SWAP),
    FaultName.STOP_CONTROLLER: _of_process("the controller's process stands still for a second", _ALL, Step.SWAP),
    FaultName.STOP_GATEWAY: _of_process("the gateway's process stands still for a second", _ALL, Step.SWAP),
    FaultName.LOSE_CALL: About("the call of this step never reaches its host, once", _ALL, CALLS),
    FaultName.LATE_CALL: About("the call of this step reaches its host late", _ALL, CALLS),
    FaultName.REPEAT_CALL: About("the call of this step reaches its host twice", _ALL, CALLS),
    FaultName.REORDER_CALL: About(
        "the call of this step is given up, and reaches its host after the one that follows", _ALL, CALLS
    ),
    FaultName.LOSE_ANSWER: About("what a host answers at this step is never heard, once", _ALL, CALLS),
    FaultName.LATE_ANSWER: About("what a host answers at this step is heard late", _ALL, CALLS),
    FaultName.REPEAT_ANSWER: About("what a host answers at this step is heard twice", _ALL, CALLS),
    FaultName.REORDER_ANSWER: About("what a host answers at this step is heard after what comes next", _ALL, CALLS),
    FaultName.LOSE_NOTICE: About(
        "what is told at this step is never heard; the gateway's link ends with it", _ALL, NOTICES
    ),
    FaultName.LATE_NOTICE: About("what is told at this step is heard late", _ALL, NOTICES),
    FaultName.REPEAT_NOTICE: About("what is told at this step is heard twice", _ALL, NOTICES),
    FaultName.REORDER_NOTICE: About("what is told at this step is heard after what comes next", _ALL, NOTICES),
    FaultName.ENOSPC: _of_disk(
        "the record's disk is full for a while; in a park without a step, the image's", frozenset({Verb.PARK})
    ),
    FaultName.EIO: _of_disk(
        "the record's disk fails for a while; in a park or a resume without a step, the image's",
        frozenset({Verb.PARK, Verb.RESUME}),
    ),
    FaultName.SHORT_WRITE: _of_disk(
        "the record's disk takes a part and fails; in a park without a step, the image's keeps less than it says",
        frozenset({Verb.PARK}),
    ),
    FaultName.STORE_UNREACHABLE: About(
        "the commit's answer is lost, and the record can't be read for a while", _ALL, bare=_ALL
    ),
}
"""Every fault, and what it does, for people."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one verb. `step` None: it happens where its sentence says."""

    name: FaultName
    step: Step | None = None
    seed: int = SEED

    def __str__(self) -> str:
        step = "" if self.step is None else f"@{self.step}"
        return f"{self.name}{step}" + ("" if self.seed == SEED else f",{self.seed}")


def parse_fault(text: str, verb: Verb = Verb.MOVE) -> Fault:
    """The fault, with its usual step where the text names none and the fault has no place of its own.

    Raises `BadValue`, which lists what this verb knows, or the steps that this fault has in it.
    """
    read = _TEXT.match(text)
    known = {name.value for name, about in FAULTS.items() if verb in about.verbs}
    if read is None or read["name"] not in known:
        raise BadValue(
            f"no fault of a {verb} is called {text[:80]!r}; known are {', '.join(sorted(known))}, each as "
            f"NAME[@step][,seed]",
            fault=text[:80],
        )
    name = FaultName(read["name"])
    steps = FAULTS[name].steps_in(verb)
    if read["step"] is not None and read["step"] not in steps:
        at = f"at {', '.join(steps)}" if steps else "at no step"
        raise BadValue(f"in a {verb}, {name} can be planted {at}, not at {read['step'][:80]!r}", fault=text[:80])
    step = None if read["step"] is None else Step(read["step"])
    if step is None and verb not in FAULTS[name].bare:
        step = steps[0]
    return Fault(name, step, SEED if read["seed"] is None else int(read["seed"]))


def faults_of(verb: Verb) -> list[Fault]:
    """Every fault that can be planted in a verb, at each of its steps, with the usual seed."""
    return [
        Fault(name, step)
        for name, about in FAULTS.items()
        if verb in about.verbs
        for step in (*((None,) if verb in about.bare else ()), *about.steps_in(verb))
    ]


def fault_in(text: str | None, name: FaultName) -> Fault | None:
    """The move's fault, if it is the one of this name. Its text was parsed before."""
    fault = None if text is None else parse_fault(text)
    return fault if fault is not None and fault.name is name else None
