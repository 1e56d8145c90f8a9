"""The bearer token that the gateway's clients show, and the tickets with which a browser opens a WebSocket.

A browser can't put a header on a WebSocket, and a token in a URL ends up in logs and histories. So a page asks with its
token for a ticket: good for one connection, and for half a minute.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections import OrderedDict
from pathlib import Path

from worldline.clock import Clock
from worldline.errors import BadValue

TICKET_S = 30.0
TICKETS_MAX = 1024
"""Of those that were not used yet; a newer one pushes the oldest out."""
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}\Z")


class Token:
    """Compared in constant time, whatever is shown."""

    def __init__(self, text: str) -> None:
        self._digest = hashlib.sha256(text.encode()).digest()

    @classmethod
    def read(cls, path: Path) -> Token:
        """Raises `BadValue` for a file that can't be read, that others may read, or whose one line is no token."""
        try:
            with path.open(encoding="ascii", errors="replace") as file:
                found = os.fstat(file.fileno())
                text = file.read(1024).removesuffix("\n")
        except OSError as error:
            raise BadValue(f"the token file {path.name} can't be read: {error.strerror}") from error
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
            raise BadValue(f"the token file {path.name} can be read by others: its mode must be 0600")
        if _TOKEN.match(text) is None:
            raise BadValue(f"{path.name} is not one line of 16 to 512 visible characters, as a token is")
        return cls(text)

    def is_shown_by(self, authorization: str) -> bool:
        """Whether the header's value is `Bearer` and this token."""
        scheme, _, shown = authorization.partition(" ")
        digest = hashlib.sha256(shown.strip().encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(digest, self._digest) and scheme.lower() == "bearer"


class Tickets:
    """Those that were given out and not used yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: OrderedDict[str, float] = OrderedDict()

    def give(self) -> str:
        ticket = secrets.token_urlsafe(24)
        self._until_s[ticket] = self._clock.monotonic_s() + TICKET_S
        while len(self._until_s) > TICKETS_MAX:
            self._until_s.popitem(last=False)
        return ticket

    def take(self, ticket: str) -> bool:
        """Whether it was good; it is not any more."""
        until_s = self._until_s.pop(ticket, None)
        return until_s is not None and self._clock.monotonic_s() <= until_s
