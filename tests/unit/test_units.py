"""Quantities as people write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline import units
from worldline.errors import BadValue


@pytest.mark.parametrize(
    ("text", "count"),
    [("1.67GB", 1_670_000_000), ("64MiB", 64 * 2**20), ("256MB", 256_000_000), ("12", 12), ("1 kB", 1000), ("0B", 0)],
)
def test_sizes_are_exact_integers(text: str, count: int) -> None:
    assert units.parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1MB", "1.5B", "1 XB", "nan", "1e400GB", "1GB/s", "ten"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        units.parse_bytes(text)


@pytest.mark.parametrize(("text", "seconds"), [("400ms", 0.4), ("0s", 0.0), ("57 ms", 0.057), ("1min", 60.0)])
def test_times(text: str, seconds: float) -> None:
    assert units.parse_seconds(text) == pytest.approx(seconds, rel=1e-15)


def test_a_time_without_a_unit_is_refused_and_the_units_are_named() -> None:
    with pytest.raises(BadValue, match="one of s, ms"):
        units.parse_seconds("400")


@pytest.mark.parametrize(
    ("text", "rate"), [("1Gbit", 1.25e8), ("5.0GB/s", 5e9), ("0.93GB/s", 9.3e8), ("200Mbit/s", 2.5e7)]
)
def test_rates_are_bytes_a_second(text: str, rate: float) -> None:
    assert units.parse_rate(text) == pytest.approx(rate, rel=1e-15)


@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_a_typed_error(text: str) -> None:
    for parse in (units.parse_bytes, units.parse_seconds, units.parse_rate):
        with contextlib.suppress(BadValue):
            assert parse(text) >= 0


def test_what_people_read_back() -> None:
    assert units.format_bytes(1_670_123_520) == "1.67 GB"
    assert units.format_bytes(512) == "512 B"
    assert units.format_seconds(0.0188) == "18.8 ms"
    assert units.format_seconds(2.5) == "2.5 s"
    assert units.format_seconds(4e-6) == "4 us"
