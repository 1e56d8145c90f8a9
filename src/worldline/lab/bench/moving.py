"""`bench same-node`, `bench live` and `bench serve`: a session that plays, moved between two real processes."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import Thread
from typing import TypeVar

from worldline.errors import BadValue
from worldline.lab.bench.frame import Cell, Finding, Peer, Trial
from worldline.lab.bench.two_hosts import Moved, Pair, two_hosts
from worldline.schema.receipt import Mode
from worldline.units import parse_rate
from worldline.worlds.protocol import OptionValue

T = TypeVar("T")
FILL_BLOCKS = 3
"""Until the windows of the load world are full and roll."""
SERIALISERS = ("torch", "safetensors", "pickle")
TMPFS = Path("/dev/shm")


class Stage:
    """A pair whose loop runs beside the bench, so that the session plays on between the arms."""

    def __init__(self, made: Pair, loop: asyncio.AbstractEventLoop, say: Callable[[str], None]) -> None:
        self.pair = made
        self._loop = loop
        self._say = say

    def do(self, work: Coroutine[object, object, T]) -> T:
        """Runs `work` on the loop and waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def blocks(self, count: int) -> None:
        self.do(self.pair.blocks(count))

    def still(self) -> None:
        """No block is made until `blocks` is asked for."""
        self.do(self.pair.still())

    def played(self, transport: str, mode: Mode, bytes_per_s: float | None = None) -> Moved:
        """A move of a session that plays: after at least one more block, and it stands still after the move."""
        self.blocks(1)
        moved = self.move(transport, mode, bytes_per_s)
        self.still()
        return moved

    def move(self, transport: str, mode: Mode, bytes_per_s: float | None = None) -> Moved:
        """Of the session as it is."""
        moved = self.do(self.pair.move(transport, mode, bytes_per_s))
        pause_ms = 1e3 * moved.pause_s
        self._say(f"{transport}, {mode.value}: a pause of {pause_ms:.0f} ms in a move of {moved.took_s:.1f} s")
        return moved


@contextlib.contextmanager
def staged(trial: Trial, options: dict[str, OptionValue], folder: str = "pair") -> Iterator[Stage]:
    """A pair with a load session whose windows are full."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="bench-pair")
    thread.start()
    trial.say("starting two hosts")
    context = two_hosts(trial.folder / folder, "load", options, trial.clock)
    try:
        made = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result()
        stage = Stage(made, loop, trial.say)
        try:
            stage.blocks(FILL_BLOCKS)
            yield stage
        finally:
            stage.do(context.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def live(trial: Trial, *, transport: str = "shm", bytes: str = "1.67GB", period_ms: float = 1500.0) -> Finding:  # noqa: A002 - the option's name
    """The pause of a session that plays, handed over, against one that is frozen and copied over the same memory.

    Parameters
    ----------
    transport: str
        Only `shm`.
    bytes: str
        Of the state, 0.777 of which a block rewrites.
    period_ms: float
        Of a block.
    """
    if transport != "shm":
        raise BadValue("bench live compares ways over shared memory: --transport shm")
    arms = {
        "hand-over, read in the block's shadow": ("shm", Mode.PRECOPY),
        "hand-over, frozen": ("shm", Mode.FREEZE),
        "freeze by copy": ("shm-copy", Mode.FREEZE),
        "tcp pre-copy": ("tcp", Mode.PRECOPY),
        "tcp freeze": ("tcp", Mode.FREEZE),
    }
    parts: dict[str, list[Moved]] = {name: [] for name in arms}

    def pause(name: str, stage: Stage) -> Callable[[], float]:
        def run() -> float:
            moved = stage.played(*arms[name])
            parts[name].append(moved)
            return moved.pause_s

        return run

    with staged(trial, {"bytes": bytes, "vae": False, "block_period_ms": period_ms}) as stage:
        samples = trial.interleave({name: pause(name, stage) for name in arms}, "s")
    first, frozen, copied, precopy, freeze = arms
    rows: tuple[Mapping[str, Cell], ...] = tuple(
        {
            "way": name,
            "pause ms": round(1e3 * median(each.pause_s for each in found), 1),
            "to the seal ms": round(1e3 * median(each.sealed_s for each in found), 1),
            "to the proof ms": round(1e3 * median(each.proven_s for each in found), 1),
            "fence ms": round(1e3 * median(each.fence_s for each in found), 1),
        }
        for name, found in parts.items()
    )
    peers = (
        Peer("hand-over, frozen / in the shadow", samples.ratio(frozen, first)),
        Peer("tcp freeze / tcp pre-copy", samples.ratio(freeze, precopy)),
    )
    return Finding(samples.ratio(copied, first), "pause: freeze by copy / hand-over", samples, peers, rows)


def same_node(trial: Trial, *, bytes: str = "1.67GB", period_ms: float = 1500.0) -> Finding:  # noqa: A002 - the option's name
    """A verified move between two processes against torch.save and torch.load of the same state over tmpfs.

    Three figures: a block was made since the last digest and hashing it is timed; it is hashed in the block's shadow,
    as far as it was announced; the whole attempt of a session that stands still, nothing mapped and nothing read
    before. The first is the ratio.

    Parameters
    ----------
    bytes: str
        Of the state.
    period_ms: float
        Of a block.
    """
    options: dict[str, OptionValue] = {"bytes": bytes, "vae": False, "block_period_ms": period_ms}
    with (
        staged(trial, options | {"announces": False}, "timed") as timed,
        staged(trial, options, "shadow") as shadow,
        _Serialisers(bytes) as files,
    ):
        for stage in (timed, shadow):
            stage.still()  # but for its own turn, so that one at a time uses the machine
        arms: dict[str, Callable[[], float]] = {
            "hashing timed": lambda: timed.played("shm", Mode.PRECOPY).pause_s,
            "hashing in the shadow": lambda: shadow.played("shm", Mode.PRECOPY).pause_s,
            "cold": lambda: timed.move("shm", Mode.FREEZE).took_s,
        }
        arms |= {kind: lambda kind=kind: files.there_and_back(kind) for kind in SERIALISERS}  # type: ignore[misc]
        samples = trial.interleave(arms, "s")
    figures = {arm: samples.ratio("torch", arm) for arm in ("hashing timed", "hashing in the shadow", "cold")}
    peers = tuple(Peer(kind, samples.ratio(kind, "hashing timed")) for kind in SERIALISERS)
    rows: tuple[Mapping[str, Cell], ...] = tuple(
        {"figure": name, "torch.save + torch.load over it": ratio} for name, ratio in figures.items()
    )
    return Finding(figures["hashing timed"], "torch.save + torch.load / verified move", samples, peers, rows)


def serve(
    trial: Trial,
    *,
    bytes: str = "400MB",  # noqa: A002 - the option's name
    period_ms: float = 1000.0,
    moves: int = 2,
    rate: str = "2Gbit",
) -> Finding:
    """The block period while a session moves over tcp by pre-copy, paced to a rate, against the period before.

    Parameters
    ----------
    bytes: str
        Of the state.
    period_ms: float
        What a block takes at least.
    moves: int
        A round's figure is the mean period over so many moves, the pause left out.
    rate: str
        Granted to each move.
    """
    bytes_per_s = parse_rate(rate)
    with staged(trial, {"bytes": bytes, "vae": False, "block_period_ms": period_ms}) as stage:
        blocks = stage.pair.block_at_s

        def before() -> float:
            first = len(blocks)
            stage.blocks(4)
            return (blocks[-1] - blocks[first]) / (len(blocks) - 1 - first)

        def during() -> float:
            periods: list[float] = []
            for _ in range(moves):
                stage.blocks(1)
                first = len(blocks) - 1  # the last block before the move begins
                moved = stage.move("tcp", Mode.PRECOPY, bytes_per_s)
                seen = [at for at in blocks[first:] if at <= moved.ended_at_s - moved.pause_s]
                periods += [after - at for at, after in pairwise(seen)]
            return sum(periods) / len(periods)

        samples = trial.interleave({"before": before, "during": during}, "s")
    return Finding(samples.ratio("before", "during"), "block period before / during a move", samples)


class _Serialisers:
    """Two processes and a file between them on tmpfs."""

    def __init__(self, size: str) -> None:
        self._size = size
        self._file = TMPFS / f"worldline-bench-{id(self):x}"
        self._children: list[subprocess.Popen[str]] = []

    def __enter__(self) -> _Serialisers:
        command = [sys.executable, "-m", "worldline.lab.bench.serialisers", self._size, str(self._file)]
        for _ in range(2):
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._children.append(child)
            assert child.stdout is not None, "it is a pipe"
            child.stdout.readline()
        return self

    def there_and_back(self, kind: str) -> float:
        """Seconds of saving in one process and loading in the other."""
        spent_s = 0.0
        for child, verb in zip(self._children, ("save", "load"), strict=True):
            assert child.stdin is not None and child.stdout is not None, "they are pipes"
            child.stdin.write(f"{verb} {kind}\n")
            child.stdin.flush()
            spent_s += float(child.stdout.readline())
        return spent_s

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.terminate()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
        self._file.unlink(missing_ok=True)
