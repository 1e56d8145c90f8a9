"""What a session's watchers are told at the gateway, and who they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from worldline.errors import WorldlineError
from worldline.runtime.messages import Block, Session


@dataclass(frozen=True, slots=True)
class Shown:
    """A block and the host that made it."""

    host: str
    block: Block


@dataclass(frozen=True, slots=True)
class Ready:
    """What a watcher is told first."""

    block: int
    number: int
    expected: int
    session: Session


@dataclass(frozen=True, slots=True)
class Gap:
    """The first block of a new owner came `ms` after the last one before it."""

    epoch: int
    ms: float
    block: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class TwinVerdict:
    """How session and twin compare up to now."""

    equal: bool
    blocks: int
    differs: int | None
    frames_differ: bool
    state_differs: bool
    unwitnessed: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Blocks whose pictures are gone; the world has them."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something was not done. `number` is the action that was not taken, if that is what it was."""

    error: WorldlineError
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Drive:
    """Whether this watcher's actions count from now on."""

    driving: bool
    expected: int


Told: TypeAlias = Shown | Gap | TwinVerdict | Missed | Trouble | Drive | Session


class Watcher(Protocol):
    """Who is told of a session's blocks and troubles. Must not block, and must not raise."""

    @property
    def pictures(self) -> bool:
        """Whether encoded frames are wanted."""
        ...

    def tell(self, told: Told) -> None: ...
