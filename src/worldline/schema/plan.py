"""The kernel plan: everything that decides which bits a host computes from equal state (mission row M17)."""

from __future__ import annotations

from dataclasses import dataclass

import blake3

from worldline.schema.canonical import canonical_json

ENGINE = "engine."
"""How the names of the facts begin that a world tells of itself."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Two hosts continue a session bit for bit when their plans are equal, field by field.

    `facts` are sorted (name, value) pairs: weights digest, engine and config, torch version, device architecture, CPU
    capability, threads, determinism flags. `canary` is the digest (hex) of a block generated from a fixed seed at
    start, which catches what the facts leave out. `digest` (hex, BLAKE3-256) covers both.
    """

    world: str
    facts: tuple[tuple[str, str], ...]
    canary: str
    digest: str

    @property
    def host_digest(self) -> str:
        """Of the facts that every world of a process shares (hex, BLAKE3-256): hosts whose digests differ are on
        different plans for any world.
        """
        shared = [fact for fact in self.facts if not fact[0].startswith(ENGINE)]
        return blake3.blake3(b"worldline host plan 1\0" + canonical_json(shared)).hexdigest()

    def differences(self, other: Plan) -> tuple[str, ...]:
        """Names of the facts that differ, `canary` among them; empty when the plans are equal."""
        mine, theirs = dict(self.facts), dict(other.facts)
        names = [name for name in sorted(mine.keys() | theirs.keys()) if mine.get(name) != theirs.get(name)]
        if self.world != other.world:
            names.insert(0, "world")
        if self.canary != other.canary:
            names.append("canary")
        return tuple(names)


@dataclass(frozen=True, slots=True)
class Qualification:
    """A pair of plans measured beforehand for T1: PSNR in dB of the readout, over the frames of `blocks` blocks."""

    id: str
    source_plan: str
    target_plan: str
    world: str
    blocks: int
    psnr_db_median: float
    psnr_db_worst: float
    first_differing_block: int | None
