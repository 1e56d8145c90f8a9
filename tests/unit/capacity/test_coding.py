"""When encoding pays: the slowest of encoder, link and decoder, and the pipeline's fill."""

from __future__ import annotations

import pytest

from worldline.capacity.coding import GAIN_MIN, Coding, best_codec, coded_bytes_per_s, gain

GBIT = 125e6
MIB = 1024 * 1024
WINDOW = Coding(1.32, 2e9, 2e9)
EXPONENTS = Coding(1.46, 0.6e9, 1.2e9)
OFFERS = {"window": WINDOW, "exponents": EXPONENTS}


def test_the_slowest_stage_is_the_rate() -> None:
    assert coded_bytes_per_s(GBIT, EXPONENTS) == pytest.approx(1.46 * GBIT)
    assert coded_bytes_per_s(10 * GBIT, EXPONENTS) == 0.6e9
    assert coded_bytes_per_s(40 * GBIT, Coding(1.3, 9e9, 1e9)) == 1e9


@pytest.mark.parametrize(
    ("gbit", "best"), [(1, "exponents"), (2, "exponents"), (5, "window"), (10, "window"), (20, None)]
)
def test_a_slower_link_is_worth_a_slower_codec(gbit: float, best: str | None) -> None:
    assert best_codec(gbit * GBIT, 1000 * MIB, MIB, OFFERS) == best


def test_the_fill_can_eat_the_gain_of_a_short_send() -> None:
    slow = Coding(1.46, 0.3e9, 0.3e9)
    assert gain(GBIT, 1000 * MIB, MIB, slow) > 1.4
    assert gain(GBIT, MIB, MIB, slow) < 1
    assert best_codec(GBIT, MIB, MIB, {"slow": slow}) is None


def test_a_gain_within_what_measuring_gets_wrong_is_none() -> None:
    assert best_codec(GBIT, 1000 * MIB, MIB, {"hardly": Coding(GAIN_MIN, 9e9, 9e9)}) is None


def test_nothing_offered_is_nothing_chosen() -> None:
    assert best_codec(GBIT, MIB, MIB, {}) is None
