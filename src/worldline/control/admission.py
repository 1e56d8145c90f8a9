"""Whether an order may begin: everything that can be known before a byte moves is checked before a byte moves.

Each refusal is typed and names the facts it was made from. What passes here can still be refused by the target on the
state's own bytes; what fails here never disturbs the session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from worldline.capacity.gate import GUARD, Demand, Way, needed_raw_bytes_per_s, transfer_s
from worldline.errors import (
    BadValue,
    BandwidthShort,
    ByteOrderRefused,
    DeadlineMissed,
    HostGone,
    NoCapacity,
    PlanMismatch,
)
from worldline.schema.contract import Contract, Tier
from worldline.schema.ids import HostId
from worldline.schema.plan import Plan, Qualification
from worldline.schema.receipt import Mode
from worldline.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class HostSide:
    """One end of an order, as its host describes itself."""

    host: HostId
    alive: bool
    byte_order: str
    """`little` or `big`."""
    plan: Plan
    """Of the session's world."""
    memory_free_bytes: int
    transports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """The verified image that a resume reads, in its source's place."""

    byte_order: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be moved, and over what."""

    state_bytes: int
    arena_bytes: int
    """What the target has to reserve; 0 where the arena is handed over."""
    dirty_bytes_per_s: float | None = None
    """How fast the session rewrites its state, where it was measured."""
    bytes_per_s: float | None = None
    """The link's verified rate, where it was measured."""
    overhead_s: float = 0.02


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for."""

    mode: Mode
    transport: str
    contract: Contract
    load: Load
    qualification: Qualification | None = None
    """Of the ordered pair of plans, where one is on record."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Under what an order may begin."""

    qualification: Qualification | None
    """T1 with unequal plans: what the receipt will cite."""
    predicted_pause_s: float | None
    """None where no rate was measured yet."""


def admit(wish: Wish, source: HostSide | Image, target: HostSide) -> Admission:
    """Checks a move or a resume.

    Raises `HostGone`, `BadValue` (a transport that one side lacks), `ByteOrderRefused`, `PlanMismatch`, `NoCapacity`,
    `DeadlineMissed`, `BandwidthShort`, in this order.
    """
    for side in (source, target):
        if isinstance(side, HostSide) and not side.alive:
            raise HostGone(f"host {side.host} is gone", host=side.host)
    if isinstance(source, HostSide):
        _check_transport(wish.transport, source, target)
    _check_byte_order(source, target)
    qualification = check_plans(wish.contract, source.plan, target.plan, wish.qualification)
    if wish.load.arena_bytes > target.memory_free_bytes:
        raise NoCapacity(
            f"host {target.host} has {format_bytes(target.memory_free_bytes)} free, and the session needs "
            f"{format_bytes(wish.load.arena_bytes)}",
            host=target.host,
            free_bytes=target.memory_free_bytes,
            needed_bytes=wish.load.arena_bytes,
        )
    if wish.mode is Mode.RESUME:
        return Admission(qualification, None)
    return Admission(qualification, check_rates(wish.mode, wish.contract, wish.load))


def _check_transport(transport: str, source: HostSide, target: HostSide) -> None:
    for side in (source, target):
        if transport not in side.transports:
            raise BadValue(
                f"host {side.host} has no transport {transport!r}; it has {', '.join(sorted(side.transports))}",
                transport=transport,
                host=side.host,
            )


def _check_byte_order(source: HostSide | Image, target: HostSide) -> None:
    if source.byte_order != target.byte_order:
        raise ByteOrderRefused(
            f"the state is {source.byte_order}-endian and host {target.host} is {target.byte_order}-endian",
            source=source.byte_order,
            target=target.byte_order,
        )


def check_plans(
    contract: Contract, source: Plan, target: Plan, qualification: Qualification | None
) -> Qualification | None:
    """None where the plans are equal; under T1 the qualification that keeps the readout bound.

    Raises `PlanMismatch`, naming the facts that differ: told before the move, never after it as corruption.
    """
    if source.digest == target.digest:
        return None
    named = ", ".join(source.differences(target)) or "digest"
    facts = {
        "differences": named,
        "source_plan": source.digest,
        "target_plan": target.digest,
        "tier": contract.tier.value,
    }
    if contract.tier is Tier.T0:
        raise PlanMismatch(f"the target would compute other bits: the plans differ in {named}", **facts)
    if source.world != target.world:
        raise PlanMismatch(f"the plans are of two worlds, {source.world} and {target.world}", **facts)
    pair = (source.digest, target.digest)  # a plan's digest covers its world
    if qualification is None or (qualification.source_plan, qualification.target_plan) != pair:
        raise PlanMismatch(f"the plans differ in {named}, and this pair was never qualified for T1", **facts)
    bound = contract.readout_psnr_db_min
    assert bound is not None, "a T1 contract has a readout bound"
    # Written so that a NaN fails too.
    if not qualification.psnr_db_worst >= bound:
        raise PlanMismatch(
            f"the worst frame has {qualification.psnr_db_worst:.1f} dB, and the contract asks for {bound:.1f} dB",
            **facts,
            qualification=qualification.id,
            psnr_db_worst=qualification.psnr_db_worst,
        )
    return qualification


def check_rates(mode: Mode, contract: Contract, load: Load) -> float | None:
    """The predicted pause, None where no rate is known.

    The admissibility condition of the WorldMove paper (abstract), T_migrate(S) < H and B >= S/H + D, with the horizon
    H split into the contract's two times. A freeze pauses for the whole transfer: S/B + overhead <= pause bound. A
    pre-copy has to send S and what is rewritten meanwhile before the deadline: B >= S/(deadline - overhead) + D; its
    cuts decide on its pause. The formulas are those of `capacity.gate`.

    Raises `DeadlineMissed` and `BandwidthShort`.
    """
    rate = load.bytes_per_s
    if rate is None or mode is Mode.PARK:
        return None
    if not (math.isfinite(rate) and rate > 0):
        raise BadValue(f"a link's rate must be positive, not {rate!r}")
    needed_s = transfer_s(load.state_bytes, rate, load.overhead_s)
    bound_s = contract.pause_bound_s if mode is Mode.FREEZE else contract.completion_deadline_s
    if needed_s > bound_s:
        what = "the pause" if mode is Mode.FREEZE else "one round"
        raise DeadlineMissed(
            f"{what} would take {format_seconds(needed_s)} for {format_bytes(load.state_bytes)}, and the contract "
            f"allows {format_seconds(bound_s)}",
            predicted_s=needed_s,
            bound_s=bound_s,
            state_bytes=load.state_bytes,
        )
    if mode is Mode.FREEZE:
        return needed_s
    demand = Demand(
        load.state_bytes, load.dirty_bytes_per_s or 0.0, contract.pause_bound_s, contract.completion_deadline_s
    )
    needed = needed_raw_bytes_per_s(Way.PRECOPY, demand, load.overhead_s)
    if rate < needed * (1 - GUARD):
        raise BandwidthShort(
            f"the link carries {format_bytes(round(rate))}/s, and state and rewriting ask for "
            f"{format_bytes(round(needed))}/s",
            bytes_per_s=rate,
            needed_bytes_per_s=needed,
        )
    return load.overhead_s
