"""`bench prices`: what each step of a move costs a gibibyte on this machine, and the pauses that follow from it."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Callable, Mapping
from statistics import median
from threading import Thread

import numpy as np

from worldline.kernel import kernel
from worldline.lab.bench.frame import Cell, Finding, Trial
from worldline.lab.bench.moving import Stage, staged
from worldline.schema.layout import LEAF_BYTES_MAX, Extent
from worldline.schema.receipt import Mode
from worldline.snapshot.arena import Arena
from worldline.units import parse_bytes
from worldline.verify.digests import leaf_digests

GIB = 1024**3
PRICED_BYTES = 256 * 1024 * 1024
SMALL = "30MB"
"""A session whose pause is all overhead: the world's entries are as many."""
WAYS = {
    "hand-over, frozen": ("shm", Mode.FREEZE),
    "freeze by copy": ("shm-copy", Mode.FREEZE),
    "freeze over tcp": ("tcp", Mode.FREEZE),
}


def prices(trial: Trial, *, bytes: str = "400MB", period_ms: float = 400.0) -> Finding:  # noqa: A002 - the option's name
    """Seconds a GiB of each step, and each way's pause as they predict it beside the pause that was measured.

    The ratio is the worst way's smaller figure over its larger one: 0.8 is a prediction within 20 %.

    Parameters
    ----------
    bytes: str
        Of the session whose pauses are predicted and measured.
    period_ms: float
        Of a block.
    """
    with _Steps(trial) as steps:
        costs: dict[str, float] = {}
        for name, step in steps.steps().items():
            costs[name] = median(step() for _ in range(trial.rounds))
            trial.say(f"{name}: {costs[name]:.4f} s a GiB")
    overheads = _pauses(trial, SMALL, period_ms)
    measured = _pauses(trial, bytes, period_ms)
    gib = (parse_bytes(bytes) - parse_bytes(SMALL)) / GIB
    paid: dict[str, tuple[str, ...]] = {
        # Source and target read at once, each on a core of its own; the target's first reading faults its mapping in.
        "hand-over, frozen": ("digest, fresh mapping",),
        # The copy faults both mappings in while the source reads; then the target reads twice, on two threads.
        "freeze by copy": ("copy, fresh mappings", "digest"),
        # The target faults its arena in before the freeze.
        "freeze over tcp": ("send and receive", "digest"),
    }
    rows: list[Mapping[str, Cell]] = [
        {"what": name, "s a GiB": round(cost, 4), "predicted ms": None, "measured ms": None}
        for name, cost in costs.items()
    ]
    agreement: list[float] = []
    for way, steps_paid in paid.items():
        predicted_s = median(overheads[way]) + gib * sum(costs[step] for step in steps_paid)
        found_s = median(measured[way])
        agreement.append(min(predicted_s / found_s, found_s / predicted_s))
        rows.append(
            {
                "what": f"pause: {way}",
                "s a GiB": None,
                "predicted ms": round(1e3 * predicted_s, 1),
                "measured ms": round(1e3 * found_s, 1),
            }
        )
    samples = trial.interleave({"read": lambda: costs["read"]}, "s")
    return Finding(
        min(agreement), "predicted and measured pause, the smaller over the larger", samples, rows=tuple(rows)
    )


def _pauses(trial: Trial, size: str, period_ms: float) -> dict[str, list[float]]:
    with staged(trial, {"bytes": size, "vae": False, "block_period_ms": period_ms}, size) as stage:
        samples = trial.interleave({name: _pause(stage, name) for name in WAYS}, "s")
    return {name: list(found) for name, found in samples.arms.items()}


def _pause(stage: Stage, way: str) -> Callable[[], float]:
    return lambda: stage.played(*WAYS[way]).pause_s


class _Steps:
    """What is priced, over memory that is faulted in unless a step says otherwise."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._whole = Extent(0, PRICED_BYTES)
        self._leaves = [Extent(at, LEAF_BYTES_MAX) for at in range(0, PRICED_BYTES, LEAF_BYTES_MAX)]

    def __enter__(self) -> _Steps:
        self._source = Arena.create(PRICED_BYTES, "prices")
        self._octets = np.frombuffer(self._source.bytes_at(self._whole), np.uint8)
        self._octets[:] = np.resize(np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8), PRICED_BYTES)
        self._target = np.zeros(PRICED_BYTES, np.uint8)
        self._target[:] = 1
        return self

    def __exit__(self, *_: object) -> None:
        del self._octets
        self._source.close()

    def steps(self) -> dict[str, Callable[[], float]]:
        """Seconds a GiB each, but for the commit, which is a move's."""
        each = GIB / PRICED_BYTES

        def timed(work: Callable[[], object]) -> Callable[[], float]:
            return lambda: each * self._trial.seconds(work)

        words = self._octets.view(np.uint64)
        return {
            "read": timed(lambda: np.bitwise_or.reduce(words)),
            "copy": timed(lambda: kernel().copy(self._target, self._octets)),
            "digest": timed(lambda: leaf_digests(self._source, self._leaves)),
            "digest, fresh mapping": timed(self._digest_fresh),
            "copy, fresh mappings": timed(self._copy_fresh),
            "codec": timed(lambda: kernel().encode_granules(self._octets, True)),
            "send and receive": timed(lambda: self._through_a_socket(self._target)),
            "send and receive, fresh mapping": timed(self._receive_fresh),
            "commit, a move": lambda: self._trial.seconds(self._commit),
        }

    def _digest_fresh(self) -> None:
        with Arena.attach(self._source.fd, self._source.capacity, writable=False) as mapped:
            leaf_digests(mapped, self._leaves)

    def _copy_fresh(self) -> None:
        with (
            Arena.attach(self._source.fd, self._source.capacity, writable=False) as mapped,
            Arena.create(PRICED_BYTES, "prices-copy") as copied,
        ):
            places = [np.frombuffer(arena.bytes_at(self._whole), np.uint8) for arena in (copied, mapped)]
            kernel().copy(*places)
            del places

    def _receive_fresh(self) -> None:
        with Arena.create(PRICED_BYTES, "prices-received") as received:
            self._through_a_socket(np.frombuffer(received.bytes_at(self._whole), np.uint8))

    def _through_a_socket(self, into: np.ndarray) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            sending = socket.create_connection(server.getsockname())
            receiving, _ = server.accept()
        with sending, receiving:
            thread = Thread(target=sending.sendall, args=(self._octets.data,))
            thread.start()
            view = into.data
            while view:
                view = view[receiving.recv_into(view) :]
            thread.join()

    def _commit(self) -> None:
        """One durable transaction, as a swap of the owner is one."""
        database = sqlite3.connect(self._trial.folder / "prices.sqlite")
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute("CREATE TABLE IF NOT EXISTS owner (session TEXT PRIMARY KEY, epoch INTEGER)")
            database.execute("INSERT INTO owner VALUES ('w', 1) ON CONFLICT DO UPDATE SET epoch = epoch + 1")
            database.commit()
        finally:
            database.close()
