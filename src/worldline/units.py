"""Quantities as a person writes them and as the code holds them: bytes, seconds, bytes a second.

Decimal prefixes are powers of 1000 (`1.67GB`), binary ones powers of 1024 (`64MiB`); `Gbit` is a link's unit,
divided by 8.
"""

from __future__ import annotations

import math
import re

from worldline.errors import BadValue

_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*\Z")

_BYTES = {"": 1, "B": 1}
_BYTES |= {f"{p}B": 1000**n for n, p in enumerate(("k", "M", "G", "T"), 1)} | {"KB": 1000}
_BYTES |= {f"{p}iB": 1024**n for n, p in enumerate(("K", "M", "G", "T"), 1)}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_RATES: dict[str, float] = {f"{unit}/s": float(size) for unit, size in _BYTES.items() if unit}
_RATES |= {f"{p}bit{s}": 1000**n / 8 for n, p in enumerate(("", "k", "M", "G", "T")) for s in ("", "/s")}


def _parse(text: str, table: dict[str, float] | dict[str, int], what: str) -> float:
    match = _NUMBER.match(text)
    if match is None or match[2] not in table:
        known = ", ".join(unit for unit in table if unit)
        raise BadValue(f"{text!r} is not {what}; write a number and one of {known}", text=text)
    value = float(match[1]) * table[match[2]]
    if not math.isfinite(value):
        raise BadValue(f"{text!r} is too large for {what}", text=text)
    return value


def parse_bytes(text: str) -> int:
    """`'1.67GB'` -> 1670000000. Raises `BadValue` for anything else, also for a fraction of a byte."""
    value = _parse(text, _BYTES, "a size")
    if value != round(value):
        raise BadValue(f"{text!r} is not a whole number of bytes", text=text)
    return round(value)


def parse_seconds(text: str) -> float:
    """`'400ms'` -> 0.4. A number without a unit is refused: some take it for milliseconds, some for seconds."""
    return _parse(text, _SECONDS, "a time")


def parse_rate(text: str) -> float:
    """`'5.0GB/s'` -> 5e9 bytes a second; `'1Gbit'` -> 1.25e8."""
    return _parse(text, _RATES, "a rate")


def format_bytes(count: int) -> str:
    """1670123520 -> `'1.67 GB'`."""
    for size, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 1000 * size else f"{count / size:.0f} {unit}"
    return f"{count} B"


def format_seconds(seconds: float) -> str:
    """0.0188 -> `'18.8 ms'`."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} us"
