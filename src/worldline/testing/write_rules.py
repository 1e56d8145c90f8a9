"""Whether one block rewrote an entry as its rule says. Compares bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, assert_never

import numpy as np
import torch

from worldline.schema.inventory import Append, Free, Kind, Once, Realloc, Ring, Roll, Rule, Static
from worldline.worlds.protocol import Partial
from worldline.worlds.scratch import Leaf, leaf_bytes

_Judge: TypeAlias = Callable[[np.ndarray, np.ndarray], "str | None"]


def kept(leaf: Leaf) -> Leaf:
    """A leaf as it is now, independent of what the engine does next: the valid part alone."""
    match leaf:
        case torch.Tensor():
            return leaf.detach().clone()
        case Partial(tensor=tensor, dim=dim, stop=stop):
            return tensor.detach().narrow(dim, 0, stop).clone()
        case torch.Generator():
            return leaf.clone_state()
        case _:
            return leaf


def broken(rule: Rule, before: Leaf, after: Leaf, writes: int) -> str | None:
    """What a block did against the rule, as half a sentence; None where it kept it.

    `writes`: how often blocks changed this entry before.
    """
    if leaf_bytes(before) == leaf_bytes(after):
        return None
    write = Static() if rule.kind is Kind.CONST and not isinstance(rule.write, Once) else rule.write
    match write:
        case Static():
            return "was written after open"
        case Once():
            return "was written a second time" if writes else None
        case Realloc() | Free():
            return None
        case Roll(dim=dim, shift=shift, keep=keep):
            return _rows(before, after, dim, lambda old, new: _rolled(old, new, shift, keep))
        case Ring(dim=dim, slot=slot):
            return _rows(before, after, dim, lambda old, new: _ringed(old, new, slot))
        case Append(dim=dim):
            return _rows(before, after, dim, _appended)
        case _:
            assert_never(write)


def _rows(before: Leaf, after: Leaf, dim: int, judge: _Judge) -> str | None:
    if not (isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor)):
        return None if before is None else "is no tensor, and its rule speaks of rows"
    old, new = before.movedim(dim, 0), after.movedim(dim, 0)
    if old.dtype != new.dtype or old.shape[1:] != new.shape[1:]:
        return "changed its dtype or the shape of its rows"
    return judge(_raw(old), _raw(new))


def _raw(rows: torch.Tensor) -> np.ndarray:
    """[rows, bytes]."""
    width = math.prod(rows.shape[1:]) * rows.itemsize
    raw: np.ndarray = rows.contiguous().reshape(-1).view(torch.uint8).numpy().reshape(len(rows), width)
    return raw


def _rolled(old: np.ndarray, new: np.ndarray, shift: int, keep: int) -> str | None:
    """Rolled, or still filling: new rows behind old ones that stay."""
    if len(new) != len(old):
        return _appended(old, new)
    rows = len(new)
    rolled = np.array_equal(new[:keep], old[:keep]) and np.array_equal(new[keep : rows - shift], old[keep + shift :])
    changed = np.flatnonzero((old != new).any(1))
    if rolled or changed[-1] - changed[0] < shift:
        return None
    return f"did not roll by {shift} rows keeping {keep}: rows {changed[0]} to {changed[-1]} of {rows} changed"


def _ringed(old: np.ndarray, new: np.ndarray, slot: int) -> str | None:
    if len(new) != len(old):
        return f"is a ring and changed its length from {len(old)} to {len(new)} rows"
    changed = np.flatnonzero((old != new).any(1))
    if changed[0] // slot == changed[-1] // slot:
        return None
    return f"had rows {changed[0]} to {changed[-1]} changed, which is more than one slot of {slot}"


def _appended(old: np.ndarray, new: np.ndarray) -> str | None:
    if len(new) < len(old):
        return f"lost {len(old) - len(new)} rows"
    if len(old) and not np.array_equal(old, new[: len(old)]):
        return f"had row {np.flatnonzero((old != new[: len(old)]).any(1))[0]} changed, which was written before"
    return None
