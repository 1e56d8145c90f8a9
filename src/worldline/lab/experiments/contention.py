"""Several moves at once into one receiver: T(N), its intercept, and what waiting costs a session that plays on.

Hosts on a shaped port, the product's own moves under its calendar. *Frozen* moves are atomic: T(N) = o + N C, so two
points give o and C, and the fluid bound floor(H B / S) is too hopeful. *Live* moves go on rewriting while they
wait for their turn, and carry more bytes the longer they wait. The analysis gets nothing but N = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from statistics import linear_regression, mean, median

from worldline.capacity.priorities import lift
from worldline.clock import Clock, SystemClock
from worldline.errors import BadValue
from worldline.lab.experiments.bars import bars_text
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.experiments.players import Habit, Player
from worldline.lab.fabric import Fabric
from worldline.lab.report import Column, Line, Listing, Plot, Report, Section, Series, Standing, Table, Words
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.runtime.messages import Move
from worldline.schema.contract import Contract
from worldline.schema.receipt import Mode
from worldline.service.client import Client
from worldline.units import parse_bytes, parse_rate

WORLD = "load"
AMPLE = Contract(pause_bound_s=120.0, completion_deadline_s=240.0)
"""Nothing is refused: how long it takes is the question."""
ENDLESS_S = 1e9
FIRST_BLOCKS, FIRST_S = 2, 60.0
PAPER_HORIZON_S, PAPER_MOVE_S, PAPER_OVERHEAD_S = 0.4, 0.179, 0.057


@dataclass(frozen=True, slots=True)
class AtCount:
    """So many moves asked for at one time, all to one host. Times until the last is over, the median of the rounds."""

    moves: int
    frozen_s: float
    analysis_s: float
    """o + N C."""
    fluid_s: float
    """N S / B, which leaves out the overhead."""
    live_s: float
    live_bytes: float
    """Sent by one live move, over its state."""


@dataclass(frozen=True, slots=True)
class Contention:
    """`intercept_s` and `each_s` are the least-squares line through the frozen times."""

    counts: list[AtCount]
    intercept_s: float
    each_s: float
    analysis_overhead_s: float
    """T(1) less its pause: what is not spent on the ports."""
    analysis_each_s: float
    """The pause of a frozen move that has the ports for itself: C."""
    off_max: float
    """The largest difference of analysis and measurement, over the measurement."""
    paper_two_s: float
    """o + 2 C with the paper's 57 ms and 179 ms: two moves miss 400 ms."""
    paper_fluid: int
    paper_lift: int
    state_bytes: int
    link_bytes_per_s: float


def measure(
    trial: Trial,
    *,
    most: int = 4,
    rounds: int = 2,
    state: str = "40MB",
    rate: str = "200Mbit",
    period_ms: float = 1500.0,
) -> Contention:
    """Asks for 1 to `most` moves at once, frozen and live, and holds T(N) against the analysis.

    Parameters
    ----------
    trial: Trial
        The run.
    most: int
        Moves at once, 2 to 8.
    rounds: int
        Of each; every other one goes back.
    state: str
        Of a session of the load world.
    rate: str
        Of each host's port.
    period_ms: float
        Of a block.
    """
    if not (2 <= most <= 8 and 1 <= rounds <= 20):
        raise BadValue("2 to 8 moves at once, and 1 to 20 rounds")
    nbytes, link = parse_bytes(state), parse_rate(rate)
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric(2, rate))
        plan = fabric.place(
            FleetPlan(
                ("a", "b"),
                run_dir=trial.folder / "run",
                memory_bytes=(2 * most + 2) * nbytes + (64 << 20),
                port_bytes_per_s=link,
                restarts=False,
            )
        )
        fleet = stack.enter_context(Fleet.start(plan))
        client = stack.enter_context(Client(fleet.url))
        scene = _Scene(client, {"bytes": state, "block_period_ms": period_ms}, most, SystemClock())
        stack.callback(scene.close)
        stack.callback(fleet.close)  # before that, where something failed: nobody then waits for moves to end
        timed: list[tuple[int, list[_Timed], list[_Timed]]] = []
        for count in range(1, most + 1):
            frozen = [scene.together(count, Mode.FREEZE) for _ in range(rounds)]
            live = [scene.together(count, Mode.PRECOPY) for _ in range(rounds)]
            timed.append((count, frozen, live))
            trial.telemetry.check()
            trial.say(f"{count} at once: frozen {_took(frozen):.2f} s, live {_took(live):.2f} s")
        scene.close()
    return _found(timed, nbytes, link)


@dataclass(frozen=True, slots=True)
class _Timed:
    took_s: float
    sent_over_state: float
    paused_s: float
    """Mean of the moves: of a frozen one, the time in which it has the ports for itself or waits for them."""


class _Scene:
    """Sessions that play without end, all on one host, moved together."""

    def __init__(self, client: Client, options: dict[str, str | float], count: int, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._here, self._there = "a", "b"
        self._pool = ThreadPoolExecutor(count)
        self.players: list[Player] = []
        for host in ("a", "b"):
            client.prewarm(host, WORLD, slots=0, options=options)
        for at in range(count):
            session = client.open(WORLD, seed=at, options=options, contract=AMPLE, host="a").describe()
            habit = Habit(ENDLESS_S, 0.0, 1.0)
            player = Player(client.url, session.id, len(session.actions), habit, Random(at), clock)
            player.start()
            self.players.append(player)
        for player in self.players:
            player.wait_for(FIRST_BLOCKS, FIRST_S)

    def together(self, count: int, mode: Mode) -> _Timed:
        """The first `count` sessions to the other host, asked for at once; the others follow them afterwards."""
        names = [player.session for player in self.players]
        began_s = self._clock.monotonic_s()
        moves = list(self._pool.map(lambda name: self._move(name, mode), names[:count]))
        took_s = self._clock.monotonic_s() - began_s
        for name in names[count:]:
            self._move(name, Mode.FREEZE)
        self._here, self._there = self._there, self._here
        receipts = [move.receipt for move in moves if move.receipt is not None]
        sent = mean(each.bytes_moved / each.state_bytes for each in receipts)
        return _Timed(took_s, sent, mean(each.pause_s for each in receipts))

    def _move(self, name: str, mode: Mode) -> Move:
        return self._client.session(name).move(self._there, mode=mode)

    def close(self) -> None:
        self._pool.shutdown()
        for player in self.players:
            player.stop()
        for player in self.players:
            player.join()


def _took(timed: Sequence[_Timed]) -> float:
    return median(each.took_s for each in timed)


def _found(timed: Sequence[tuple[int, list[_Timed], list[_Timed]]], state_bytes: int, link: float) -> Contention:
    numbers = [count for count, _, _ in timed]
    frozen = [_took(rounds) for _, rounds, _ in timed]
    each_s, intercept_s = fit(numbers, frozen)
    fluid_s = state_bytes / link
    alone_s = median(one.paused_s for one in timed[0][1])
    overhead_s = max(0.0, frozen[0] - alone_s)
    counts = [
        AtCount(
            count,
            took,
            overhead_s + count * alone_s,
            count * fluid_s,
            _took(live),
            median(one.sent_over_state for one in live),
        )
        for (count, _, live), took in zip(timed, frozen, strict=True)
    ]
    paper = lift(PAPER_HORIZON_S, PAPER_MOVE_S, PAPER_OVERHEAD_S)
    return Contention(
        counts,
        intercept_s,
        each_s,
        overhead_s,
        alone_s,
        max(abs(row.analysis_s - row.frozen_s) / row.frozen_s for row in counts),
        PAPER_OVERHEAD_S + 2 * PAPER_MOVE_S,
        paper.fluid,
        paper.count,
        state_bytes,
        link,
    )


def fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and intercept of the least-squares line."""
    line = linear_regression(x, y)
    return line.slope, line.intercept


def text(results: Contention) -> str:
    lines = [
        f"{row.moves} at once: frozen {row.frozen_s:6.2f} s, by analysis {row.analysis_s:6.2f} s, fluid "
        f"{row.fluid_s:6.2f} s; live {row.live_s:6.2f} s, {row.live_bytes:.2f} of the state sent"
        for row in results.counts
    ]
    lines.append(f"T(N) = {results.intercept_s:.2f} s + N x {results.each_s:.2f} s, fitted to the frozen times")
    return "\n".join([*lines, bars_text(())])


def report(results: Contention) -> Report:
    del results  # every number is looked up
    base = "contention/counts"
    columns = (
        Column("at once", "moves", Standing.MEASURED),
        Column("frozen, s", "frozen_s", Standing.MEASURED, ".2f"),
        Column("live, s", "live_s", Standing.MEASURED, ".2f"),
        Column("live, sent over state", "live_bytes", Standing.MEASURED, ".2f"),
        Column("o + N C, s", "analysis_s", Standing.PROJECTED, ".2f"),
        Column("fluid, s", "fluid_s", Standing.PROJECTED, ".2f"),
    )
    plot = Plot(
        "contention",
        "Until the last of N moves is over",
        "moves at once",
        "seconds",
        tuple(
            Series(label, f"{base}/*/moves", f"{base}/*/{key}", standing)
            for label, key, standing in (
                ("frozen", "frozen_s", Standing.MEASURED),
                ("live", "live_s", Standing.MEASURED),
                ("o + N C", "analysis_s", Standing.PROJECTED),
                ("fluid bound", "fluid_s", Standing.PROJECTED),
            )
        ),
    )
    line = Table(
        "The line through the frozen times",
        (
            Line("intercept", "contention/intercept_s", "contention/analysis_overhead_s", "s", ".2f"),
            Line("a move", "contention/each_s", "contention/analysis_each_s", "s", ".2f"),
            Line("the paper's T(2), against 400 ms", None, "contention/paper_two_s", "s", ".3f"),
            Line("the paper's N by the fluid bound", None, "contention/paper_fluid"),
            Line("the paper's N by the lift test", None, "contention/paper_lift"),
        ),
    )
    said = (
        "Sessions of {contention/state_bytes} bytes into one port of {contention/link_bytes_per_s} bytes/s, asked for "
        "at one time. The analysis takes N = 1 alone; it is off by at most {contention/off_max:.0%}. A live move "
        "goes on being rewritten while it is under way; what it sends, over its state, is in the last column."
    )
    found = Section("Found", (Words(said), Listing("By N", base, columns), plot, line))
    return Report("contention", "Contention: many moves into one receiver", (found,))


CONTENTION = Experiment(measure, report, text)
