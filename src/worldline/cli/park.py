"""`worldline park`: to a verified image, freeing the host."""

from __future__ import annotations

from worldline.cli.output import Shared, patience, show
from worldline.cli.values import session_text


def park(session: str, *, fault: str | None = None, shared: Shared | None = None) -> int:
    """Writes a running session to a verified image and frees its host.

    After success no host owns the session and its image is on disk, synced. After a failure it plays on.

    Parameters
    ----------
    session: str
        Its id.
    fault: str
        Plants a fault, where the fleet allows it, as NAME[@step][,seed]. `worldline faults` lists them.
    """
    shared = shared or Shared()
    with shared.client() as client, patience(f"parking {session}"):
        facts = client.session(session).park(fault=fault)
    return show(facts, session_text(facts), shared.json)
