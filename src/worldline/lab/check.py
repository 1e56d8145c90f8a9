"""A fleet's self-check: what `worldline up --check` runs to say that a machine is fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from worldline.errors import Corrupt, Internal, Refused
from worldline.schema.receipt import Mode
from worldline.service.client import Client, SessionHandle

WORLD = "reference"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was tried, in order; all of it held."""

    url: str
    steps: list[str]


def check_fleet(client: Client, hosts: Sequence[str], say: Callable[[str], None]) -> CheckReport:
    """Plays a world and its twin, moves it both ways over every transport, plants a fault, parks and resumes.

    Raises the typed error of the first thing that does not hold.
    """
    steps: list[str] = []

    def done(step: str) -> None:
        steps.append(step)
        say(step)

    page = httpx.get(client.url, timeout=30.0)
    if page.status_code != httpx.codes.OK or "text/html" not in page.headers["content-type"]:
        raise Internal(f"the page answers {page.status_code}")
    done("the page is served")
    session, twin = (client.open(WORLD, seed=7, host=host) for host in (hosts[0], hosts[-1]))
    _play_both(session, twin)
    done(f"{WORLD} plays on {hosts[0]}, its twin on {hosts[-1]}")
    for transport, mode in (("tcp", Mode.PRECOPY), ("shm", Mode.FREEZE)):
        target = hosts[1] if session.describe().host == hosts[0] else hosts[0]
        move = session.move(target, mode=mode, transport=transport)
        if move.receipt is None:
            raise Internal("a move ended without a receipt")
        _play_both(session, twin)
        done(f"moved to {target} by {mode} over {transport}, paused {move.receipt.pause_s * 1e3:.1f} ms, still equal")
    _refuse(session, hosts[1] if session.describe().host == hosts[0] else hosts[0])
    _play_both(session, twin)
    done("a flipped byte was refused, and the world plays on at the source")
    session.park()
    session.resume(hosts[1])
    _play_both(session, twin)
    done(f"parked to an image and resumed on {hosts[1]}, still equal")
    session.close()
    twin.close()
    done("closed")
    return CheckReport(client.url, steps)


def _play_both(session: SessionHandle, twin: SessionHandle) -> None:
    for action in (1, 3, 2, 4):
        (ours,) = session.step(action)
        (theirs,) = twin.step(action)
        if ours.digest != theirs.digest:
            raise Corrupt(f"block {ours.block} differs from the twin's", block=ours.block)


def _refuse(session: SessionHandle, target: str) -> None:
    try:
        session.move(target, mode=Mode.FREEZE, transport="tcp", fault="flip")
    except Refused:
        return
    raise Internal("a move with a flipped byte was not refused")
