"""`bench prices`: what each step of a move costs a gibibyte on this machine, and the pauses that follow from it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from threading import Thread

import numpy as np

from worldline.errors import BadValue
from worldline.kernel import kernel
from worldline.lab.bench.frame import Cell, Finding, Trial
from worldline.lab.bench.moving import Stage, staged
from worldline.lab.bench.pair.own import filled_arena, leaves_of
from worldline.lab.bench.pair.parent import Pair, Transfer
from worldline.lab.bench.samples import Samples
from worldline.schema.layout import Extent
from worldline.schema.receipt import Mode
from worldline.snapshot.arena import Arena
from worldline.units import parse_bytes
from worldline.verify.digests import leaf_digests
from worldline.worlds.protocol import OptionValue

GIB = 1024**3
PRICED_BYTES = 256 * 1024 * 1024
EACH = GIB / PRICED_BYTES
LINK = "unverified"
"""Of the pair's engines: a link without digests."""
SPARE = 4
"""Times the memory that is to be touched: what was freed last is not all that the system hands out next."""
CORES_BESIDE = 4
"""From so many on, a link's two sides and their digests have a core each."""
SMALL = "30MB"
"""A session whose pause is all overhead: the world's entries are as many."""
WAYS = {
    "hand-over, frozen": ("shm", Mode.FREEZE),
    "freeze by copy": ("shm-copy", Mode.FREEZE),
    "freeze over tcp": ("tcp", Mode.FREEZE),
}


@dataclass(frozen=True, slots=True)
class Pause:
    """Of one way of moving a session between two processes of this machine."""

    way: str
    predicted_s: float
    """From the steps' prices, and the pause of a session that is all overhead."""
    measured_s: float
    """The median of the rounds."""

    @property
    def agreement(self) -> float:
        """The smaller figure over the larger: 0.8 is a prediction within 20 %."""
        return min(self.predicted_s / self.measured_s, self.measured_s / self.predicted_s)


@dataclass(frozen=True, slots=True)
class PriceList:
    """What was measured on this machine, and what follows from it."""

    steps_s_per_gib: Mapping[str, float]
    """By the step's name; medians."""
    commit_s: float
    """Of a move, whatever its bytes."""
    pauses: tuple[Pause, ...]
    samples: Samples
    """Pauses in s, of the small session and of the other one, by size and way."""

    @property
    def agreement(self) -> float:
        """The worst way's."""
        return min(pause.agreement for pause in self.pauses)


def prices(trial: Trial, *, bytes: str = "400MB", period_ms: float = 400.0) -> Finding:  # noqa: A002 - the option's name
    """Seconds a GiB of each step, and each way's pause as they predict it beside the pause that was measured.

    The ratio is the worst way's smaller figure over its larger one: 0.8 is a prediction within 20 %.

    Parameters
    ----------
    bytes: str
        Of the session whose pauses are predicted and measured, from 60MB.
    period_ms: float
        Of a block.
    """
    found = price_list(trial, bytes, period_ms)
    rows: list[Mapping[str, Cell]] = [
        {"what": step, "s a GiB": round(cost, 4), "predicted ms": None, "measured ms": None}
        for step, cost in found.steps_s_per_gib.items()
    ]
    rows += [
        {
            "what": f"pause: {pause.way}",
            "s a GiB": None,
            "predicted ms": round(1e3 * pause.predicted_s, 1),
            "measured ms": round(1e3 * pause.measured_s, 1),
        }
        for pause in found.pauses
    ]
    return Finding(
        found.agreement,
        "predicted and measured pause, the smaller over the larger",
        found.samples,
        rows=tuple(rows),
        notes=(f"one durable transaction, which every move has: {1e3 * found.commit_s:.2f} ms",),
    )


def price_list(trial: Trial, size: str, period_ms: float) -> PriceList:
    """Prices every step, and predicts and measures the pauses of a session of `size` with blocks of `period_ms`.

    Raises `BadValue` for a session that is not twice `SMALL`: nothing would be left for the steps to explain.
    """
    if parse_bytes(size) < 2 * parse_bytes(SMALL):
        raise BadValue(f"pauses are predicted of a session of twice {SMALL} or more, not of {size}")
    with _Steps(trial) as steps:
        costs, commit_s = steps.costs(), steps.commit_s()
    samples = _pauses(trial, size, period_ms)
    gib = (parse_bytes(size) - parse_bytes(SMALL)) / GIB
    pauses = tuple(
        Pause(way, samples.medians[_arm(SMALL, way)] + gib * cost, samples.medians[_arm(size, way)])
        for way, cost in _paid(costs).items()
    )
    return PriceList(costs, commit_s, pauses, samples)


def _paid(costs: Mapping[str, float]) -> dict[str, float]:
    """What of the steps each way's pause is made of, in seconds a GiB."""
    digested = costs["digest"]
    if len(os.sched_getaffinity(0)) >= CORES_BESIDE:  # digests cost nothing beside what is slower
        over_tcp = max(costs["send and receive"], digested)
    else:
        over_tcp = costs["send and receive"] + digested
    return {
        # Source and target read at once; both have the arena mapped and faulted in before the freeze.
        "hand-over, frozen": costs["digest, two at once"],
        # The copy faults both mappings in while the source reads; then the target reads.
        "freeze by copy": costs["copy, fresh mappings"] + digested,
        # The target faults its arena in before the freeze.
        "freeze over tcp": over_tcp,
    }


def _pauses(trial: Trial, size: str, period_ms: float) -> Samples:
    """Of a small session and of one of `size`, all measured in the same rounds."""
    with contextlib.ExitStack() as stages:
        arms: dict[str, Callable[[], float]] = {}
        for each in (SMALL, size):
            options: dict[str, OptionValue] = {"bytes": each, "vae": False, "block_period_ms": period_ms}
            stage = stages.enter_context(staged(trial, options, each))
            stage.still()
            arms |= {_arm(each, way): _pause(stage, way, each) for way in WAYS}
        return trial.interleave(arms, "s")


def _arm(size: str, way: str) -> str:
    return f"{size}, {way}"


def _pause(stage: Stage, way: str, size: str) -> Callable[[], float]:
    def run() -> float:
        _call_back(parse_bytes(size))
        return stage.played(*WAYS[way]).pause_s

    return run


def _call_back(nbytes: int) -> None:
    """Has more than so much memory and frees it. What a virtual machine leaves free its host takes back after seconds:
    touching that anew costs three times what a fresh page does, and no price list would know whom it meets.
    """
    with Arena.create(SPARE * nbytes, "prices-back") as arena:
        arena.touch(Extent(0, arena.capacity))


class _Steps:
    """What is priced, over memory that is faulted in unless a step says otherwise."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._whole = Extent(0, PRICED_BYTES)
        self._leaves = leaves_of(PRICED_BYTES)

    def __enter__(self) -> _Steps:
        self._source = filled_arena(PRICED_BYTES, "prices", 0)
        self._octets = np.frombuffer(self._source.bytes_at(self._whole), np.uint8)
        self._target = np.zeros(PRICED_BYTES, np.uint8)
        self._target[:] = 1
        return self

    def __exit__(self, *_: object) -> None:
        del self._octets
        self._source.close()

    def costs(self) -> dict[str, float]:
        """Seconds a GiB of each step by its name."""
        words = self._octets.view(np.uint64)
        found: dict[str, float] = {}

        def note(name: str, cost: float) -> None:
            found[name] = cost
            self._trial.say(f"{name}: {cost:.4f} s a GiB")

        steps: dict[str, Callable[[], float]] = {
            "read": self._timed(lambda: np.bitwise_or.reduce(words)),
            "copy": self._timed(lambda: kernel().copy(self._target, self._octets)),
            "digest": self._timed(self._digest),
            "digest, two at once": self._timed(self._digest_by_two),
            "digest, fresh mapping": self._digest_fresh,
            "copy, fresh mappings": self._copy_fresh,
            "codec": self._timed(lambda: kernel().encode_granules(self._octets, True)),
        }
        for name, step in steps.items():
            note(name, EACH * median(step() for _ in range(self._trial.rounds)))
        transfers = self._transfers()
        note("send and receive", EACH * median(each.seconds for each in transfers))
        note("send, processor time", EACH * median(each.source_cpu_s for each in transfers))
        note("receive, processor time", EACH * median(each.target_cpu_s for each in transfers))
        return found

    def commit_s(self) -> float:
        """Of one durable transaction, as a swap of the owner is one."""
        with contextlib.closing(sqlite3.connect(self._trial.folder / "prices.sqlite")) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute("CREATE TABLE owner (session TEXT PRIMARY KEY, epoch INTEGER)")
            database.execute("INSERT INTO owner VALUES ('w', 1)")
            database.commit()

            def commit() -> None:
                database.execute("UPDATE owner SET epoch = epoch + 1")
                database.commit()

            return median(self._trial.seconds(commit) for _ in range(self._trial.rounds))

    def _timed(self, work: Callable[[], object]) -> Callable[[], float]:
        return lambda: self._trial.seconds(work)

    def _digest(self) -> None:
        leaf_digests(self._source, self._leaves)

    def _digest_by_two(self) -> None:
        """As the two sides of a hand-over, which read the same memory."""
        other = Thread(target=self._digest)
        other.start()
        self._digest()
        other.join()

    def _digest_fresh(self) -> float:
        with Arena.attach(self._source.fd, self._source.capacity, writable=False) as mapped:
            return self._trial.seconds(lambda: leaf_digests(mapped, self._leaves))

    def _copy_fresh(self) -> float:
        _call_back(PRICED_BYTES)
        with (
            Arena.attach(self._source.fd, self._source.capacity, writable=False) as mapped,
            Arena.create(PRICED_BYTES, "prices-copy") as copied,
        ):
            places = [np.frombuffer(arena.bytes_at(self._whole), np.uint8) for arena in (copied, mapped)]
            took_s = self._trial.seconds(partial(kernel().copy, *places))
            places.clear()  # a view keeps its arena from closing
        return took_s

    def _transfers(self) -> list[Transfer]:
        """Over a link as a move has one, between two processes, its target's arena faulted in before."""
        with Pair.start(PRICED_BYTES) as pair:
            pair.open(LINK)
            pair.transfer(LINK)
            return [pair.transfer(LINK) for _ in range(self._trial.rounds)]
