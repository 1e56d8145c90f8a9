"""Clocks."""

from __future__ import annotations

import pytest

from worldline.clock import ManualClock, SystemClock


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(start_s=5.0, wall_start_s=100.0)
    clock.advance(1.5)
    assert (clock.monotonic_s(), clock.wall_s()) == (6.5, 101.5)


def test_no_clock_goes_back() -> None:
    with pytest.raises(ValueError, match="back"):
        ManualClock().advance(-1)
    clock = SystemClock()
    assert clock.monotonic_s() <= clock.monotonic_s()
