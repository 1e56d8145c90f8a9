"""What is asked of the controller about hosts rather than about one session: cordons, and operations over many
sessions.

An *operation* is a row of moves, parks and resumes with one purpose (`control.placement.Kind`). It is told of as it
goes on, may be cancelled between two sessions, and is taken up again by a controller that was started anew.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from worldline.control.placement import Deed, Kind
from worldline.runtime.messages import Message
from worldline.schema.receipt import Mode
from worldline.worlds.protocol import OptionValue

StepState: TypeAlias = Literal["waiting", "running", "done", "refused", "skipped"]
Outcome: TypeAlias = Literal["planned", "done", "partial", "cancelled"]


AT_ONCE_MAX = 16
"""Moves of one operation under way at a time."""


class OperationRequest(Message, frozen=True):
    """-> `Operation`, at once: it runs on by itself. A dry run's has the plan and has ended."""

    kind: Kind
    host: str | None = None
    """Of a drain or an evacuation."""
    dry_run: bool = False
    mode: Mode = Mode.PRECOPY
    transport: str = "tcp"
    park: bool = False
    """A session for which no host is found is parked. An evacuation always does so."""
    idle_s: float = 60.0
    """Of a consolidation: who has been idle for so long is parked."""
    hosts_min: int = 1
    """Of a consolidation: hosts that stay in use."""
    warm_slots: int | None = None
    """Of a consolidation: sessions for which room is kept; None: as many as `capacity.prewarm.warm_buffer` says."""
    at_once: int = 1
    """Moves under way at a time."""
    every_s: float | None = None
    """Of a rebalance or a consolidation: done again and again until it is cancelled."""


class OperationStep(msgspec.Struct, frozen=True):
    """One session of an operation."""

    session: str
    deed: Deed
    source: str
    target: str | None
    arena_bytes: int
    state: StepState = "waiting"
    sentence: str | None = None
    """Why it was refused or skipped, or how it went another way than planned; of one that is not over yet, why it was
    refused in the pass before, or what it waits for.
    """
    pause_s: float | None = None


class OperationLeft(msgspec.Struct, frozen=True):
    """What stays where it is, and why; `session` None where the host as a whole is meant."""

    session: str | None
    host: str
    why: str


class Operation(Message, frozen=True):
    """An operation as the record has it, and as the HTTP API shows it."""

    id: str
    request: OperationRequest
    steps: list[OperationStep]
    """What is done, and of the pass under way or the last one what is not; of a repeated operation this pass alone."""
    left: list[OperationLeft]
    emptied: list[str]
    """Hosts that it has emptied; those of a consolidation are given back."""
    passes: int
    outcome: Outcome | None
    """`partial`: something was left or refused. None while it runs."""
    started_at_s: float
    ended_at_s: float | None
    arena_bytes_total: int
    arena_bytes_done: int
    eta_s: float | None
    """From the rate so far; None before the first session is done."""
    cancelled: bool = False
    """Somebody asked for its end: what is under way goes on to its own, and nothing more is begun."""


class CordonRequest(Message, frozen=True):
    """-> `Host`. A cordoned host takes no new, moved or resumed session; those on it play on. Idempotent."""

    host: str
    cordoned: bool


class PrewarmRequest(Message, frozen=True):
    """-> `Prewarmed`. The host builds the engine, runs its canary and keeps `slots` arenas with their pages in place:
    the next sessions that come to it take those. 0 gives the slots back.
    """

    host: str
    world: str
    options: dict[str, OptionValue]
    slots: int


class GetOperation(Message, frozen=True):
    """-> `Operation`. Raises `UnknownOperation`."""

    operation: str


class ListOperations(Message, frozen=True):
    """-> list of `Operation`, oldest first, the last 64."""


class CancelOperation(Message, frozen=True):
    """-> `Operation`. What is under way is ended as it would have been; nothing more is begun. Idempotent."""

    operation: str


class OperationChanged(Message, frozen=True):
    """A notice to who subscribed."""

    operation: Operation


FleetRequest: TypeAlias = (
    OperationRequest | CordonRequest | PrewarmRequest | GetOperation | ListOperations | CancelOperation
)
