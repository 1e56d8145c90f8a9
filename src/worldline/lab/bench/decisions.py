"""`worldline bench decisions`: how many admission decisions a second one core makes, with the calendar full."""

from __future__ import annotations

from worldline.lab.bench.frame import Finding, Trial
from worldline.lab.experiments.overload import crowded, decisions_per_s

BAR_PER_S = 20_000.0
MOVES = 1000


def decisions(trial: Trial, *, count: int = 10_000) -> Finding:
    """Decisions a second over the bar of 20,000, with 1,000 accepted moves in the calendar.

    Half are accepted and withdrawn again, half are refused with the reason and the earliest time. Beside it the same
    with an empty calendar, and with all moves on two hosts.

    Parameters
    ----------
    trial: Trial
        The run.
    count: int
        Decisions a sample.
    """
    full, few, empty = crowded(MOVES), crowded(MOVES, hosts=2), crowded(0)
    samples = trial.interleave(
        {
            "1,000 moves on 16 hosts": lambda: decisions_per_s(full, 16, count, trial.clock),
            "1,000 moves on 2 hosts": lambda: decisions_per_s(few, 2, count, trial.clock),
            "no moves on 16 hosts": lambda: decisions_per_s(empty, 16, count, trial.clock),
        },
        "decisions/s",
    )
    ratio = samples.medians["1,000 moves on 16 hosts"] / BAR_PER_S
    return Finding(ratio, f"decisions a second with {MOVES} accepted moves over {BAR_PER_S:,.0f}", samples)
