"""The one JSON text of a value: what is digested, compared and signed (docs/format.md)."""

from __future__ import annotations

import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """Sorted keys, no white space, ASCII; a float as the shortest text that reads the same. Raises `ValueError` for
    NaN and infinity.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")
