"""The error of a move that was refused, out of its journal line."""

from __future__ import annotations

import msgspec

from worldline.errors import Fact, TimedOut, from_record
from worldline.runtime.messages import Move


class Reason(msgspec.Struct, frozen=True):
    """What `Move.error` holds."""

    code: str
    sentence: str
    facts: dict[str, Fact]


def raise_refusal(move: Move) -> None:
    """Raises the typed error of a move that was refused or has not ended, with the move's id among its facts."""
    if move.error is not None:
        reason = msgspec.convert(move.error, Reason)
        raise from_record(reason.code, reason.sentence, {**reason.facts, "move": move.id})
    if move.outcome is None:
        raise TimedOut(f"move {move.id} has not ended yet", move=move.id)
