"""`worldline drain`, `evacuate`, `rebalance`, `consolidate`, and what goes with them: hosts, many sessions at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from worldline.cli.output import Shared, patience, progress, show, table
from worldline.cli.values import check_bounds, hosts_text
from worldline.control.placement import Deed, Kind
from worldline.runtime.fleet_messages import AT_ONCE_MAX, Operation, OperationStep
from worldline.service.bodies import SLOTS_MAX, WARM_SLOTS_MAX
from worldline.service.client import Client
from worldline.units import format_bytes, format_seconds, parse_seconds
from worldline.worlds.options import options_of

POLL_S = 0.2
REFUSED = 5
"""Exit code where something was refused or left, as of every refusal."""
NOTHING_TO_DO = {
    Kind.DRAIN: "nothing to move from there",
    Kind.EVACUATE: "nothing to move from there",
    Kind.REBALANCE: "nothing to move: no move would narrow a difference of more than a tenth of a host's memory",
    Kind.CONSOLIDATE: "nothing to move: no host can be emptied whole",
}
Flag = Annotated[bool, Parameter(negative="")]


def drain(
    host: str,
    *,
    dry_run: Flag = False,
    park: Flag = False,
    transport: Annotated[str, Parameter(name=["--transport", "-t"])] = "tcp",
    at_once: int = 1,
    wait: bool = True,
    shared: Shared | None = None,
) -> int:
    """Cordons a host and moves its sessions away, each under its contract. They play on.

    After success the host is empty and stays cordoned. What could not be moved is named with its reason and plays on.

    Parameters
    ----------
    host: str
        Which one.
    dry_run: bool
        Shows who would go where; nothing is changed.
    park: bool
        Parks a session for which there is no host, and moves one whose direct move is refused by way of an image.
    transport: str
        `tcp`, or `shm` between hosts of one machine.
    at_once: int
        Moves under way at a time.
    wait: bool
        Shows the progress until the end; with --no-wait the id is printed, and the drain goes on.
    """
    check_bounds("--at-once", at_once, 1, AT_ONCE_MAX)
    wishes = {"dry_run": dry_run, "park": park, "transport": transport, "at_once": at_once}
    return _operate(shared, wait, Kind.DRAIN, host, wishes)


def evacuate(
    host: str,
    *,
    dry_run: Flag = False,
    transport: Annotated[str, Parameter(name=["--transport", "-t"])] = "tcp",
    at_once: int = 2,
    wait: bool = True,
    shared: Shared | None = None,
) -> int:
    """Empties a host that has to go soon: budgets don't count, and what can't be moved is parked.

    The host stays cordoned, as after a drain.

    Parameters
    ----------
    host: str
        Which one.
    dry_run: bool
        Shows who would go where; nothing is changed.
    transport: str
        `tcp`, or `shm` between hosts of one machine.
    at_once: int
        Moves under way at a time.
    wait: bool
        Shows the progress until the end.
    """
    check_bounds("--at-once", at_once, 1, AT_ONCE_MAX)
    wishes = {"dry_run": dry_run, "transport": transport, "at_once": at_once}
    return _operate(shared, wait, Kind.EVACUATE, host, wishes)


def rebalance(
    *,
    dry_run: Flag = False,
    transport: Annotated[str, Parameter(name=["--transport", "-t"])] = "tcp",
    every: str | None = None,
    wait: bool = True,
    shared: Shared | None = None,
) -> int:
    """Moves sessions from the fullest hosts to the emptiest until they differ by at most a tenth of their memory.

    Parameters
    ----------
    dry_run: bool
        Shows who would go where; nothing is changed.
    transport: str
        `tcp`, or `shm` between hosts of one machine.
    every: str
        Again and again at this interval, as `30s`, until it is cancelled.
    wait: bool
        Shows the progress until the end.
    """
    wishes = {"dry_run": dry_run, "transport": transport, "every_s": None if every is None else parse_seconds(every)}
    return _operate(shared, wait, Kind.REBALANCE, None, wishes)


def consolidate(
    *,
    idle: str = "60s",
    hosts_min: int = 1,
    warm_slots: int | None = None,
    dry_run: Flag = False,
    transport: Annotated[str, Parameter(name=["--transport", "-t"])] = "tcp",
    every: str | None = None,
    wait: bool = True,
    shared: Shared | None = None,
) -> int:
    """Parks who is idle, packs the others onto fewer hosts, and gives the emptied hosts back.

    A parked player who acts again is brought back. A host that was given back is used again when the others are full.

    Parameters
    ----------
    idle: str
        Since when a player has not acted, as `60s`, to count as idle.
    hosts_min: int
        Hosts that stay in use.
    warm_slots: int
        Sessions for whose return room is kept; by default as many as the model of returning players says.
    dry_run: bool
        Shows what would be done; nothing is changed.
    transport: str
        `tcp`, or `shm` between hosts of one machine.
    every: str
        Again and again at this interval, as `30s`, until it is cancelled.
    wait: bool
        Shows the progress until the end.
    """
    check_bounds("--hosts-min", hosts_min, 1)
    if warm_slots is not None:
        check_bounds("--warm-slots", warm_slots, 0, WARM_SLOTS_MAX)
    wishes = {
        "idle_s": parse_seconds(idle),
        "hosts_min": hosts_min,
        "warm_slots": warm_slots,
        "dry_run": dry_run,
        "transport": transport,
        "every_s": None if every is None else parse_seconds(every),
    }
    return _operate(shared, wait, Kind.CONSOLIDATE, None, wishes)


def operations(operation: str | None = None, *, shared: Shared | None = None) -> int:
    """Lists the operations, oldest first, or shows one.

    Parameters
    ----------
    operation: str
        Its id.
    """
    shared = shared or Shared()
    with shared.client() as client:
        if operation is not None:
            found = client.operation(operation)
            return show(found, operation_text(found), shared.json)
        known = client.operations()
    return show({"operations": known}, _list_text(known), shared.json)


def cancel(operation: str, *, shared: Shared | None = None) -> int:
    """Ends an operation: the session under way ends as it would have, and no further one is begun.

    Of one that is over already it says so, and changes nothing.

    Parameters
    ----------
    operation: str
        Its id.
    """
    shared = shared or Shared()
    with shared.client() as client:
        asked = client.cancel(operation)
        if asked.outcome is not None:
            progress(f"{operation} was over already: nothing was left to cancel")
        ended = _watch(client, operation, shared.json)
    return show(ended, operation_text(ended), shared.json)


def cordon(host: str, *, shared: Shared | None = None) -> int:
    """Lets a host take no new, moved or resumed session; those on it play on.

    Parameters
    ----------
    host: str
        Which one.
    """
    shared = shared or Shared()
    with shared.client() as client:
        found = client.cordon(host)
    return show(found, hosts_text([found]), shared.json)


def uncordon(host: str, *, shared: Shared | None = None) -> int:
    """Lets a host take sessions again.

    Parameters
    ----------
    host: str
        Which one.
    """
    shared = shared or Shared()
    with shared.client() as client:
        found = client.uncordon(host)
    return show(found, hosts_text([found]), shared.json)


def prewarm(
    host: str,
    world: str,
    *,
    slots: int = 1,
    option: Annotated[tuple[str, ...], Parameter(name=["--option", "-o"], negative="")] = (),
    shared: Shared | None = None,
) -> int:
    """Keeps a world's engine built, its canary run, and arenas with their pages in place on a host.

    The next sessions that come to that host find them. Slots hold memory; 0 gives them back.

    Parameters
    ----------
    host: str
        Which one.
    world: str
        A name that `worldline worlds` lists.
    slots: int
        Arenas to keep, at most 64.
    option: str
        One of the world's, as name=value; may be given several times.
    """
    check_bounds("--slots", slots, 0, SLOTS_MAX)
    shared = shared or Shared()
    with shared.client() as client, patience(f"warming {world} on host {host}"):
        done = client.prewarm(host, world, slots=slots, options=options_of(option))
    text = (
        f"{done.slots} slots of {format_bytes(done.arena_bytes)} on host {host}; "
        f"engine {format_seconds(done.engine_s)}, pages {format_seconds(done.arenas_s)}"
    )
    return show(done, text, shared.json)


# ---- one operation, from its start to its end


def _operate(shared: Shared | None, wait: bool, kind: Kind, host: str | None, wishes: dict[str, Any]) -> int:
    shared = shared or Shared()
    with shared.client() as client:
        with patience(f"planning the {kind} (a host that never had a world builds its engine first)"):
            begun = client.operate(kind, host, **wishes)
        done = _watch(client, begun.id, shared.json) if wait and begun.outcome is None else begun
    show(_answer(done), operation_text(done), shared.json)
    return exit_code(done)


def exit_code(operation: Operation) -> int:
    """Of what was done; of a dry run, the one with which its plan, done as it is, would end."""
    would_leave = operation.outcome == "planned" and operation.request.host is not None and operation.left != []
    return REFUSED if operation.outcome == "partial" or would_leave else 0


def _answer(operation: Operation) -> object:
    """As JSON. A dry run is kept by nobody, so it has no id to ask for."""
    if operation.outcome != "planned":
        return operation
    return {name: value for name, value in msgspec.to_builtins(operation).items() if name != "id"}


def _watch(client: Client, operation: str, as_json: bool) -> Operation:
    """The operation once it has ended. Interrupting it leaves the operation running."""
    try:
        with _bar(as_json) as tell:
            while (found := client.operation(operation)).outcome is None:
                tell(found)
                Event().wait(POLL_S)
            tell(found)
    except KeyboardInterrupt:
        progress(
            f"{operation} goes on: see `worldline operations {operation}`, end it by `worldline cancel {operation}`"
        )
        raise
    return found


@contextmanager
def _bar(as_json: bool) -> Iterator[Any]:
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(found: Operation) -> None:
            ended = sum(step.state in {"done", "refused", "skipped"} for step in found.steps)
            at = next((step.session for step in found.steps if step.state == "running"), "")
            eta = "" if found.eta_s is None else f", {format_seconds(found.eta_s)} left"
            words = f"{found.request.kind} {at}{eta}"
            bar.update(task, description=words, completed=ended, total=len(found.steps) or None)

        yield tell


# ---- as text


def operation_text(operation: Operation) -> str:
    """An operation for people: what was or would be done, what was left and why."""
    request = operation.request
    where = f" of host {request.host}" if request.host is not None else ""
    if operation.outcome == "planned":
        lines = [f"{request.kind}{where}, a dry run: nothing was changed"]
    else:
        lines = [f"operation {operation.id}: {request.kind}{where}, {operation.outcome or 'running'}"]
    if operation.steps:
        lines.append(table(("session", "deed", "from", "to", "memory", "state", ""), map(_step_row, operation.steps)))
    elif operation.outcome is None and operation.passes == 0:
        lines.append("its plan is being made")
    elif not operation.left:
        lines.append(NOTHING_TO_DO[request.kind])
    lines += [f"left: {left.session or 'host ' + left.host}: {left.why}" for left in operation.left]
    lines += _emptied_lines(operation)
    if operation.eta_s is not None:
        lines.append(f"{format_seconds(operation.eta_s)} left at the rate so far")
    return "\n".join(lines)


def _emptied_lines(operation: Operation) -> list[str]:
    """A dry run empties no host that is empty; a consolidation gives such a host back all the same."""
    if operation.outcome != "planned":
        return [f"emptied: {', '.join(operation.emptied)}"] if operation.emptied else []
    left_by = {step.source for step in operation.steps}
    emptied = [host for host in operation.emptied if host in left_by]
    as_they_are = [host for host in operation.emptied if host not in left_by]
    lines = [f"would empty: {', '.join(emptied)}"] if emptied else []
    if as_they_are and operation.request.kind is Kind.CONSOLIDATE:
        lines.append(f"empty already, would be given back: {', '.join(as_they_are)}")
    return lines


def _step_row(step: OperationStep) -> tuple[str, ...]:
    note = step.sentence or ("" if step.pause_s is None else f"paused {format_seconds(step.pause_s)}")
    target = step.target if step.deed is Deed.MOVE and step.target is not None else "image"
    return (step.session, step.deed, step.source, target, format_bytes(step.arena_bytes), step.state, note)


def _list_text(known: list[Operation]) -> str:
    if not known:
        return "no operations yet; see `worldline drain --help`"
    rows = [
        (
            one.id,
            one.request.kind,
            one.request.host or "-",
            one.outcome or "running",
            f"{sum(step.state == 'done' for step in one.steps)} of {len(one.steps)}",
        )
        for one in known
    ]
    return table(("operation", "kind", "host", "state", "sessions"), rows)
