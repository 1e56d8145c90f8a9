"""What an experiment is to show, and whether this run showed it: said in the same words by all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that is to be shown."""

    what: str
    """With the figure that was found, and what it is to be at least or at most."""
    met: bool


def all_met(bars: Sequence[Bar]) -> bool:
    return all(bar.met for bar in bars)


def bars_text(bars: Sequence[Bar], where: str = "") -> str:
    """A line for each; `where`: under which condition they are to be met."""
    if not bars:
        return "to be shown: nothing; this measures, and tells what it found"
    lines = [f"  {bar.what}: {'met' if bar.met else 'not met'}" for bar in bars]
    return "\n".join([f"to be shown{where}:", *lines])
