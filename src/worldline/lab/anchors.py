"""Measured points, as figures show them beside projections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Anchor:
    """What a link carried, and how fast a session was rewritten meanwhile."""

    name: str
    bytes_per_s: float
    dirty_bytes_per_s: float
