"""The codecs by name and by number."""

from __future__ import annotations

from functools import cache

from worldline.codecs.exponents import Exponents
from worldline.codecs.granules import Raw, Window, Zeros
from worldline.codecs.protocol import Codec
from worldline.errors import BadValue, Malformed, MissingExtra

CODECS: dict[str, type[Codec]] = {cls.name: cls for cls in (Raw, Zeros, Window, Exponents)}


@cache
def codec(name: str) -> Codec:
    """Raises `BadValue`, which lists the known ones, and `MissingExtra`."""
    if name not in CODECS:
        raise BadValue(f"there is no codec {name[:40]!r}; there are {', '.join(CODECS)}")
    return CODECS[name]()


def codec_of(number: int) -> Codec:
    """The codec of a number that was received. Raises `Malformed` and `MissingExtra`."""
    for name, cls in CODECS.items():
        if cls.number == number:
            return codec(name)
    raise Malformed(f"there is no codec number {number}")


def available() -> tuple[str, ...]:
    """The names of those whose extras are installed: what a side may announce that it decodes."""
    names = []
    for name in CODECS:
        try:
            codec(name)
        except MissingExtra:
            continue
        names.append(name)
    return tuple(names)
