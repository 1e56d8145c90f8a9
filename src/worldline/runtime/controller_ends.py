"""What an order carries, and the two processes between which it does."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from worldline.control.order import Side
from worldline.runtime.controller_hosts import HostLink
from worldline.runtime.messages import SessionSpec
from worldline.schema.fault import Fault, FaultName
from worldline.schema.plan import Plan, Qualification


@dataclass(frozen=True, slots=True)
class Cargo:
    """What an order's calls carry beside the order itself."""

    spec: SessionSpec
    witness: bool
    transport: str
    state_bytes: int
    source_plan: Plan | None
    qualification: Qualification | None = None
    fault: Fault | None = None
    written_under: int | None = None
    """Of a resume: the epoch in force when its image was written."""
    grant_bytes: int | None = None
    """Of a move whose source needs grants: the most that one lets through."""
    arena_bytes: int = 0
    """Of a move: what its target has to reserve."""
    codec: str = "auto"
    """Of a move over tcp."""
    asleep: bool = False
    """Of a park: the session is woken when its player acts again."""

    @property
    def planted(self) -> str | None:
        """The fault as hosts are told of it."""
        return None if self.fault is None else str(self.fault)


@dataclass(slots=True)
class Ends:
    """The two hosts of an order, as the processes that they were when it began, and who asked for it."""

    source: HostLink | None
    target: HostLink | None
    gateway_pid: Callable[[], int | None]
    generations: dict[Side, str | None] = field(init=False)

    def __post_init__(self) -> None:
        links = {Side.SOURCE: self.source, Side.TARGET: self.target}
        self.generations = {side: link.generation for side, link in links.items() if link is not None}

    def link(self, side: Side) -> HostLink:
        link = self.source if side is Side.SOURCE else self.target
        assert link is not None, f"the order has no {side}"
        return link

    def same_process(self, side: Side) -> bool:
        return self.link(side).generation == self.generations[side]

    def pid(self, fault: FaultName) -> int | None:
        """The process that a fault is about; None where there is none, or it has ended: its number may be another's."""
        match fault:
            case FaultName.KILL_CONTROLLER | FaultName.STOP_CONTROLLER:
                return os.getpid()
            case FaultName.KILL_GATEWAY | FaultName.STOP_GATEWAY:
                return self.gateway_pid()
            case FaultName.KILL_SOURCE | FaultName.STOP_SOURCE:
                link = self.source
            case _:
                link = self.target
        if link is None or link.incarnation is None or link.is_over(link.incarnation.generation):
            return None
        return link.incarnation.pid

    def gone(self) -> list[Side]:
        """Sides whose process is known to have ended."""
        return [side for side, was in self.generations.items() if was is not None and self.link(side).is_over(was)]
