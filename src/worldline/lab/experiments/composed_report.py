"""The report of a composed run: demonstrated in one column, projected in another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from worldline.lab.experiments.bars import Bar, bars_text
from worldline.lab.experiments.composed_found import Composed
from worldline.lab.report import (
    Column,
    Drawing,
    Line,
    Listing,
    Lookup,
    Plot,
    Report,
    Section,
    Series,
    Standing,
    Table,
    Words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def text(results: Composed) -> str:
    median_ms = "none" if results.pause_ms_median is None else f"{results.pause_ms_median:.0f} ms"
    given = f"{results.host_s_given_back:.0f} of {results.host_s:.0f} host seconds given back"
    dilated = f"links of {results.link_bytes_per_s / 1e6:.0f} MB/s stand for 12.5 GB/s"
    counting = f"{results.moves} moves across providers of sessions that generated meanwhile"
    within = f"within {results.pause_bound_s:.1f} s; the slowest took {_seconds(results.wake_s_max)}"
    lines = [
        f"{counting}, {results.identical} identical",
        f"{results.moves_all} moves in all, {results.identical_all} identical",
        f"refused {results.refused} {results.refusals or ''}, late {results.late}, lost {results.lost}",
        f"admitted and not done: {results.unfinished or 'none'}",
        f"hosts emptied {results.hosts_emptied}, {given}",
        f"put to sleep {results.parks}, woken {results.wakes}, {results.wakes_in_time} of them {within}",
        f"pause median {median_ms}, bound {results.pause_bound_s * 1e3:.0f} ms",
        f"{results.blocks} blocks of {results.sessions} sessions in {results.seconds:.0f} s",
        f"time dilation {results.dilation:.0f}: {dilated}; {results.stretch:.1f} against a session of 1.67 GB there",
        *results.differences,
        bars_text(bars_of(results)),
    ]
    return "\n".join(lines)


def bars_of(results: Composed) -> tuple[Bar, ...]:
    same = results.identical_all == results.moves_all and not results.differences
    return (
        Bar(f"moves that count {results.moves}, at least {results.wanted}", results.moves >= results.wanted),
        Bar(f"identical {results.identical_all} of {results.moves_all}, nothing else different", same),
        Bar(f"lost {results.lost}, late {results.late}, at most 0", (results.lost, results.late) == (0, 0)),
        Bar(f"hosts emptied {results.hosts_emptied}, at least 1", results.hosts_emptied >= 1),
    )


def _seconds(value: float | None) -> str:
    return "no time" if value is None else f"{value:.2f} s"


def report(results: Composed) -> Report:
    return Report("composed", "Composed: everything at once, on one fabric", (_what(), _found(), _moves()))


def _what() -> Section:
    return Section(
        "What was run",
        (
            Words(
                "{composed/hosts} hosts of two providers, processes in namespaces of their own with ports of "
                "{composed/link_bytes_per_s} bytes/s; {composed/sessions} sessions, played for "
                "{composed/seconds:.0f} s by simulated players who were away for {composed/away_share:.0%} of "
                "it. Against links of 12.5 GB/s every time is {composed/dilation:.0f} times as long, bytes being "
                "equal; against a session of 1.67 GB on such a link, {composed/stretch:.1f} times. The contract is "
                "that of a pause of 400 ms and a deadline of 3 s there: here {composed/pause_bound_s:.1f} s and "
                "{composed/deadline_s:.0f} s."
            ),
            Words(
                "A move counts if it crossed providers, carried 64 MB or more, and at least one block was asked for "
                "and generated between its beginning and its freeze. Identical: the root at the receipt's block is the "
                "unmoved session's, the second reader accepts the receipt, and every frame of the session and every "
                "byte of its last state are equal."
            ),
        ),
    )


def _found() -> Section:
    def line(what: str, key: str, projected: str | None = None, unit: str = "", form: str = ".4g") -> Line:
        return Line(what, f"composed/{key}", None if projected is None else f"composed/{projected}", unit, form)

    return Section(
        "What was found",
        (
            Table(
                "Demonstrated on this fabric, and projected for 1.67 GB at 12.5 GB/s or for 120 sessions",
                (
                    line("moves that count", "moves"),
                    line("of them identical", "identical"),
                    line("all moves", "moves_all"),
                    line("of them identical", "identical_all"),
                    line("late, of all that was admitted", "late"),
                    line("lost sessions and blocks", "lost"),
                    line("refused at arrival", "refused"),
                    line("hosts emptied", "hosts_emptied"),
                    line("host time given back", "given_back_share", "reclaim_projected", "", ".0%"),
                    line("put to sleep", "parks"),
                    line("woken by their players", "wakes"),
                    line("of them within H", "wakes_in_time"),
                    line("a wake-up, median", "wake_s_median", None, "s", ".2f"),
                    line("a wake-up, longest", "wake_s_max", None, "s", ".2f"),
                    line("pause, median", "pause_ms_median", "pause_ms_projected", "ms", ".1f"),
                    line("pause, 95 %", "pause_ms_p95", None, "ms", ".1f"),
                    line("a move, median", "duration_s_median", "duration_s_projected", "s", ".3f"),
                    line("bytes at the ports over bytes of moves", "port_over_moved", None, "", ".3f"),
                ),
            ),
        ),
    )


def _moves() -> Section:
    columns = (
        Column("began, s", "began_s", Standing.MEASURED, ".1f"),
        Column("session", "session", Standing.MEASURED),
        Column("from", "source", Standing.MEASURED),
        Column("to", "target", Standing.MEASURED),
        Column("pause, ms", "pause_ms", Standing.MEASURED, ".1f"),
        Column("took, s", "duration_s", Standing.MEASURED, ".2f"),
        Column("blocks meanwhile", "blocks_during", Standing.MEASURED),
        Column("counts", "counts", Standing.MEASURED),
        Column("identical", "identical", Standing.MEASURED),
    )
    pauses = Plot(
        "pauses",
        "Pauses of all moves",
        "seconds since the first move",
        "pause, ms",
        (Series("pause", "composed/listed/*/began_s", "composed/listed/*/pause_ms", Standing.MEASURED),),
    )
    return Section(
        "The moves",
        (
            Drawing("timeline", "Who moved when, by target", _timeline),
            pauses,
            Listing("All", "composed/listed", columns),
        ),
    )


def _timeline(axes: Axes, look_up: Lookup) -> None:
    moves = look_up("composed/listed")
    assert isinstance(moves, list)
    rows = [each for each in moves if isinstance(each, dict)]
    sessions = sorted({str(each["session"]) for each in rows})
    for color, (counts, label) in zip(("#0b6fb8", "#8a8a8a"), ((True, "counts"), (False, "other")), strict=True):
        spans = [each for each in rows if each["counts"] is counts]
        if not spans:
            continue
        axes.barh(
            [sessions.index(str(each["session"])) for each in spans],
            list(_floats(each["duration_s"] for each in spans)),
            left=list(_floats(each["began_s"] for each in spans)),
            color=color,
            label=f"{label} (measured)",
        )
    axes.set_yticks(range(len(sessions)), [f"session {at + 1}" for at in range(len(sessions))])
    axes.set_xlabel("seconds since the first move")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 1.12), ncols=2)


def _floats(values: Iterable[object]) -> Iterable[float]:
    return (float(value) for value in values if isinstance(value, int | float))
