"""`worldline close`: the end of a session."""

from __future__ import annotations

from worldline.cli.output import Shared, show
from worldline.cli.values import session_text


def close(session: str, *, shared: Shared | None = None) -> int:
    """Ends a session, running or parked, and its twin with it.

    After success its memory is free; its receipts stay. After a failure it is as it was.

    Parameters
    ----------
    session: str
        Its id.
    """
    shared = shared or Shared()
    with shared.client() as client:
        facts = client.session(session).close()
    return show(facts, session_text(facts), shared.json)
