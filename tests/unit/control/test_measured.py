"""Reserves are made of the least of the last rates, and a grant's pace is not taken for the line's."""

from __future__ import annotations

import pytest

from worldline.control.measured import WINDOW, Least, line_rate
from worldline.errors import BadValue


def test_the_least_of_the_last_few_counts_and_what_is_older_is_forgotten():
    least = Least[str]()
    assert least.of("a") is None
    for value in (3.0, 1.0, 2.0):
        least.add("a", value)
    assert least.of("a") == 1.0
    for _ in range(WINDOW - 1):
        least.add("a", 5.0)
    assert least.of("a") == 2.0
    assert least.of("b") is None


def test_a_value_that_is_none_is_refused():
    with pytest.raises(BadValue):
        Least[str]().add("a", 0.0)


@pytest.mark.parametrize(("measured", "line"), [(95.0, 200.0), (90.0, 200.0), (80.0, 80.0), (300.0, 200.0)])
def test_only_a_transfer_that_fell_short_of_its_grant_says_what_the_line_carries(measured, line):
    assert line_rate(measured, granted_bytes_per_s=100.0, line_bytes_per_s=200.0) == line
