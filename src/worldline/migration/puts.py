"""Rows of a round on their way into the target's arena, and which leaves can be digested once they are there."""

from __future__ import annotations

from collections import deque

from worldline.errors import Malformed
from worldline.migration.grains import Step
from worldline.schema.rows import Copy


class Puts:
    """Steps are put in place in the order in which they came. A copy and the rows after it are one tensor's: its leaves
    are digested when the last of them is there, and not once for each.
    """

    def __init__(self) -> None:
        self._copied: set[int] = set()
        self._steps: deque[tuple[int, set[int], bool]] = deque()
        """Ordered and not yet in place: ticket, leaves, and whether it is the last of its tensor."""
        self._there: set[int] = set()
        """Leaves of the tensor that is being put in place."""

    @property
    def pending(self) -> bool:
        """Whether a step is not yet in place."""
        return bool(self._steps)

    def order(self, ticket: int, step: Step, leaves: set[int]) -> None:
        """A step that writes `leaves` is on its way. Raises `Malformed` for a second copy of one view in a round: a
        few octets could keep a host busy for ever.
        """
        if isinstance(step, Copy):
            if step.view in self._copied:
                raise Malformed(f"a second copy of view {step.view} in one round")
            self._copied.add(step.view)
            self.close()
        self._steps.append((ticket, leaves, False))

    def close(self) -> None:
        """No more steps of this tensor."""
        if self._steps:
            ticket, leaves, _ = self._steps.pop()
            self._steps.append((ticket, leaves, True))

    def done(self, ticket: int) -> tuple[set[int], list[int]]:
        """A step is in place. Returns the leaves that it wrote, and those that may be digested now: the leaves of a
        whole tensor that no step on its way writes.
        """
        due, leaves, last = self._steps.popleft()
        assert due == ticket, "steps are put in place in their order"
        self._there |= leaves
        if not last:
            return leaves, []
        ready, self._there = self._there, set()
        return leaves, sorted(ready.difference(*(on_their_way for _, on_their_way, _ in self._steps)))
