"""Why a world does not conform, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Cause(StrEnum):
    """What is wrong with an adapter. Those named first bring others about, and are told first."""

    NOT_LAID_OUT = "a state that can't be laid out"
    ENGINE_FAILED = "the engine failed"
    GLOBAL_CHANCE = "a global generator"
    SHARED_STATE = "state on the module"
    LOOKING_WRITES = "a look that writes"
    UNWRITTEN_MEMORY = "unwritten memory or an unstable result"
    ALIAS_LOST = "an aliased tensor"
    RESTORE_CHANGED = "a restore that changes the state"
    LEFT_OUT = "something left out"
    POINTER_MOVED = "a moved pointer"
    UNDECLARED_WRITE = "an undeclared write"
    IDLE_ENTRY = "an entry without effect"
    SEED_IGNORED = "an ignored seed"
    BOUND_EXCEEDED = "a state beyond its bound"
    READOUT_WRONG = "pictures other than declared"
    ACTION_TAKEN = "an action that does not exist"
    FACTS_WRONG = "facts that do not tell the weights"


EXPLANATIONS: Final[Mapping[Cause, str]] = {
    Cause.ENGINE_FAILED: (
        "The adapter raised an error where a session is opened, stepped, looked at or restored. Until that is "
        "mended nothing else can be said."
    ),
    Cause.NOT_LAID_OUT: "`state()` holds something that has no exact form as bytes, such as a float or an object.",
    Cause.GLOBAL_CHANCE: (
        "The engine draws from the process's random generator, which no session owns. Two sessions of one "
        "host disturb each other, and a moved session draws from another host's."
    ),
    Cause.SHARED_STATE: (
        "The model keeps something of a session between steps: an attribute, a buffer, a position. A second "
        "session on the same model overwrites it, and a move leaves it behind."
    ),
    Cause.UNWRITTEN_MEMORY: (
        "Two sessions that must be equal are not. Either memory that nobody wrote is part of the state, or a "
        "kernel does not give the same bits twice."
    ),
    Cause.ALIAS_LOST: (
        "Two entries are views of one memory, and after `restore` they are two memories. What is written to "
        "one is no longer seen in the other."
    ),
    Cause.RESTORE_CHANGED: "The state differs as soon as it is restored: something was drawn, converted or set anew.",
    Cause.LEFT_OUT: (
        "The state comes back as it was, and the next blocks are others all the same: the engine reads "
        "something that `state()` does not hold."
    ),
    Cause.POINTER_MOVED: (
        "An entry was allocated from the session's memory and was then bound to another tensor. Its bytes "
        "must be copied at every boundary, and a captured graph goes on reading the old address."
    ),
    Cause.UNDECLARED_WRITE: (
        "A block wrote where the entry's rule says that it does not. A move sends what the rules say has "
        "changed, so it would have to find out by itself."
    ),
    Cause.LOOKING_WRITES: "Reading the state changes it, so a session that is moved or digested plays otherwise.",
    Cause.IDLE_ENTRY: (
        "Without this entry the next blocks are the same. It costs bytes in every move and proves nothing."
    ),
    Cause.SEED_IGNORED: "Sessions of different seeds are one and the same.",
    Cause.BOUND_EXCEEDED: "A session became larger than the world says it can. Its arena has no room for it.",
    Cause.READOUT_WRONG: "What a block returns is not what the world declares, or is written over later.",
    Cause.ACTION_TAKEN: "An action outside the range was taken, or refused only after something had changed.",
    Cause.FACTS_WRONG: "Hosts are compared by these facts. Without a digest of the weights two models pass for one.",
}


def rank(cause: Cause) -> int:
    """0 for what is told first."""
    return list(Cause).index(cause)
