"""The error of a move that was refused, out of its journal line."""

from __future__ import annotations

from worldline.errors import TimedOut
from worldline.runtime.messages import Move


def raise_refusal(move: Move) -> None:
    """Raises the typed error of a move that was refused or has not ended, with the move's id among its facts."""
    if move.error is not None:
        raise move.error.to_error(move=move.id)
    if move.outcome is None:
        raise TimedOut(f"move {move.id} has not ended yet", move=move.id)
