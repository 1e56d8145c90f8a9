"""A row of the tables that name benches, experiments and instruments. Light: the command line reads them at every
start.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """Where it is, as `module:name`, and what it shows, for people."""

    where: str
    summary: str
