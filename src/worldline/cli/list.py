"""`worldline list`: the sessions."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import Shared, show
from worldline.cli.values import sessions_text


def list_sessions(*, closed: Annotated[bool, Parameter(negative="")] = False, shared: Shared | None = None) -> int:
    """Lists the sessions.

    Parameters
    ----------
    closed: bool
        Closed ones too.
    """
    shared = shared or Shared()
    with shared.client() as client:
        sessions = [session for session in client.sessions() if closed or session.status != "closed"]
    return show({"sessions": sessions}, sessions_text(sessions), shared.json)
