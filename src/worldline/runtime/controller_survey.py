"""What an operation knows before it decides: hosts as seats, sessions as sittings, from their hosts' own words.

Cost: one question a host that may give or take sessions, and one row of receipts a session that may be moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from worldline.clock import Clock
from worldline.control.admission import check_plans
from worldline.control.placement import Seat, Sitting
from worldline.errors import PlanMismatch, Unavailable, WorldlineError
from worldline.runtime.controller_book import Book
from worldline.runtime.controller_hosts import HostLink, Hosts
from worldline.runtime.messages import HostFacts, Session, SessionFacts
from worldline.schema.receipt import Mode

HOUR_S = 3600.0
OTHERS_WAIT_S = 2.0
"""For a host that is asked what it has room for: one that hangs must not hold up the emptying of another."""
RECEIPTS_READ_MAX = 64
"""Of one session: more moves than that in an hour are over any budget."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Survey:
    seats: tuple[Seat, ...]
    sittings: tuple[Sitting, ...]


class Surveyor:
    """`survey` asks; nothing is kept between two of them."""

    def __init__(self, hosts: Hosts, book: Book, clock: Clock) -> None:
        self._hosts = hosts
        self._book = book
        self._clock = clock

    async def survey(self, leaving: Sequence[str] | None) -> Survey:
        """The sessions on the hosts `leaving` (None: on every living one), and every living host as a seat.

        Raises `HostGone` where a host of `leaving` can't be asked; any other that does not answer is left
        out, with its sessions.
        """
        asked = [link for link in self._hosts.all() if link.alive]
        leaves = {link.id for link in asked} if leaving is None else {self._hosts.living(host).id for host in leaving}
        told = await asyncio.gather(*(self._ask(link, leaving is not None and link.id in leaves) for link in asked))
        answers = [(link, facts) for link, facts in zip(asked, told, strict=True) if facts is not None]
        living = [link for link, _ in answers]
        left = [(link, facts) for link, facts in answers if link.id in leaves]
        held = [(link, facts) for link, host in left for facts in host.sessions]
        sittings = [sitting for link, facts in held if (sitting := await self._sitting(link, facts)) is not None]
        kinds: dict[str, SessionFacts] = {}
        for _, facts in held:
            kinds.setdefault(self._needs(facts), facts)
        seats = await asyncio.gather(*(self._seat(link, kinds) for link in living))
        return Survey(tuple(seats), tuple(sittings))

    async def _ask(self, link: HostLink, must: bool) -> HostFacts | None:
        if must:
            return await link.describe()
        try:
            async with asyncio.timeout(OTHERS_WAIT_S):
                return await link.describe()
        except Unavailable as error:
            log.warning("host %s is left out: %s", link.id, error)
        except TimeoutError:
            log.warning("host %s is left out, it did not answer within %g s", link.id, OTHERS_WAIT_S)
        return None

    async def idle_s(self, session: str) -> float | None:
        """How long its player has not acted, by its host's word of now; None where no host has it."""
        row = self._book.row(session)
        if row.host is None:
            return None
        facts = await self._hosts.living(row.host).describe()
        held = next((one for one in facts.sessions if one.session == session), None)
        return None if held is None else self._idle_s(held)

    def _idle_s(self, facts: SessionFacts) -> float:
        return max(self._clock.wall_s() - facts.acted_at_s, 0.0)

    async def _seat(self, link: HostLink, kinds: dict[str, SessionFacts]) -> Seat:
        memory_bytes = 0 if link.facts is None else link.facts.memory_bytes
        is_open = link.alive and link.cordon is None
        takes = [needs for needs, facts in kinds.items() if is_open and await self._may_run(link, facts)]
        return Seat(link.id, memory_bytes, link.free_bytes, is_open, frozenset(takes))

    async def _may_run(self, link: HostLink, facts: SessionFacts) -> bool:
        try:
            plan = await link.plan_of(facts.spec)
            known = await self._book.store.qualification(facts.plan.digest, plan.digest)
            check_plans(facts.spec.contract, facts.plan, plan, known)
        except PlanMismatch:
            return False
        except WorldlineError:  # it can't be asked, or can't build this world: no seat for it
            return False
        return True

    def _needs(self, facts: SessionFacts) -> str:
        bound = facts.spec.contract.readout_psnr_db_min
        return f"{facts.plan.digest} {facts.spec.contract.tier} {bound}"

    async def _sitting(self, link: HostLink, facts: SessionFacts) -> Sitting | None:
        """None for what the record does not give this host."""
        row = self._book.find(facts.session)
        if row is None or row.host != link.id:
            return None
        moves, frozen_s, worst_s = await self._spent(row)
        return Sitting(
            session=row.id,
            host=link.id,
            needs=self._needs(facts),
            arena_bytes=facts.arena_bytes,
            idle_s=self._idle_s(facts),
            moves_spent=moves,
            frozen_spent_s=frozen_s,
            frozen_next_s=worst_s,
            stays=_stays(row, facts),
        )

    async def _spent(self, row: Session) -> tuple[int, float, float]:
        """Moves of the last hour, what they froze the session for, and the worst of them."""
        moves, frozen_s, worst_s = 0, 0.0, 0.0
        since_s = self._clock.wall_s() - HOUR_S
        for receipt_id in reversed(row.receipts[-RECEIPTS_READ_MAX:]):
            receipt = await self._book.receipt(receipt_id)
            if receipt.made_at_s < since_s:
                break
            if receipt.mode in {Mode.FREEZE, Mode.PRECOPY}:
                moves += 1
                frozen_s += receipt.pause_s
                worst_s = max(worst_s, receipt.pause_s)
        return moves, frozen_s, worst_s


def _stays(row: Session, facts: SessionFacts) -> str | None:
    if row.twin_of is not None:
        return f"it is the twin of {row.twin_of}, and twins never move"
    if facts.poisoned is not None:
        return f"its engine failed: {facts.poisoned}"
    if row.status == "moving":
        return f"it is being moved by {row.move}"
    return None
