"""A record in memory: what `StoreSuite` compares a durable one with, and what tests of a controller write to."""

from __future__ import annotations

import errno
import os

from worldline.errors import RecordFailed
from worldline.runtime.fleet_messages import Operation
from worldline.runtime.messages import Cordon, Move, Session, Signer
from worldline.runtime.store import Change, Claim, Incarnation, Owner
from worldline.schema.fault import FaultName
from worldline.schema.plan import Qualification
from worldline.schema.receipt import Receipt


class MemoryStore:
    """See `worldline.runtime.store.Store`. Nothing of it outlives its process."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._lines: dict[str, list[Move]] = {}
        self._receipts: dict[str, Receipt] = {}
        self._claims: dict[str, Claim] = {}
        self._qualifications: dict[tuple[str, str], Qualification] = {}
        self._incarnations: dict[str, Incarnation] = {}
        self._signers: dict[tuple[str, str], Signer] = {}
        self._cordons: dict[str, Cordon] = {}
        self._operations: dict[str, Operation] = {}
        self._spoiled: FaultName | None = None

    async def commit(self, change: Change) -> bool:
        self._write()
        held = self._sessions.get(change.session.id)
        if (None if held is None else Owner.of(held)) != change.expected:
            return False
        if change.move is not None and change.phase_expected is not None:
            newest = await self.move(change.move.id)
            if newest is None or newest.phase != change.phase_expected:
                return False
        self._sessions[change.session.id] = change.session
        if change.move is not None:
            self._lines.setdefault(change.move.id, []).append(change.move)
        if change.receipt is not None:
            self._receipts[change.receipt.id] = change.receipt
        return True

    async def journal(self, move: Move) -> None:
        self._write()
        self._lines.setdefault(move.id, []).append(move)

    async def session(self, session: str) -> Session | None:
        return self._sessions.get(session)

    async def sessions(self) -> list[Session]:
        return list(self._sessions.values())

    async def move(self, move: str) -> Move | None:
        lines = self._lines.get(move)
        return lines[-1] if lines else None

    async def moves(self, newest: int) -> list[Move]:
        return [lines[-1] for lines in self._lines.values()][-newest:]

    async def open_moves(self) -> list[Move]:
        return [lines[-1] for lines in self._lines.values() if lines[-1].outcome is None]

    async def receipt(self, receipt: str) -> Receipt | None:
        return self._receipts.get(receipt)

    async def claim(self, claim: Claim) -> Claim | None:
        self._write()
        older = self._claims.get(claim.key)
        self._claims.setdefault(claim.key, claim)
        return older

    async def answer(self, key: str, answer: bytes) -> None:
        self._write()
        held = self._claims[key]
        self._claims[key] = Claim(key, held.verb, held.id, answer)

    async def release(self, key: str) -> None:
        self._claims.pop(key, None)

    async def qualify(self, qualification: Qualification) -> None:
        self._qualifications[(qualification.source_plan, qualification.target_plan)] = qualification

    async def qualification(self, source_plan: str, target_plan: str) -> Qualification | None:
        return self._qualifications.get((source_plan, target_plan))

    async def incarnations(self) -> list[Incarnation]:
        return list(self._incarnations.values())

    async def remember(self, incarnation: Incarnation) -> None:
        self._incarnations[incarnation.host] = incarnation

    async def signers(self) -> list[Signer]:
        return list(self._signers.values())

    async def add_signer(self, signer: Signer) -> bool:
        return self._signers.setdefault((signer.host, signer.key), signer) is signer

    async def cordons(self) -> dict[str, Cordon]:
        return dict(self._cordons)

    async def keep_cordon(self, host: str, cordon: Cordon | None) -> None:
        self._cordons.pop(host, None)
        if cordon is not None:
            self._cordons[host] = cordon

    async def operations(self, newest: int) -> list[Operation]:
        kept = list(self._operations.values())
        last = {operation.id for operation in kept[-newest:]}
        return [operation for operation in kept if operation.outcome is None or operation.id in last]

    async def keep_operation(self, operation: Operation) -> None:
        self._operations[operation.id] = operation

    def spoil_next(self, how: FaultName) -> None:
        self._spoiled = how

    async def close(self) -> None:
        """Nothing to release."""

    def _write(self) -> None:
        spoiled, self._spoiled = self._spoiled, None
        if spoiled is not None:
            number = errno.ENOSPC if spoiled is FaultName.ENOSPC else errno.EIO
            raise RecordFailed(f"the record can't be written now: {os.strerror(number)}")
