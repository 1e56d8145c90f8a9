"""The controller's machine for one change of owner: move, park or resume. Words are in `control.order`.

Invariants
  `SwapOwner` is asked at most once, and only for a receipt whose two roots are equal.
  Before the swap an order can only be given up: target discarded, source thawed, ABORTED journalled first.
  After the swap it can only be completed: nothing thaws the source any more.
  An unknown outcome of the swap is read from the record, never assumed.
  A handed-over arena is activated only after its source is fenced or dead.
"""

from __future__ import annotations

from worldline.control.order import Command, Event, Order


class Handoff:
    """`handle` is the only way in."""

    def __init__(self, order: Order, started_at_s: float) -> None:
        raise NotImplementedError

    @property
    def story(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def wake_at_s(self) -> float | None:
        raise NotImplementedError

    def handle(self, event: Event, now_s: float) -> list[Command]:
        raise NotImplementedError
