"""`worldline fleet`: what a fleet needs before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import show
from worldline.clock import SystemClock
from worldline.transport.certificates import make_certificates


def certs(
    *,
    dir: Path,
    hosts: str = "a,b,c",
    days: float = 365,
    gateway: Annotated[tuple[str, ...], Parameter(name="--gateway", negative="")] = (),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Makes an authority and certificates for mutual TLS between the hosts of a fleet.

    After success the folder has ca.pem and for each host NAME.pem and NAME.key; start hosts with --tls and this folder,
    or with a copy that has ca.pem and only the host's own pair. ca.key signs more hosts later: keep it elsewhere.

    Parameters
    ----------
    dir: Path
        Where they are written; an authority that is there already is used again.
    hosts: str
        Names, with commas between them.
    days: float
        For how long they hold.
    gateway: str
        A name or address of the gateway: also makes gateway.pem and gateway.key, for `worldline up --tls-cert`; may
        be repeated. Clients then take --ca and ca.pem.
    json: bool
        Print one JSON object.
    """
    written = make_certificates(dir, hosts.split(","), SystemClock().wall_s(), days, gateway)
    names = [path.stem for path in written]
    return show({"dir": str(dir), "certificates": names}, f"{dir}: {', '.join(names)}", json)
