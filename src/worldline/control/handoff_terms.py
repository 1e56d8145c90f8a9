"""On what terms the hand-over machine goes on: which receipt it believes, and how often it asks again."""

from __future__ import annotations

from dataclasses import dataclass

from worldline.control.order import Call, Failure, Order, SourceSealed
from worldline.errors import Corrupt, HostGone, StaleEpoch, TimedOut
from worldline.schema.receipt import Receipt

UNANSWERED = frozenset({HostGone.code, TimedOut.code})
"""Errors of a call that say nothing about what the host did."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How calls that must succeed are repeated."""

    first_delay_s: float = 0.05
    delay_s_max: float = 2.0
    attempts_max: int = 40
    """Of a call whose failure leaves a session without an owner that plays, or a host with a session that is over."""
    discards_max: int = 3
    """Of a discard, before the order ends without it: the session plays on at its source, and nobody is to wait for a
    target that hangs. A target that says later that it waits for a move which is over is told so then.
    """

    def delay_s(self, failures: int) -> float:
        """Before the next call after `failures` failed ones."""
        return min(self.first_delay_s * 2.0 ** min(failures - 1, 30), self.delay_s_max)


class Patience:
    """Counts what failed in one order."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._failures: dict[Call | None, int] = {}
        self._denials = 0

    def next_delay_s(self, call: Call | None) -> float:
        """Before a call that has failed once more; None: the record, whose answer did not come."""
        self._failures[call] = self._failures.get(call, 0) + 1
        return self._retries.delay_s(self._failures[call])

    def exhausted(self, call: Call) -> bool:
        """Whether this failure of `call` is the last one that is borne."""
        borne = self._retries.discards_max if call is Call.DISCARD else self._retries.attempts_max
        return self._failures.get(call, 0) + 1 >= borne

    def denied(self, code: str) -> bool:
        """The target itself has said often enough that it can't activate. Its silence says nothing, however long: only
        a process that is known to have ended takes its session with it.
        """
        self._denials += code not in UNANSWERED
        return self._denials >= self._retries.attempts_max


def contradiction(order: Order, sealed: SourceSealed | None, receipt: Receipt) -> Failure | None:
    """What in a receipt is not what was ordered and sealed."""
    ours = (order.move, order.session, order.after.epoch)
    if (receipt.move, receipt.session, receipt.epoch) != ours:
        return Failure(StaleEpoch.code, f"the receipt is another attempt's: {receipt.move}, epoch {receipt.epoch}")
    if receipt.source_root != receipt.target_root:
        return Failure(Corrupt.code, "the receipt's two roots differ", {"block": receipt.block})
    if sealed is not None and (sealed.root, sealed.block) != (receipt.source_root, receipt.block):
        return Failure(Corrupt.code, "the target has proven another state than the source sealed")
    return None
