"""`worldline move`: to another host, bit for bit."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import Shared, patience, show
from worldline.cli.values import mode_of, move_text


def move(
    session: str,
    host: str,
    *,
    mode: Annotated[str, Parameter(name=["--mode", "-m"])] = "precopy",
    transport: Annotated[str, Parameter(name=["--transport", "-t"])] = "tcp",
    codec: str = "auto",
    fault: str | None = None,
    shared: Shared | None = None,
) -> int:
    """Moves a live session to another host.

    After success the host owns the session at the next epoch, with a receipt that both sides' bytes are the same.
    After a failure the session goes on where it was, and nothing was installed.

    Parameters
    ----------
    session: str
        Its id.
    host: str
        Where to.
    mode: str
        `precopy` copies while the session plays and freezes for the rest; `freeze` stops and copies.
    transport: str
        `tcp`, or `shm` between hosts of one machine (nothing is copied).
    codec: str
        What is encoded over tcp: `auto`, where measured rates say that it is faster; `none`; or always `zeros`,
        `window` or `exponents` (extra zstd).
    fault: str
        Plants a fault, where the fleet allows it, as NAME[@step][,seed]: flip, kill-target@swap, drop,7.
        `worldline faults` lists them.
    """
    shared = shared or Shared()
    doing = f"moving {session} to {host} (a host that never had this world builds its engine first)"
    with shared.client() as client, patience(doing):
        done = client.session(session).move(host, mode=mode_of(mode), transport=transport, fault=fault, codec=codec)
    return show(done, move_text(done), shared.json)
