"""The name of one attempt to move a session, equal on both sides."""

from __future__ import annotations

from dataclasses import dataclass

from worldline.schema.ids import Epoch, MoveId, SessionId
from worldline.schema.receipt import Mode


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the hello says. A message of another attempt is no part of this one."""

    move: MoveId
    session: SessionId
    epoch: Epoch
    """The epoch in force, the source's. The target's, if it comes to own the session, is the next."""
    mode: Mode
