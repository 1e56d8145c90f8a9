"""JSON bodies: strictly typed, bounded in bytes and in items, the same both ways."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from worldline.errors import Malformed

ITEMS_MAX = 8 * 1024 * 1024
"""Commas in a body, counted before anything is built from it: `[0,0,0,...` can't grow to many times its size."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""An offset, a size or a number of things; fits a signed 64-bit integer."""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Base of every JSON body. An unknown field is an error, so nothing of a body is skipped unread; a field that is
    `Raw` is read by whoever makes the value of it.
    """


_B = TypeVar("_B", bound=Body)


def encode_json(body: Body, bytes_max: int) -> bytes:
    """The body as JSON, read back as its own type: what is sent can be received. Raises `Malformed`."""
    try:
        data = msgspec.json.encode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError) as error:
        raise Malformed(f"{type(body).__name__} can't be written: {error}") from error
    decode_json(data, type(body), bytes_max)
    return data


def decode_json(data: bytes, cls: type[_B], bytes_max: int) -> _B:
    """One JSON body of a known type, and nothing after it. Raises `Malformed`."""
    if len(data) > bytes_max:
        raise Malformed(f"a JSON body of {len(data)} bytes; at most {bytes_max} are read", nbytes=len(data))
    if data.count(b",") > ITEMS_MAX:
        raise Malformed(f"a JSON body has more than {ITEMS_MAX} items")
    try:
        return msgspec.json.decode(data, type=cls)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Malformed(f"a JSON body breaks the format: {error}") from error
