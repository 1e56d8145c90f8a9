"""What a live fleet knows of a session that may be moved: facts of its hosts, and rates from receipts of its moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from worldline.cli.output import Shared
from worldline.control.lifecycle import Status, Verb, begin
from worldline.errors import AlreadyThere, HostCordoned, HostGone, UnknownHost
from worldline.lab.anchors import Anchor
from worldline.runtime.messages import Host, Session
from worldline.schema.contract import Contract
from worldline.schema.ids import SessionId
from worldline.schema.receipt import Mode, Receipt
from worldline.units import format_bytes

RECEIPTS_READ = 12
"""The last ones: the slowest of them counts."""


@dataclass(frozen=True, slots=True)
class Live:
    """None: nobody measured it."""

    contract: Contract | None = None
    state_bytes: int | None = None
    bytes_per_s: float | None = None
    dirty_bytes_per_s: float | None = None
    overhead_s: float | None = None
    memory_free_bytes: int | None = None
    told: dict[str, str] = field(default_factory=dict)
    """Where each came from: `contract`, `state`, `bandwidth`, `dirty`, `overhead`."""
    anchors: tuple[Anchor, ...] = ()

    @classmethod
    def none(cls) -> Live:
        return cls()


def live(shared: Shared, session: str, target: str | None) -> Live:
    """Asks the fleet. Raises `UnknownSession`, `UnknownHost`, `AlreadyThere`, `HostGone`, `HostCordoned`, and what a
    move of a session that is parked, lost or closed raises.
    """
    with shared.client() as client:
        row = client.describe(session)
        hosts = {host.id: host for host in client.hosts()}
        receipts = [client.receipt(receipt) for receipt in row.receipts[-RECEIPTS_READ:]]
    if row.status in {Status.PARKED.value, Status.LOST.value, Status.CLOSED.value}:
        begin(SessionId(row.id), Status(row.status), Verb.MOVE, row.why)
    if row.host is not None and not (row.host in hosts and hosts[row.host].alive):
        raise HostGone(f"host {row.host}, which has the session, can't be reached", host=row.host)
    told: dict[str, str] = {"contract": f"of session {session}"}
    state_bytes = _state_bytes(hosts.get(row.host or ""), session)
    if state_bytes is None and receipts:
        state_bytes = receipts[-1].state_bytes
        told["state"] = f"{format_bytes(state_bytes)}, as its last move had it"
    elif state_bytes is not None:
        told["state"] = f"{format_bytes(state_bytes)}, as host {row.host} has it"
    anchors = tuple(_anchor(receipt) for receipt in receipts if _used_a_link(receipt))
    if anchors:
        told["bandwidth"] = f"the least of this session's last moves over a link ({len(anchors)})"
    dirty = max((anchor.dirty_bytes_per_s for anchor in anchors), default=0.0) or None
    if dirty is not None:
        told["dirty"] = "the most of the same moves: what was sent beyond the state"
    pauses = [receipt.pause_s for receipt in receipts if _used_a_link(receipt) and receipt.mode is Mode.PRECOPY]
    if pauses:
        told["overhead"] = "the longest pause of the same pre-copies, with what they had left to send in it"
    return Live(
        contract=row.contract,
        state_bytes=state_bytes,
        bytes_per_s=min((anchor.bytes_per_s for anchor in anchors), default=None),
        dirty_bytes_per_s=dirty,
        overhead_s=max(pauses, default=None),
        memory_free_bytes=None if target is None else _free_bytes(hosts, target, row),
        told=told,
        anchors=anchors,
    )


def _state_bytes(host: Host | None, session: str) -> int | None:
    if host is None or host.facts is None:
        return None
    return next((held.state_bytes for held in host.facts.sessions if held.session == session), None)


def _free_bytes(hosts: Mapping[str, Host], target: str, row: Session) -> int:
    """What there is for the session: free memory, and the slots that were prewarmed for its like."""
    if target not in hosts:
        raise UnknownHost(f"no host {target} in this fleet; it has {', '.join(sorted(hosts))}", host=target)
    if target == row.host:
        raise AlreadyThere(f"the session is on host {target}", host=target)
    facts = hosts[target].facts
    if facts is None or not hosts[target].alive:
        raise HostGone(f"host {target} can't be reached", host=target)
    if hosts[target].cordon is not None:
        raise HostCordoned(f"host {target} is cordoned and takes no sessions; uncordon it first", host=target)
    return facts.room_bytes(row.arena_bytes)


def _used_a_link(receipt: Receipt) -> bool:
    """Parks and resumes did not, nor did memory that was handed over: they measured no bandwidth."""
    return receipt.mode in {Mode.PRECOPY, Mode.FREEZE} and receipt.bytes_moved > 0 and receipt.duration_s > 0


def _anchor(receipt: Receipt) -> Anchor:
    beyond = max(receipt.bytes_moved - receipt.state_bytes, 0)
    return Anchor(
        f"{receipt.source} to {receipt.target}", receipt.bytes_moved / receipt.duration_s, beyond / receipt.duration_s
    )
