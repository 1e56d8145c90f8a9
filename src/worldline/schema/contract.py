"""What a session was promised when it was opened (mission row M1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from worldline.errors import BadValue


class Tier(StrEnum):
    """How exact a continuation must be.

    T0: every byte of state and frame equals what an unmoved session would have had. T1: the state installed is still
    byte-equal to the source's, but the target may be another plan, if the pair was qualified within the readout bound.
    """

    T0 = "T0"
    T1 = "T1"


@dataclass(frozen=True, slots=True)
class Contract:
    """Tier, pause bound, completion deadline and, for T1, the readout bound.

    The paper's readout horizon H is the case in which the two times are equal: `Contract.horizon(0.4)`.
    """

    tier: Tier = Tier.T0
    pause_bound_s: float = 1.0
    """The longest time for which no block may be generated because of a move."""
    completion_deadline_s: float = 30.0
    """From the start of a move to its commit."""
    readout_psnr_db_min: float | None = None
    """T1 only: the worst frame of the pair's qualification must not be below it."""

    def __post_init__(self) -> None:
        for name in ("pause_bound_s", "completion_deadline_s"):
            value: float = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadValue(f"{name} must be a positive number of seconds, not {value!r}")
        if self.completion_deadline_s < self.pause_bound_s:
            raise BadValue("completion_deadline_s is below pause_bound_s: no move could use the whole pause")
        if (self.readout_psnr_db_min is None) == (self.tier is Tier.T1):
            raise BadValue("tier T1 needs readout_psnr_db_min, and tier T0 has none")

    @classmethod
    def horizon(cls, seconds: float) -> Contract:
        """The paper's contract: T0, pause bound and completion deadline both H."""
        return cls(pause_bound_s=seconds, completion_deadline_s=seconds)
