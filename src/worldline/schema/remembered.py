"""What follows from a layout alone, found again at the next boundary.

A session's layout is one object from boundary to boundary, and so is a peer's that says the same again; to find out
anew what follows from it would take time of every pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Final, TypeVar

from worldline.schema.layout import Layout

_V = TypeVar("_V")

LAYOUTS_MAX: Final = 8
"""Layouts of which each function remembers what it made, the latest ones."""
VIEWS_REMEMBERED_MAX: Final = 8192
"""A larger layout is asked about anew each time: what a peer makes a host keep is bounded."""


def remembered(make: Callable[[Layout], _V]) -> Callable[[Layout], _V]:
    """`make`, not called twice for the same object; what it raises is not remembered. Any thread may call it."""
    known: deque[tuple[Layout, _V]] = deque(maxlen=LAYOUTS_MAX)

    @wraps(make)
    def found(layout: Layout) -> _V:
        for before, made in tuple(known):
            if before is layout:  # to compare what is in them takes as long as what is saved
                return made
        made = make(layout)
        if len(layout.views) <= VIEWS_REMEMBERED_MAX:
            known.append((layout, made))
        return made

    return found
