"""`worldline hosts`: the fleet."""

from __future__ import annotations

from worldline.cli.output import Shared, show
from worldline.cli.values import hosts_text


def hosts(*, shared: Shared | None = None) -> int:
    """Lists the hosts: memory, sessions, and the plan that decides who can exchange sessions with whom."""
    shared = shared or Shared()
    with shared.client() as client:
        found = client.hosts()
    return show({"hosts": found}, hosts_text(found), shared.json)
