"""What an entry of a state is, told by what blocks did to its bytes, and what that means for moving it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import assert_never

import numpy as np

from worldline.lab.instruments.changes import Change, Rows
from worldline.schema.inventory import Append, Free, Kind, Once, Realloc, Ring, Roll, Rule, Static


class StateClass(StrEnum):
    """By content: a window that slides is one whether it is moved in place or made anew."""

    WINDOW = "window-rewrite"
    RING = "ring"
    APPEND = "append-only"
    RECURRENT = "recurrent"
    REALLOCATED = "re-allocated"
    ONCE = "once"
    NEVER = "never written"


MEANING: Mapping[StateClass, str] = {
    StateClass.WINDOW: "what changes has mostly moved: copies at the target, and the new rows over the link",
    StateClass.RING: "one slot a block is dirty: pre-copy converges at once, and what is left for the pause is a slot",
    StateClass.APPEND: "what is written stays: send it while the session plays, and its tail in the pause",
    StateClass.RECURRENT: "changed anywhere, every block: sent in the pause, whatever was sent before",
    StateClass.REALLOCATED: "no address lasts: gathered at each boundary, sent whole in the pause",
    StateClass.ONCE: "sent early and never again; may be left out where it is derived from what is sent",
    StateClass.NEVER: "sent early and never again; zeros cost nothing",
}
"""What each class means for a move."""


@dataclass(frozen=True, slots=True)
class Told:
    """A class, and the evidence in words."""

    state_class: StateClass
    evidence: str


def tell(changes: Sequence[Change]) -> Told:
    """The class of an entry from its changes, one a block, in order. A window that never filled reads as append-only:
    nothing in its bytes says otherwise yet.
    """
    written = [each for each in changes if not each.is_none]
    anew = sum(each.rebound for each in written)
    where = "in place" if not anew else f"in a new tensor {anew} times"
    blocks = len(changes)
    if not written:
        return Told(StateClass.NEVER, f"{blocks} blocks left every byte as it was")
    if len(written) == 1 and blocks > 1 and changes[-1].is_none:
        return Told(StateClass.ONCE, f"block {changes.index(written[0]) + 1} wrote it, {where}; {blocks} were watched")
    rows = [each.rows for each in written]
    slots = _slots([one for one in rows if one is not None]) if None not in rows else None
    if slots is not None and len({last - first for first, last in slots}) == 1:
        return _cycle(slots, where)
    by = _roll([one for one in rows if one is not None]) if None not in rows[1:] else None
    if by is not None:
        return Told(StateClass.WINDOW, f"{_roll_words([one for one in rows if one is not None], by)}, {where}")
    if all(one is not None and is_grown(one) for one in rows[1:]) and len(rows) > 1 and rows[-1] is not None:
        return Told(StateClass.APPEND, f"it grew {len(rows)} times, to {len(rows[-1].sources)} rows, {where}")
    if slots is not None:
        return _cycle(slots, where)
    if anew == len(written):
        return Told(
            StateClass.REALLOCATED, f"{anew} of {blocks} blocks made it anew, and its rows do not follow the old ones"
        )
    return Told(StateClass.RECURRENT, f"{len(written)} of {blocks} blocks wrote it in place, and not row by row")


def _roll(rows: Sequence[Rows]) -> int | None:
    """A distance by which rows move down, in most of the blocks, behind those that stay. None where there is none.

    Before a window is full rows are added or written in turn; where a block adds as many rows as it needs (words),
    each has a distance of its own. Equal rows look as if they had moved by other ways, or not at all, so every
    distance is tried that one of the blocks allows, the commonest first.
    """
    allowed = [_distances(one) for one in rows]
    common = Counter(by for ways in allowed for by in ways)
    others = [one for one, ways in zip(rows, allowed, strict=True) if not ways]
    for by in sorted(common, key=lambda by: (-common[by], by)):
        if all(_only_tail(one, by) or is_grown(one) or _slot(one) for one in others):
            return by
    return None


def _distances(rows: Rows) -> set[int]:
    """Distances by which the rows from the first changed one on moved down, with others behind them to the end."""
    before, changed = len(rows.old), rows.changed
    if not len(changed):
        return set()
    first = int(changed[0])
    ways = np.flatnonzero(rows.old[first + 1 :] == rows.now[first]) + 1
    return {
        int(by)
        for by in ways
        if before - by <= len(rows.now) and np.array_equal(rows.now[first : before - by], rows.old[first + by :])
    }


def _only_tail(rows: Rows, by: int) -> bool:
    """Whether what changed are the rows that a roll makes new: those that moved were equal to one another."""
    changed = rows.changed
    return not len(changed) or int(changed[0]) >= len(rows.old) - by


def is_grown(rows: Rows) -> bool:
    """Whether all rows that were there still are, and more follow."""
    before = len(rows.old)
    return len(rows.now) > before and bool(np.array_equal(rows.now[:before], rows.old))


def _roll_words(rows: Sequence[Rows], by: int) -> str:
    rolled = [one for one in rows if _distances(one)]
    kept, size = min(int(one.changed[0]) for one in rolled), len(rolled[-1].now)
    keeps = f", the first {kept} stayed" if kept else ""
    same = all(by in _distances(one) for one in rolled)
    far = f"by {by} of {size}" if same else f"by {by} of {size} or another number"
    return f"{len(rolled)} times rows moved down {far}{keeps}, and others followed"


def _slot(rows: Rows) -> tuple[int, int] | None:
    """First and last of the rows that changed, where they lie together and others stayed."""
    changed = rows.changed
    if not len(changed) or len(changed) == len(rows.sources) or len(rows.old) != len(rows.now):
        return None
    first, last = int(changed[0]), int(changed[-1])
    return (first, last) if last - first + 1 == len(changed) else None


def _slots(rows: Sequence[Rows]) -> list[tuple[int, int]] | None:
    """The slot of each write; what every write touches (a scratch tail) is not of the slot. None: no slots."""
    if len({(one.dim, len(one.sources)) for one in rows}) != 1:
        return None
    size = len(rows[0].sources)
    changed = [set(one.changed.tolist()) for one in rows]
    always = set.intersection(*changed)
    found = []
    for each in changed:
        own = sorted(each - always)
        if not own:
            continue
        if own[-1] - own[0] + 1 != len(own) or len(own) + len(always) >= size:
            return None
        found.append((own[0], own[-1]))
    return found if len(found) > 1 else None


def _cycle(slots: Sequence[tuple[int, int]], where: str) -> Told:
    """A ring once a slot is written again in turn; append-only as long as none is; else recurrent."""
    base, size = min(first for first, _ in slots), slots[0][1] - slots[0][0] + 1
    wraps = 0
    for (_, last), (first, _) in pairwise(slots):
        if first == base and first <= last:
            wraps += 1
        elif first <= last:
            return Told(StateClass.RECURRENT, f"{len(slots)} writes of some rows each, in no order, {where}")
    if wraps:
        return Told(StateClass.RING, f"one slot of {size} rows after the other, {wraps} times round, {where}")
    return Told(StateClass.APPEND, f"{len(slots)} times the next rows were written, none of them again, {where}")


def agrees(rule: Rule, told: Told) -> bool:
    """Whether what the bytes tell is possible under the declared rule. `Free` and `Realloc` promise nothing, and how a
    derived entry is written matters to nobody: it is not moved.
    """
    if rule.kind is Kind.DERIVED:
        return True
    never, once = StateClass.NEVER, StateClass.ONCE
    write = Static() if rule.kind is Kind.CONST and not isinstance(rule.write, Once) else rule.write
    match write:
        case Free() | Realloc():
            return True
        case Roll():
            return told.state_class in (StateClass.WINDOW, StateClass.APPEND, never, once)
        case Ring():
            return told.state_class in (StateClass.RING, StateClass.APPEND, never, once)
        case Append():
            return told.state_class in (StateClass.APPEND, never, once)
        case Once():
            return told.state_class in (once, never)
        case Static():
            return told.state_class is never
        case _:
            assert_never(write)
