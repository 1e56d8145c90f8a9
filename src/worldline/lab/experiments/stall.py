"""The check of what arrives, on the path on which it arrives or beside it: how much of the line is left.

A receiver takes chunks from one TCP connection on a shaped port. *Inline* it checks each before it takes the next;
with *lanes* it hands each to a worker behind a short queue. The engine is modelled: a chunk takes chunk / Rh, with Rh
in lines, so that an engine of any speed can be looked at. Two more arms use the product's own lanes and digests.
Everything is over the same line without checks, round by round.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from threading import Event, Semaphore

from worldline.clock import Clock, SystemClock
from worldline.errors import BadValue
from worldline.lab.bench.samples import interleave
from worldline.lab.experiments.bars import Bar, all_met, bars_text
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.experiments.tcp_blocks import connection, hang_up
from worldline.lab.fabric import Fabric
from worldline.lab.report import Column, Listing, Plot, Report, Section, Series, Standing, Table, Words
from worldline.lab.report import Line as Row
from worldline.schema.layout import Extent
from worldline.units import parse_rate
from worldline.verify.digests import leaf_digests
from worldline.verify.lanes import Lanes

CHUNK_BYTES = 1 << 20
BUFFER_BYTES = 128 * 1024
"""Of the receiver's socket. Checking inline is free while chunk / Rh <= buffer / line; here it is not."""
QUEUED_MAX = 4
ENGINES = (0.75, 1.0, 2.0, 4.0)
BAR_ENGINE = 2.0
LANES_MIN, INLINE_MAX = 0.93, 0.85


@dataclass(frozen=True, slots=True)
class AtEngine:
    """Shares of the line, the median of the rounds."""

    engine: float
    """How fast it is, in lines."""
    inline: float
    lanes: float
    inline_projected: float
    """L Rh / (L + Rh), over L: nothing overlaps."""
    lanes_projected: float
    """min(L, Rh), over L."""


@dataclass(frozen=True, slots=True)
class Bars:
    """What the run is to show, and whether it did."""

    lanes_min: float
    lanes_met: bool
    inline_max: float
    inline_met: bool


@dataclass(frozen=True, slots=True)
class Stall:
    """`lanes` and `inline` are the bar's, at an engine twice as fast as the line."""

    lanes: float
    inline: float
    own_lanes: float
    """The product's lanes and digests."""
    own_inline: float
    """The product's digests on the path on which bytes arrive."""
    line_bytes_per_s: float
    engines: list[AtEngine]
    bars: Bars


def measure(trial: Trial, *, rounds: int = 5, mebibytes: int = 12, rate: str = "200Mbit") -> Stall:
    """Receives under checks inline and on lanes, by engines of several speeds.

    Exit code 0: at an engine twice as fast as the line, lanes leave 0.93 of the line and more, and inline checks 0.85
    and less.

    Parameters
    ----------
    trial: Trial
        The run.
    rounds: int
        From 5.
    mebibytes: int
        Of one transfer, from 2.
    rate: str
        Of the port.
    """
    if not 2 <= mebibytes <= 4096:
        raise BadValue(f"a transfer has 2 to 4096 MiB, not {mebibytes}")
    clock = SystemClock()
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric(2, rate))
        near, far = connection(stack, fabric, "a", "b", BUFFER_BYTES)
        path = _Path(near, far, mebibytes * CHUNK_BYTES, clock, stack.enter_context(ThreadPoolExecutor(2)))
        stack.callback(hang_up, near)  # before the pool is waited for: whoever still sends is woken
        arms: dict[str, Callable[[], float]] = {"line": lambda: path.receive(_nothing)}
        for engine in ENGINES:
            arms |= _modelled(path, engine, engine * parse_rate(rate))
        own = _Own(path)
        stack.callback(own.close)
        arms |= {"own inline": own.inline, "own lanes": own.lanes}
        samples = interleave(arms, "bytes/s", rounds, between=trial.telemetry.check)

    def share(arm: str) -> float:
        return samples.ratio(arm, "line")

    engines = [
        AtEngine(each, share(f"inline {each}"), share(f"lanes {each}"), each / (1 + each), min(1.0, each))
        for each in ENGINES
    ]
    bar = next(each for each in engines if each.engine == BAR_ENGINE)
    line = median(samples.arms["line"])
    return Stall(
        bar.lanes, bar.inline, share("own lanes"), share("own inline"), line, engines, bars_of(bar.lanes, bar.inline)
    )


def bars_of(lanes: float, inline: float) -> Bars:
    return Bars(LANES_MIN, lanes >= LANES_MIN, INLINE_MAX, inline <= INLINE_MAX)


class _Path:
    """One connection, over and over. Every chunk goes through `take`, on the thread that receives."""

    def __init__(
        self, near: socket.socket, far: socket.socket, nbytes: int, clock: Clock, pool: ThreadPoolExecutor
    ) -> None:
        self._near = near
        self._far = far
        self._nbytes = nbytes
        self._clock = clock
        self._pool = pool
        self.arena = bytearray(nbytes)

    def receive(self, take: Callable[[Extent], None], finish: Callable[[], None] = lambda: None) -> float:
        """Bytes a second, until `finish` has returned."""
        sending = self._pool.submit(self._near.sendall, bytes(self._nbytes))
        view = memoryview(self.arena)
        began_s = self._clock.monotonic_s()
        for start in range(0, self._nbytes, CHUNK_BYTES):
            done = 0
            while done < CHUNK_BYTES:
                got = self._far.recv_into(view[start + done : start + CHUNK_BYTES])
                if not got:
                    raise ConnectionError("the sender is gone")
                done += got
            take(Extent(start, CHUNK_BYTES))
        finish()
        took_s = self._clock.monotonic_s() - began_s
        sending.result()
        return self._nbytes / took_s


def _nothing(_: Extent) -> None:
    return None


def _modelled(path: _Path, engine: float, bytes_per_s: float) -> Mapping[str, Callable[[], float]]:
    took_s = CHUNK_BYTES / bytes_per_s

    def check(_: Extent) -> None:
        Event().wait(took_s)

    def on_lane() -> float:
        room = Semaphore(QUEUED_MAX)
        with ThreadPoolExecutor(1, "lane") as lane:

            def hand_over(extent: Extent) -> None:
                room.acquire()
                lane.submit(check, extent).add_done_callback(lambda _: room.release())

            return path.receive(hand_over, lambda: lane.shutdown(wait=True))

    return {f"inline {engine}": lambda: path.receive(check), f"lanes {engine}": on_lane}


class _Own:
    """What the product does with what arrives."""

    def __init__(self, path: _Path) -> None:
        self._path = path
        self._lanes = Lanes()

    def bytes_at(self, extent: Extent) -> memoryview:
        return memoryview(self._path.arena)[extent.offset : extent.offset + extent.nbytes]

    def inline(self) -> float:
        return self._path.receive(lambda extent: _forget(leaf_digests(self, [extent])))

    def lanes(self) -> float:
        jobs: list[Future[list[bytes]]] = []

        def finish() -> None:
            for job in jobs:
                job.result()

        return self._path.receive(lambda extent: jobs.extend(self._lanes.submit(self, [extent])), finish)

    def close(self) -> None:
        self._lanes.close()


def _forget(_: object) -> None:
    return None


def good(results: Stall) -> bool:
    return all_met(_bars(results))


def _bars(results: Stall) -> tuple[Bar, ...]:
    bars = results.bars
    return (
        Bar(f"lanes {results.lanes:.3f}, at least {bars.lanes_min}", bars.lanes_met),
        Bar(f"inline {results.inline:.3f}, at most {bars.inline_max}", bars.inline_met),
    )


def text(results: Stall) -> str:
    lines = [
        f"engine {each.engine:4.2f} lines: inline {each.inline:.3f} of the line, lanes {each.lanes:.3f} "
        f"(without any overlap {each.inline_projected:.3f}, at best {each.lanes_projected:.3f})"
        for each in results.engines
    ]
    lines.append(f"the product's digests: inline {results.own_inline:.3f}, lanes {results.own_lanes:.3f}")
    lines.append(bars_text(_bars(results), " at an engine twice as fast as the line"))
    return "\n".join(lines)


def report(results: Stall) -> Report:
    del results  # every number is looked up
    columns = (
        Column("engine, lines", "engine", Standing.MEASURED, ".2f"),
        Column("inline", "inline", Standing.MEASURED, ".3f"),
        Column("lanes", "lanes", Standing.MEASURED, ".3f"),
        Column("inline, nothing overlaps", "inline_projected", Standing.PROJECTED, ".3f"),
        Column("lanes, at best", "lanes_projected", Standing.PROJECTED, ".3f"),
    )
    series = tuple(
        Series(label, "stall/engines/*/engine", f"stall/engines/*/{key}", standing)
        for label, key, standing in (
            ("inline", "inline", Standing.MEASURED),
            ("lanes", "lanes", Standing.MEASURED),
            ("inline, nothing overlaps", "inline_projected", Standing.PROJECTED),
            ("lanes, at best", "lanes_projected", Standing.PROJECTED),
        )
    )
    said = (
        "At an engine twice as fast as the line, checks on the path on which bytes arrive leave {stall/inline:.3f} of "
        "it (to be at most {stall/bars/inline_max}; met: {stall/bars/inline_met}), and lanes {stall/lanes:.3f} (to be "
        "at least {stall/bars/lanes_min}; met: {stall/bars/lanes_met}). The line carries "
        "{stall/line_bytes_per_s} bytes/s; chunks of 1 MiB, a socket buffer of 128 KiB. The engine is modelled as a "
        "time a chunk; the bytes and the line are real."
    )
    own = Table(
        "The product's own digests, a far faster engine than this line",
        (
            Row("inline, of the line", "stall/own_inline", None, "", ".3f"),
            Row("lanes, of the line", "stall/own_lanes", None, "", ".3f"),
        ),
    )
    plot = Plot("stall", "What checking leaves of the line", "engine, lines", "share of the line", series)
    listing = Listing("By the engine's speed", "stall/engines", columns)
    return Report("stall", "Stall: checks on the receive path", (Section("Found", (Words(said), listing, plot, own)),))


STALL = Experiment(measure, report, text, good)
