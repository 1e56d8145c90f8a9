"""What kinds of state there are and how a block rewrites them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias


class Kind(StrEnum):
    """What an entry of a session's state is for."""

    CACHE = "cache"
    """Attention and feature caches: the bulk."""
    AUX = "aux"
    """Counters, positions, flags, random states."""
    HORIZON = "horizon"
    """Buffers laid out for the whole session ahead: noise, conditions, action tails."""
    DERIVED = "derived"
    """Rebuilt from the rest; listed, never moved."""
    CONST = "const"
    """Set at open and never written again; moved once."""


@dataclass(frozen=True, slots=True)
class Roll:
    """Once full, a block shifts rows down by `shift` along `dim`, keeping the first `keep`, and writes `shift` new
    rows at the end.
    """

    dim: int
    shift: int
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Ring:
    """A block overwrites one slot of `slot` rows along `dim`; the rest stays."""

    dim: int
    slot: int


@dataclass(frozen=True, slots=True)
class Append:
    """Rows are added at the end along `dim`; written rows stay."""

    dim: int


@dataclass(frozen=True, slots=True)
class Realloc:
    """A new tensor every block, perhaps of another shape."""


@dataclass(frozen=True, slots=True)
class Once:
    """Written once after open, then never again."""


@dataclass(frozen=True, slots=True)
class Static:
    """Not written after open."""


@dataclass(frozen=True, slots=True)
class Free:
    """May be rewritten anywhere, any block: the default when nothing is declared."""


WriteRule: TypeAlias = Roll | Ring | Append | Realloc | Once | Static | Free


@dataclass(frozen=True, slots=True)
class Rule:
    """Kind and write rule of every entry whose path matches `pattern` (`fnmatch`, `*` also matches `/`). The first
    match counts.
    """

    pattern: str
    kind: Kind
    write: WriteRule = Free()


def rules_under(prefix: str, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules of a tree that was put under `prefix` in a larger one."""
    return tuple(replace(rule, pattern=f"{prefix}/{rule.pattern}") for rule in rules)
