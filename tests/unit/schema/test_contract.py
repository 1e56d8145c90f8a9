"""Contracts are whole or refused."""

from __future__ import annotations

import pytest

from worldline.errors import BadValue
from worldline.schema.contract import Contract, Tier


def test_the_papers_horizon_is_both_bounds_equal() -> None:
    assert Contract.horizon(0.4) == Contract(Tier.T0, pause_bound_s=0.4, completion_deadline_s=0.4)


@pytest.mark.parametrize(
    "fields",
    [
        {"pause_bound_s": 0.0},
        {"pause_bound_s": -1.0},
        {"pause_bound_s": float("nan")},
        {"completion_deadline_s": float("inf")},
        {"pause_bound_s": 2.0, "completion_deadline_s": 1.0},
        {"tier": Tier.T1},
        {"tier": Tier.T0, "readout_psnr_db_min": 40.0},
    ],
)
def test_a_contract_that_says_nothing_clear_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(BadValue):
        Contract(**fields)  # type: ignore[arg-type]
