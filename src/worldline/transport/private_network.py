"""Whether this process's network is one that an emulated fabric laid, and leads nowhere else.

Links without TLS stay on loopback. The one exception is asked for by name, and granted only where the kernel shows that
it is as good as loopback: every link is one end of a virtual cable that whoever administers this namespace marked as a
fabric's, and no route leaves them. Anything unexpected, or unreadable, is a refusal.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any, Final

from worldline.errors import MissingExtra, Unauthenticated

ALIAS: Final = "worldline-fabric"
"""On every link of a fabric's host. Setting it takes the right to administer the namespace."""
ASK_S: Final = 10.0


def check_private(address: str) -> None:
    """Returns if `address` is this process's own on a fabric. Raises `Unauthenticated`, `MissingExtra`."""
    links = [link for link in _ask("-d", "link", "show") if link.get("ifname") != "lo"]
    for link in links:
        if link.get("linkinfo", {}).get("info_kind") != "veth" or link.get("ifalias") != ALIAS:
            raise _refusal(address, f"link {link.get('ifname')!r} is not a fabric's")
    if not links:
        raise _refusal(address, "it has no link at all")
    for route in _ask("-4", "route", "show", "table", "all"):
        if "gateway" in route or "via" in route or route.get("dst") == "default":
            raise _refusal(address, "a route leads out of it")
    names = {link.get("ifname") for link in links}
    own = {
        entry.get("local")
        for link in _ask("-4", "address", "show")
        if link.get("ifname") in names
        for entry in link.get("addr_info", [])
    }
    if address not in own:
        raise _refusal(address, "that is not this host's address in it")


def _refusal(address: str, why: str) -> Unauthenticated:
    return Unauthenticated(
        f"{address} without certificates is for an emulated fabric alone, and this network is none: {why}",
        address=address,
    )


def _ask(*words: str) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            ["ip", "-j", *words],
            capture_output=True,
            timeout=ASK_S,
            check=True,
        )
        found = json.loads(done.stdout)
    except FileNotFoundError as error:
        raise MissingExtra("looking at this network needs the program ip: install iproute2") from error
    except (subprocess.SubprocessError, ValueError) as error:
        raise Unauthenticated(f"this network can't be looked at: {error}") from error
    return [entry for entry in found if entry]
