"""What the incast experiment found, its bars, and its report."""

from __future__ import annotations

from dataclasses import dataclass

from worldline.lab.experiments.bars import Bar, all_met, bars_text
from worldline.lab.report import Line, Plot, Report, Section, Series, Standing, Table, Words

SCHEDULED_MAX, UNSCHEDULED_MIN, TCP_RATIO_MIN = 1.05, 2.7, 2.0
FREEZE_MIN = 1.2
"""Inline over the control, in time: below it nothing froze."""


@dataclass(frozen=True, slots=True)
class Arm:
    """Transfers over go-back-N, all rounds and flows together."""

    sent_over_needed: float
    took_s: float
    """Of a round, the median."""
    times_back: int
    stalled_s: float
    """The longest time in which no flow made progress; 0 where it is not looked at."""


@dataclass(frozen=True, slots=True)
class GoBack:
    """The same senders, with a token each and all at once."""

    scheduled: Arm
    unscheduled: Arm


@dataclass(frozen=True, slots=True)
class BlockRound:
    """Both arms, one right after the other."""

    round: int
    scheduled_ms: float
    unscheduled_ms: float


@dataclass(frozen=True, slots=True)
class Blocks:
    """Small blocks over TCP."""

    ratio: float
    """At once over one at a time, in time: the median of the rounds' quotients."""
    scheduled_ms: float
    unscheduled_ms: float
    ideal_ms: float
    ratio_projected: float
    """1 + 200 ms C / (N S): one minimum retransmission timeout."""
    scheduled_timeouts: int
    unscheduled_timeouts: int
    unscheduled_again_share: float
    """Bytes sent again over bytes needed."""
    rounds: list[BlockRound]


@dataclass(frozen=True, slots=True)
class Freeze:
    """Two flows into one receiver."""

    inline: Arm
    control: Arm
    """An executor that does nothing."""
    lane: Arm


@dataclass(frozen=True, slots=True)
class Incast:
    """The first four are the bar's."""

    scheduled: float
    """Bytes sent over bytes needed."""
    unscheduled: float
    tcp_ratio: float
    scheduled_timeouts: int
    blocks: Blocks
    go_back: GoBack
    freeze: Freeze

    @property
    def froze(self) -> bool:
        inline, control = self.freeze.inline, self.freeze.control
        return inline.took_s >= FREEZE_MIN * control.took_s and inline.stalled_s > control.stalled_s


def good(results: Incast) -> bool:
    return all_met(bars_of(results))


def bars_of(results: Incast) -> tuple[Bar, ...]:
    inline, control = results.freeze.inline, results.freeze.control
    longer = f"two flows, inline {inline.took_s / control.took_s:.2f} times as long as the control"
    stalled = f"longest stall {inline.stalled_s * 1e3:.0f} ms, more than {control.stalled_s * 1e3:.0f} ms"
    without = f"go-back-N, sent over needed without tokens {results.unscheduled:.2f}, at least {UNSCHEDULED_MIN}"
    return (
        Bar(
            f"go-back-N, sent over needed with tokens {results.scheduled:.3f}, at most {SCHEDULED_MAX}",
            results.scheduled <= SCHEDULED_MAX,
        ),
        Bar(without, results.unscheduled >= UNSCHEDULED_MIN),
        Bar(
            f"TCP blocks, at once over one at a time {results.tcp_ratio:.2f}, at least {TCP_RATIO_MIN}",
            results.tcp_ratio >= TCP_RATIO_MIN,
        ),
        Bar(f"timeouts with tokens {results.scheduled_timeouts}, at most 0", results.scheduled_timeouts == 0),
        Bar(f"{longer}, at least {FREEZE_MIN}, and its {stalled}", results.froze),
    )


def text(results: Incast) -> str:
    blocks, back = results.blocks, results.go_back
    took = f"{back.scheduled.took_s:.2f} s and {back.unscheduled.took_s:.2f} s"
    waited = f"{blocks.scheduled_ms:.0f} ms and {blocks.unscheduled_ms:.0f} ms"
    timeouts = f"timeouts {blocks.scheduled_timeouts} and {blocks.unscheduled_timeouts}"
    lines = [
        f"go-back-N, sent over needed: {results.scheduled:.3f} with tokens, {results.unscheduled:.2f} without; {took}",
        f"TCP blocks: {results.tcp_ratio:.2f} times as long without tokens; {waited}; {timeouts}",
    ]
    for name in ("inline", "control", "lane"):
        arm: Arm = getattr(results.freeze, name)
        sent = f"{arm.sent_over_needed:.2f} of the bytes"
        lines.append(f"two flows, {name}: {arm.took_s:.2f} s, {sent}, longest stall {arm.stalled_s * 1e3:.0f} ms")
    lines.append(bars_text(bars_of(results)))
    return "\n".join(lines)


def report(results: Incast) -> Report:
    del results  # every number is looked up
    return Report("incast", "Incast: many senders into one port", (_blocks(), _go_back(), _freeze()))


def _blocks() -> Section:
    key = "incast/blocks"
    return Section(
        "Small blocks over TCP",
        (
            Words(
                "A block of 256 KiB from each sender into a port of 200 Mbit/s with 48 kB of buffer. All at once they "
                "take {incast/blocks/ratio:.2f} times as long as one at a time: {incast/blocks/unscheduled_timeouts} "
                "retransmission timers ran out, against {incast/blocks/scheduled_timeouts}. The projection is one "
                "minimum timeout of 200 ms more than the bytes take; that time is the kernel's, and does not stretch."
            ),
            Table(
                "One round",
                (
                    Line("one at a time", f"{key}/scheduled_ms", f"{key}/ideal_ms", "ms", ".1f"),
                    Line("all at once", f"{key}/unscheduled_ms", None, "ms", ".1f"),
                    Line("at once over one at a time", f"{key}/ratio", f"{key}/ratio_projected", "", ".2f"),
                    Line("sent again, at once", f"{key}/unscheduled_again_share", None, "", ".1%"),
                ),
            ),
            Plot(
                "blocks",
                "A block from each sender",
                "round",
                "time of a round, ms",
                tuple(
                    Series(what, f"{key}/rounds/*/round", f"{key}/rounds/*/{arm}", Standing.MEASURED)
                    for arm, what in (("scheduled_ms", "one at a time"), ("unscheduled_ms", "all at once"))
                ),
            ),
        ),
    )


def _go_back() -> Section:
    lines = []
    for arm, what in (("scheduled", "a token each"), ("unscheduled", "all at once")):
        key = f"incast/go_back/{arm}"
        lines += [
            Line(f"bytes sent over needed, {what}", f"{key}/sent_over_needed", None, "", ".3f"),
            Line(f"a round, {what}", f"{key}/took_s", None, "s", ".2f"),
            Line(f"times a sender went back, {what}", f"{key}/times_back"),
        ]
    said = (
        "2 MiB from each sender into a port of 50 Mbit/s with 96 kB of buffer, over a transport that goes back to the "
        "first lost packet. The senders are the same in both arms; only when each begins differs."
    )
    return Section("A transport that goes back", (Words(said), Table("Both arms", tuple(lines))))


def _freeze() -> Section:
    lines = []
    for arm, what in (("inline", "inline"), ("control", "the control"), ("lane", "on a lane")):
        key = f"incast/freeze/{arm}"
        lines += [
            Line(f"both flows, {what}", f"{key}/took_s", None, "s", ".2f"),
            Line(f"longest stall, {what}", f"{key}/stalled_s", None, "s", ".3f"),
            Line(f"bytes sent over needed, {what}", f"{key}/sent_over_needed", None, "", ".3f"),
        ]
    said = (
        "Two flows of 4 MiB, each at 45 % of the port, into one receiver that checks each MiB with an engine twice as "
        "fast as the line. Inline, nothing is taken while a chunk is checked, the receiver's buffer runs over, and "
        "both senders go back. The control's executor does nothing, so what differs is the check alone."
    )
    return Section("The freeze of two flows", (Words(said), Table("Three executors", tuple(lines))))
