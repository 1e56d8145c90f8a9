"""`bench rolls`: what one residual of a rolling cache costs the link, with its rows known and without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np

from worldline.errors import Corrupt
from worldline.lab.bench.frame import Finding, Trial
from worldline.lab.bench.samples import Samples
from worldline.migration.rolls import Present, Residual, Version, plan_rows, plan_whole
from worldline.migration.rounds import Limits, merge
from worldline.schema.inventory import Free
from worldline.schema.layout import Manifest
from worldline.schema.rows import Copy, Runs
from worldline.snapshot.arena import Arena
from worldline.snapshot.gather import Gatherer
from worldline.snapshot.memory import ArenaMemory, arena_capacity
from worldline.snapshot.rows import copy_rows, read_runs, write_runs
from worldline.verify.digests import digest_state, leaf_digests
from worldline.verify.row_digests import row_digests
from worldline.wire.records import Chunk, CopyRecord, RoundEnd, RowsRecord, encode
from worldline.worlds.load import LoadLive, LoadWorld
from worldline.worlds.load_shape import Family, state_bytes

FULL_BLOCKS = 2
"""Blocks after which the load world's window is full."""
CACHE = ("kv_cache1", "kv_cache_mouse", "kv_cache_keyboard", "crossattn_cache")


@dataclass(frozen=True, slots=True)
class Round:
    """One residual, carried out."""

    rows_bytes: int
    """On the wire, roll-aware, records included."""
    found_bytes: int
    """The same, nothing declared and rows found by what they hold."""
    plain_bytes: int
    """On the wire, dirty leaves as chunks."""
    planned_s: float
    copied_s: float
    sent_s: float
    """New rows, read at the source and written at the target."""

    @property
    def pays_below_bytes_per_s(self) -> float:
        """The link's rate at which sending the dirty leaves whole takes as long: what rows save, over what they cost.

        Nothing of it is taken to go on while bytes cross, so a slower link gains more.
        """
        return (self.plain_bytes - self.rows_bytes) / (self.planned_s + self.copied_s + self.sent_s)


class Stage:
    """The load world's cache family at its source, and a target that holds it as of an earlier block."""

    def __init__(self, trial: Trial, scale: float) -> None:
        world = LoadWorld({"scale": scale, "vae": False})
        self.cache_bytes = state_bytes(world.shape.entries(), Family.CACHE)
        self._trial = trial
        capacity = arena_capacity(world.state_bytes_max)
        self._source, self._target = Arena.create(capacity, "rolls-source"), Arena.create(capacity, "rolls-target")
        memory = ArenaMemory(self._source)
        self._live: LoadLive = world.open(7, memory)
        self._gatherer = Gatherer(memory)
        self._block = 0
        for _ in range(FULL_BLOCKS):
            self._step()
        manifest = self._capture()
        leaves = tuple(manifest.leaves())
        for leaf in leaves:
            self._target.bytes_at(leaf)[:] = self._source.bytes_at(leaf)
        self._version = Version(self._block, leaf_digests(self._source, leaves), self._rows(manifest))

    def close(self) -> None:
        self._source.close()
        self._target.close()

    def advance(self, blocks: int) -> Round:
        """Plays on, and brings the target to the present by its residual. Raises `Corrupt` where that fails."""
        for _ in range(blocks):
            self._step()
        manifest = self._capture()
        leaves = tuple(manifest.leaves())
        digests = digest_state(self._source, manifest).digests
        present = Present(manifest, leaves, digests, self._version.digests)
        began_s = self._trial.clock.monotonic_s()
        against = (self._version,), Limits().rows_bytes
        residual = plan_rows(present, *against)
        planned_s = self._trial.clock.monotonic_s() - began_s
        rows = self._rows(manifest)
        found = plan_rows(Present(undeclared(manifest), leaves, digests, self._version.digests, rows), *against)
        copied_s, sent_s = self._carry_out(residual, manifest)
        if tuple(leaf_digests(self._target, leaves)) != tuple(digests):
            raise Corrupt("the residual did not give the source's bytes")
        self._version = Version(self._block, digests, rows)
        rows_bytes, found_bytes, plain_bytes = map(_wire_bytes, (residual, found, plan_whole(present)))
        return Round(rows_bytes, found_bytes, plain_bytes, planned_s, copied_s, sent_s)

    def _carry_out(self, residual: Residual, manifest: Manifest) -> tuple[float, float]:
        """Seconds of copies, and of new rows."""
        copied_s = sent_s = 0.0
        for step in residual.steps:
            match step:
                case Copy():
                    copied_s += self._trial.seconds(partial(copy_rows, self._target, manifest, step))
                case Runs():
                    sent_s += self._trial.seconds(partial(self._send, step))
        for leaf in residual.leaves:
            self._target.bytes_at(leaf)[:] = self._source.bytes_at(leaf)
        return copied_s, sent_s

    def _send(self, step: Runs) -> None:
        write_runs(self._target, step, read_runs(self._source, step))

    def _rows(self, manifest: Manifest) -> Mapping[str, np.ndarray]:
        return row_digests(self._source, undeclared(manifest))

    def _step(self) -> None:
        self._live.step(1 + self._block % 4)
        self._block += 1

    def _capture(self) -> Manifest:
        state = self._live.state()
        assert isinstance(state, dict)
        return self._gatherer.capture({name: state[name] for name in CACHE}, self._live.rules, self._block)


def rolls(trial: Trial, *, scale: float = 0.25, blocks_behind: int = 1) -> Finding:
    """Bytes of one residual of the load world's cache family, against plain dirty chunks.

    Parameters
    ----------
    trial
        The run.
    scale
        Of the load world; 1 is Matrix-Game-2's real size and takes twice 1.7 GB.
    blocks_behind
        How many blocks the session has made since the target had it whole.
    """
    stage = Stage(trial, scale)
    try:
        stage.advance(blocks_behind)
        rounds = []
        for _ in range(trial.rounds):
            rounds.append(stage.advance(blocks_behind))
            trial.copy()
            trial.telemetry.check()
    finally:
        stage.close()
    samples = Samples(
        "bytes",
        {
            "roll-aware": tuple(float(each.rows_bytes) for each in rounds),
            "found by content": tuple(float(each.found_bytes) for each in rounds),
            "dirty chunks": tuple(float(each.plain_bytes) for each in rounds),
        },
    )
    planned_ms = 1e3 * median(each.planned_s for each in rounds)
    copied_ms = 1e3 * median(each.copied_s for each in rounds)
    sent_ms = 1e3 * median(each.sent_s for each in rounds)
    pays_gb_per_s = median(each.pays_below_bytes_per_s for each in rounds) / 1e9
    costs = (
        f"planned in {planned_ms:.0f} ms; on one thread rows copied in {copied_ms:.0f} ms, new ones read and written "
        f"in {sent_ms:.0f}: they pay on a link slower than {pays_gb_per_s:.2f} GB/s "
        f"(moves stop at {Limits().rolls_bytes_per_s_max / 1e9:g})"
    )
    return Finding(
        samples.ratio("roll-aware", "dirty chunks"),
        "bytes of the residual / bytes of its dirty chunks, records included; less is better",
        samples,
        rows=tuple(
            {"residual": arm, "bytes": nbytes, "of the cache family": nbytes / stage.cache_bytes}
            for arm, nbytes in samples.medians.items()
        ),
        notes=(
            "each residual was carried out at a target, and every leaf there digested equal to the source's",
            costs,
        ),
    )


def undeclared(manifest: Manifest) -> Manifest:
    """The same state of an engine that says nothing of how it writes."""
    segments = tuple(replace(segment, write=Free()) for segment in manifest.layout.segments)
    return replace(manifest, layout=replace(manifest.layout, segments=segments))


def _wire_bytes(residual: Residual) -> int:
    """All that a round puts on the link: copies, rows, chunks and its end."""
    limits = Limits()
    total = len(encode(RoundEnd(1, residual.nbytes)))
    for step in residual.steps:
        match step:
            case Copy():
                total += len(encode(CopyRecord(step)))
            case Runs():
                total += len(encode(RowsRecord(step, bytes(step.nbytes))))
    for extent in merge(residual.leaves, limits.chunk_bytes, limits.tail_bytes_min):
        total += len(encode(Chunk(extent))) + extent.nbytes
    return total
