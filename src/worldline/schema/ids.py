"""Names of things, and the numbers that order their owners."""

from __future__ import annotations

import re
from typing import NewType

from worldline.errors import BadValue

SessionId = NewType("SessionId", str)
HostId = NewType("HostId", str)
MoveId = NewType("MoveId", str)
ReceiptId = NewType("ReceiptId", str)
Epoch = NewType("Epoch", int)
"""Counts a session's owners, from 1. It grows by one with each commit of the owner, and never otherwise."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")


def check_name(text: str, what: str) -> str:
    """Returns `text` if it can be a name: 1 to 63 of a-z, 0-9 and `-`. Names reach file systems, so nothing else may
    pass.
    """
    if _NAME.match(text) is None:
        raise BadValue(f"{what} {text[:80]!r} must be 1 to 63 of a-z, 0-9 and '-', not starting with '-'")
    return text
