"""Who is told of every change of the record, over one ordered stream each, and what may be planted in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from worldline.errors import Unavailable
from worldline.runtime.fleet_messages import OperationChanged
from worldline.runtime.messages import HostChanged, MoveChanged, SessionChanged
from worldline.runtime.rpc_peer import Peer
from worldline.runtime.trouble import LATE_S, Trouble
from worldline.schema.fault import FaultName, Step

Told: TypeAlias = SessionChanged | MoveChanged | HostChanged | OperationChanged


class Subscribers:
    """Peers that asked for it; in a fleet, the gateway. Whoever does not read is disconnected, and reads all anew."""

    def __init__(self) -> None:
        self._peers: set[Peer] = set()

    def add(self, peer: Peer) -> None:
        self._peers.add(peer)

    def discard(self, peer: Peer) -> None:
        self._peers.discard(peer)

    def tell(self, told: Told) -> None:
        for peer in tuple(self._peers):
            try:
                peer.notify(told)
            except Unavailable:
                self._peers.discard(peer)

    def pid(self) -> int | None:
        """Of one of them."""
        return next((peer.pid for peer in self._peers if not peer.closed), None)

    def cut(self) -> None:
        """Planted: every link ends here, and with it what was on its way."""
        for peer in tuple(self._peers):
            peer.abort()


class Telling:
    """What is told of one session while an order with a planted fault changes its owner. `epoch`: before the order."""

    def __init__(self, trouble: Trouble, subscribers: Subscribers, epoch: int) -> None:
        self._trouble = trouble
        self._subscribers = subscribers
        self._epoch = epoch
        self._overtaken: SessionChanged | None = None

    def tell(self, told: SessionChanged) -> None:
        befallen = self._trouble.notice(Step.OWNER) if told.session.epoch > self._epoch else None
        match befallen:
            case FaultName.LOSE_NOTICE:
                self._subscribers.cut()
            case FaultName.LATE_NOTICE:
                self._later(lambda: self._subscribers.tell(told))
            case FaultName.REORDER_NOTICE:
                self._overtaken = told
                self._later(self.end)
            case FaultName.REPEAT_NOTICE:
                self._subscribers.tell(told)
                self._subscribers.tell(told)
            case _:
                self._subscribers.tell(told)
                self.end()

    def end(self) -> None:
        """Tells what was held back."""
        overtaken, self._overtaken = self._overtaken, None
        if overtaken is not None:
            self._subscribers.tell(overtaken)

    def _later(self, act: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(LATE_S, act)
