"""What people write on the command line, as values of the library, and values as text for people."""

from __future__ import annotations

from worldline.cli.output import table
from worldline.errors import BadValue
from worldline.runtime.messages import Host, Move, Session
from worldline.schema.contract import Contract, Tier
from worldline.schema.receipt import Mode, Receipt
from worldline.units import format_bytes, format_seconds, parse_seconds
from worldline.verify.reader import ImageReport, ReceiptReport


def contract_of(
    horizon: str | None, pause_bound: str | None, completion: str | None, readout_psnr_db_min: float | None
) -> Contract:
    """The contract that the options ask for. Raises `BadValue` where they contradict one another."""
    if horizon is not None and (pause_bound is not None or completion is not None):
        raise BadValue("--horizon sets both bounds; give it alone, or --pause-bound and --completion")
    default = Contract()
    pause_text, completion_text = horizon or pause_bound, horizon or completion
    pause_bound_s = parse_seconds(pause_text) if pause_text else default.pause_bound_s
    completion_s = parse_seconds(completion_text) if completion_text else default.completion_deadline_s
    tier = Tier.T0 if readout_psnr_db_min is None else Tier.T1
    return Contract(tier, pause_bound_s, completion_s, readout_psnr_db_min)


def mode_of(text: str) -> Mode:
    """How a session moves. Raises `BadValue`."""
    if text not in (Mode.PRECOPY, Mode.FREEZE):
        raise BadValue(f"a session moves by precopy or freeze, not {text!r}")
    return Mode(text)


def check_bounds(option: str, value: int, at_least: int, at_most: int | None = None) -> None:
    """Raises `BadValue`, which names the option as it is typed."""
    if value < at_least or (at_most is not None and value > at_most):
        bounds = f"{at_least} to {at_most}" if at_most is not None else f"{at_least} or more"
        raise BadValue(f"{option} is {bounds}, not {value}")


def action_of(text: str) -> str | int:
    """An action's name, or its number."""
    try:
        return int(text)
    except ValueError:
        return text


def contract_text(contract: Contract) -> str:
    """`T0, pause <= 1 s, commit within 30 s`."""
    text = f"{contract.tier}, pause <= {format_seconds(contract.pause_bound_s)}"
    text += f", commit within {format_seconds(contract.completion_deadline_s)}"
    if contract.readout_psnr_db_min is not None:
        text += f", readout >= {contract.readout_psnr_db_min:g} dB"
    return text


def session_text(session: Session) -> str:
    """One session, a line a fact."""
    rows = [
        ("session", session.id),
        ("world", f"{session.world}, seed {session.seed}"),
        ("status", _status(session) + (f": {session.why}" if session.why else "")),
        ("host", session.host or "none"),
        ("epoch", str(session.epoch)),
        ("contract", contract_text(session.contract)),
        ("actions", ", ".join(session.actions) or "token ids"),
    ]
    image = session.image and f"images/{session.image}, in the fleet's folder"
    optional = (("twin", session.twin), ("twin of", session.twin_of), ("image", image), ("move", session.move))
    rows += [(name, value) for name, value in optional if value]
    rows += [("receipt", receipt) for receipt in session.receipts[-3:]]
    return "\n".join(f"{name:<9} {value}" for name, value in rows)


def _status(session: Session) -> str:
    """With it, whether its player only has to act for it to come back."""
    return "parked, asleep" if session.asleep and session.status == "parked" else session.status


def sessions_text(sessions: list[Session]) -> str:
    """A line a session."""
    if not sessions:
        return "no sessions; open one with `worldline open reference`"
    rows = [(s.id, s.world, _status(s), s.host or "-", str(s.epoch), contract_text(s.contract)) for s in sessions]
    return table(("session", "world", "status", "host", "epoch", "contract"), rows)


def hosts_text(hosts: list[Host]) -> str:
    """A line a host; hosts with equal plan digests can exchange sessions under T0."""
    rows = []
    for host in hosts:
        facts = host.facts
        memory = f"{format_bytes(facts.memory_used_bytes)} of {format_bytes(facts.memory_bytes)}" if facts else "-"
        sessions = str(len(facts.sessions)) if facts else "-"
        plan = (host.plan_digest or "-")[:12]
        state = "alive" if host.alive else "gone" if host.gone else "not reached"
        if host.cordon is not None:
            state += ", given back" if host.cordon.released else ", cordoned"
        rows.append((host.id, state, sessions, memory, plan))
    return table(("host", "state", "sessions", "memory used", "plan"), rows)


def move_text(move: Move) -> str:
    """The move's story and its receipt."""
    lines = [f"move {move.id}: {move.outcome or move.phase}", *(f"  {line}" for line in move.story)]
    if move.receipt is not None:
        lines.append(receipt_text(move.receipt))
    return "\n".join(lines)


def receipt_text(receipt: Receipt) -> str:
    """A receipt for people: what moved, how long it paused, and both roots."""
    rounds = "1 round" if receipt.rounds == 1 else f"{receipt.rounds} rounds"
    equal = "equal" if receipt.source_root == receipt.target_root else "DIFFERENT"
    return "\n".join(
        (
            f"receipt   {receipt.id}",
            f"session   {receipt.session}, epoch {receipt.epoch}, block {receipt.block}",
            f"from      {receipt.source} to {receipt.target}, {receipt.mode} over {receipt.transport}",
            f"moved     {format_bytes(receipt.bytes_moved)} in {rounds}",
            f"state     {format_bytes(receipt.state_bytes)}",
            f"pause     {format_seconds(receipt.pause_s)} of {format_seconds(receipt.duration_s)}",
            f"source    {receipt.source_root}",
            f"target    {receipt.target_root} ({equal})",
            f"signed    by {receipt.made_by}, key {receipt.signer}" if receipt.signer else "signed    no",
        )
    )


def image_report_text(report: ImageReport) -> str:
    """A verified image for people."""
    return "\n".join(
        (
            "the image is whole: every byte was read and found right",
            f"session   {report.session}, epoch {report.epoch}, block {report.block}, action {report.number}",
            f"world     {report.world}, plan {report.plan}",
            f"state     {format_bytes(report.state_bytes)}: {report.tensors} tensors, {report.leaf_count} leaves",
            f"root      {report.root}",
        )
    )


def receipt_report_text(report: ReceiptReport) -> str:
    """A verified receipt for people: what was found true."""
    lines = [f"receipt {report.id} holds", *(f"  {check}" for check in report.checks)]
    if report.image is not None:
        lines.append(image_report_text(report.image))
    return "\n".join(lines)
