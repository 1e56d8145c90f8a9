"""`worldline resume`: from its image, on any host of an equal plan."""

from __future__ import annotations

from worldline.cli.output import Shared, patience, show
from worldline.cli.values import session_text


def resume(session: str, host: str | None = None, *, fault: str | None = None, shared: Shared | None = None) -> int:
    """Brings a parked session back from its image.

    After success a host owns it at the next epoch, byte for byte as it was. After a failure it stays parked.

    Parameters
    ----------
    session: str
        Its id.
    host: str
        Where; else the host with the most free memory among those with the session's plan.
    fault: str
        Plants a fault, where the fleet allows it, as NAME[@step][,seed]. `worldline faults` lists them.
    """
    shared = shared or Shared()
    with shared.client() as client, patience(f"resuming {session}"):
        facts = client.session(session).resume(host, fault=fault)
    return show(facts, session_text(facts), shared.json)
