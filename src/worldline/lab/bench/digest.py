"""`bench digest`: what verifying a state costs a core, against reading it and doing nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from worldline.kernel import backend, kernel
from worldline.kernel.plain import Plain
from worldline.lab.bench.frame import Cell, Finding, Trial
from worldline.schema.layout import LEAF_BYTES_MAX, LEAF_BYTES_MIN, Extent
from worldline.snapshot.arena import Arena
from worldline.units import parse_bytes
from worldline.verify.digests import leaf_digests

READ = "pure read"
WHEEL = "wheel, a call a leaf"
LABELS = {LEAF_BYTES_MAX: "verify, 1 MiB leaves", LEAF_BYTES_MIN: "verify, 64 KiB leaves"}


def digest(trial: Trial, *, bytes: str = "1.67GB") -> Finding:  # noqa: A002 - the option's name
    """Digests the leaves of an arena in one thread, as the lanes do, and reads the same arena as fast as it goes.

    Rates are by the thread's processor time. The ratio is the lower one of 1 MiB and of 64 KiB leaves.

    Parameters
    ----------
    bytes: str
        Of the arena.
    """
    nbytes = parse_bytes(bytes)
    with Arena.create(nbytes, "bench") as arena:
        _fill(arena, nbytes)
        words = np.frombuffer(arena.bytes_at(Extent(0, nbytes // 8 * 8)), np.uint64)

        def rate(work: Callable[[], object]) -> Callable[[], float]:
            return lambda: nbytes / trial.cpu_seconds(work)

        arms = {READ: rate(lambda: np.bitwise_or.reduce(words))}
        for leaf_bytes, label in LABELS.items():
            leaves = _leaves(nbytes, leaf_bytes)
            arms[label] = rate(lambda leaves=leaves: leaf_digests(arena, leaves))  # type: ignore[misc]
        arms[WHEEL] = rate(_by_wheel(arena, nbytes))
        samples = trial.interleave(arms, "bytes/s")
    ratios = {label: samples.ratio(label, READ) for label in LABELS.values()}
    rows: tuple[Mapping[str, Cell], ...] = tuple(
        {"arm": label, "of a pure read": ratio} for label, ratio in ratios.items()
    )
    told = backend()
    note = f"kernel {told.name}" + (f": {told.reason}" if told.reason else "")
    return Finding(
        min(ratios.values()), "verify bytes/s a core / pure read bytes/s", samples, rows=tuple(rows), notes=(note,)
    )


def _fill(arena: Arena, nbytes: int) -> None:
    """Bytes of chance, a block of them again and again: nothing here depends on what they are."""
    block = np.random.default_rng(0).integers(0, 256, 16 * 1024 * 1024, np.uint8)
    octets = np.frombuffer(arena.bytes_at(Extent(0, nbytes)), np.uint8)
    for start in range(0, nbytes, block.nbytes):
        part = octets[start : start + block.nbytes]
        kernel().copy(part, block[: part.nbytes])


def _leaves(nbytes: int, leaf_bytes: int) -> list[Extent]:
    return [Extent(start, min(leaf_bytes, nbytes - start)) for start in range(0, nbytes, leaf_bytes)]


def _by_wheel(arena: Arena, nbytes: int) -> Callable[[], object]:
    octets = np.frombuffer(arena.bytes_at(Extent(0, nbytes)), np.uint8)
    offsets = np.arange(0, nbytes, LEAF_BYTES_MAX, dtype=np.int64)
    sizes = np.minimum(LEAF_BYTES_MAX, nbytes - offsets)
    plain = Plain()
    return lambda: plain.leaf_digests(octets, offsets, sizes)
