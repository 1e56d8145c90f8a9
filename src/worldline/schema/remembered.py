"""What follows from a layout alone, found again at the next boundary.

A session's layout is one object from boundary to boundary, and so is a peer's that says the same again; to find out
anew what follows from it would take time of every pause.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, TypeAlias, TypeVar
from weakref import ref

from worldline.schema.layout import Layout

_V = TypeVar("_V")
_Known: TypeAlias = tuple[tuple[ref[Layout], _V], ...]

LAYOUTS_MAX: Final = 8
"""Layouts of which each function remembers what it made, the latest ones."""


def remembered(make: Callable[[Layout], _V]) -> Callable[[Layout], _V]:
    """`make`, not called twice for the same object; what it raises is not remembered. Any thread may call it.

    No layout is kept for that, and nothing of one that is gone: a peer's may be a hundred megabytes of objects.
    """
    known: _Known[_V] = ()

    def forget(gone: ref[Layout]) -> None:
        nonlocal known
        known = tuple(item for item in known if item[0] is not gone)

    @wraps(make)
    def found(layout: Layout) -> _V:
        nonlocal known
        for before, made in known:
            if before() is layout:  # to compare what is in them takes as long as what is saved
                return made
        made = make(layout)
        # Put in place as a whole: what another thread adds meanwhile may be lost, and is then made once more.
        known = (*known, (ref(layout, forget), made))[-LAYOUTS_MAX:]
        return made

    return found
