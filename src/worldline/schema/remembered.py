"""What follows from a layout alone, found again at the next boundary.

A session's layout is one object from boundary to boundary, and so is a peer's that says the same again; to find out
anew what follows from it would take time of every pause.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import ref

from worldline.schema.layout import Layout

_V = TypeVar("_V")


def remembered(make: Callable[[Layout], _V]) -> Callable[[Layout], _V]:
    """`make`, not called again for the same object; what it raises is not remembered. Any thread may call it; two that
    do so at once may both make it.

    No layout is kept for that, and nothing of one that is gone, as long as what is made does not refer to its layout: a
    peer's may be a hundred megabytes of objects.
    """
    known: dict[int, tuple[ref[Layout], _V]] = {}
    """By where the layout lies: to compare what is in two of them takes as long as what is saved."""

    @wraps(make)
    def found(layout: Layout) -> _V:
        at = id(layout)
        before = known.get(at)
        if before is not None and before[0]() is layout:
            return before[1]
        made = make(layout)
        known[at] = (ref(layout, lambda _: known.pop(at, None)), made)
        return made

    return found
