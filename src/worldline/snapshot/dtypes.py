"""The dtypes that state may have: torch's names and element sizes in bytes. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RNG: Final = "rng"
"""The state of a generator, one byte an element."""

ITEM_BYTES: Final[Mapping[str, int]] = {
    RNG: 1,
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
