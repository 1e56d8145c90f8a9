"""`worldline describe`: one session."""

from __future__ import annotations

from worldline.cli.output import Shared, show
from worldline.cli.values import session_text


def describe(session: str, *, shared: Shared | None = None) -> int:
    """Shows one session: world, owner and epoch, contract, twin, receipts.

    Parameters
    ----------
    session: str
        Its id.
    """
    shared = shared or Shared()
    with shared.client() as client:
        facts = client.session(session).describe()
    return show(facts, session_text(facts), shared.json)
