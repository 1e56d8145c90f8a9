"""What a number may be, checked where it enters."""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import TypeVar

from worldline.errors import BadValue

Real = TypeVar("Real", float, Fraction)
"""Floating point, or exact: what comes in decides how it is computed."""

EXACT_MAX = 500
"""Servers, sources and cells up to which fractions are computed: their digits grow with each step."""
SERVERS_MAX = 10_000_000
"""Steps of a recursion over servers: seconds."""


_PLAIN = frozenset({float, int})
"""Known to be numbers without asking an abstract class, which takes ten times as long."""


def is_exact(value: object) -> bool:
    """Whether it is computed in fractions."""
    return isinstance(value, Fraction)


def _is_of(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def finite(value: Real, name: str) -> Real:
    """`value`, if it is a finite number."""
    if type(value) not in _PLAIN and not _is_of(value, numbers.Real):
        raise BadValue(f"{name} must be a number, not {value!r}")
    try:
        known = math.isfinite(value)
    except OverflowError:
        known = False
    if not known:
        raise BadValue(f"{name} must be finite, not {value!r:.60}")
    return value


def at_least_zero(value: Real, name: str) -> Real:
    """`value`, if it is finite and not negative."""
    if finite(value, name) < 0:
        raise BadValue(f"{name} can't be negative, and is {value!r:.60}")
    return value


def positive(value: Real, name: str) -> Real:
    """`value`, if it is finite and above zero."""
    if finite(value, name) <= 0:
        raise BadValue(f"{name} must be above zero, and is {value!r:.60}")
    return value


def share(value: Real, name: str) -> Real:
    """`value`, if it is from 0 to 1."""
    if not 0 <= finite(value, name) <= 1:
        raise BadValue(f"{name} must be from 0 to 1, and is {value!r:.60}")
    return value


def inside_share(value: Real, name: str) -> Real:
    """`value`, if it is between 0 and 1, both excluded."""
    if not 0 < finite(value, name) < 1:
        raise BadValue(f"{name} must be between 0 and 1, and is {value!r:.60}")
    return value


def whole(value: int, name: str, least: int = 0, most: int = SERVERS_MAX) -> int:
    """`value`, if it is a whole number from `least` to `most`."""
    if not _is_of(value, numbers.Integral):
        raise BadValue(f"{name} must be a whole number, not {value!r:.60}")
    if not least <= value <= most:
        raise BadValue(f"{name} must be from {least} to {most}, and is {value!r:.60}")
    return int(value)


def whole_for(value: int, name: str, like: float | Fraction, most: int = SERVERS_MAX) -> int:
    """`whole`, with the smaller limit where `like` makes the arithmetic exact."""
    return whole(value, name, most=EXACT_MAX if is_exact(like) else most)
