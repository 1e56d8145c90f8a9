"""The record: who owns which session, what every move did, and the receipts. The one place where a commit happens.

Invariant: a session's owner and epoch change only through `Store.commit`, which compares both with what the caller
believed and writes the session, the journal's line and the receipt in one durable transaction, or nothing. What
`commit` or `journal` returned from survives the loss of the process and of power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from worldline.runtime.fleet_messages import Operation
from worldline.runtime.messages import Cordon, Move, Session, Signer
from worldline.schema.fault import FaultName
from worldline.schema.plan import Qualification
from worldline.schema.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Owner:
    """Who may generate a session's blocks; `host` is None while it is parked, lost or closed."""

    host: str | None
    epoch: int

    @classmethod
    def of(cls, session: Session) -> Owner:
        return cls(session.host, session.epoch)


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction over one session: its next row, and what is written in the same breath.

    `expected` is the owner that must still be in the record; None inserts a session that must not exist.
    `phase_expected`, where given, must be the phase of the newest line of `move`.
    """

    session: Session
    expected: Owner | None
    move: Move | None = None
    phase_expected: str | None = None
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """An idempotency key's row: the verb it was first used with, the id drawn for what that makes, and its answer."""

    key: str
    verb: bytes
    id: str
    answer: bytes | None


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One start of a host's process, as last seen. `born` is the start time that the kernel keeps of the process, in
    ticks.
    """

    host: str
    generation: str
    pid: int
    born: int


class Store(Protocol):
    """What the controller remembers. All stores pass `worldline.testing.stores`.

    A method that raises `RecordFailed`, or anything but an error of `worldline.errors`, has an unknown outcome: read
    before going on.
    """

    async def commit(self, change: Change) -> bool:
        """The compare-and-swap. True: all of `change` is durable. False: owner or phase was another, nothing was
        written.
        """
        ...

    async def journal(self, move: Move) -> None:
        """Adds the move's phase as a line, durably. The newest line of a move is what `move` answers."""
        ...

    async def session(self, session: str) -> Session | None: ...

    async def sessions(self) -> list[Session]:
        """All ever opened, oldest first."""
        ...

    async def move(self, move: str) -> Move | None: ...

    async def moves(self, newest: int) -> list[Move]:
        """The last `newest` that began, oldest first."""
        ...

    async def open_moves(self) -> list[Move]:
        """Those whose newest line has no outcome."""
        ...

    async def receipt(self, receipt: str) -> Receipt | None: ...

    async def claim(self, claim: Claim) -> Claim | None:
        """None: the key was new, and is this claim's from now on, durably. Else the older row, whatever its verb."""
        ...

    async def answer(self, key: str, answer: bytes) -> None:
        """Completes a claim, durably."""
        ...

    async def release(self, key: str) -> None:
        """Forgets a claim whose verb changed nothing."""
        ...

    async def qualify(self, qualification: Qualification) -> None:
        """Records a pair of plans; the newest of a pair counts."""
        ...

    async def qualification(self, source_plan: str, target_plan: str) -> Qualification | None: ...

    async def incarnations(self) -> list[Incarnation]: ...

    async def remember(self, incarnation: Incarnation) -> None:
        """Replaces what was known of the host."""
        ...

    async def signers(self) -> list[Signer]:
        """Every key of every host, oldest first."""
        ...

    async def add_signer(self, signer: Signer) -> bool:
        """Records a host's public key, durably. False: that host's key was recorded before, and stays as it was."""
        ...

    async def cordons(self) -> dict[str, Cordon]:
        """By host."""
        ...

    async def keep_cordon(self, host: str, cordon: Cordon | None) -> None:
        """Durably; None: the host takes sessions."""
        ...

    async def operations(self, newest: int) -> list[Operation]:
        """Those that have not ended and the last `newest` of all, oldest first."""
        ...

    async def keep_operation(self, operation: Operation) -> None:
        """Durably, in place of what was kept under its id."""
        ...

    def spoil_next(self, how: FaultName) -> None:
        """Plants a fault: the disk under the next write is full, fails, or takes a part and fails. Nothing of that
        write is kept.
        """
        ...

    async def close(self) -> None: ...
