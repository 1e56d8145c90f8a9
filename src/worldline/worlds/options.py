"""Options of a world, read once when it is built: what is not known or not possible is refused, never ignored."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from worldline.errors import BadValue
from worldline.worlds.protocol import Options, OptionValue

T = TypeVar("T")


def read_options(world: str, kind: type[T], options: Options) -> T:
    """The dataclass `kind` filled from `options`; its defaults are the world's.

    Raises `BadValue` for a name or a type that does not fit.
    """
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # `kind` is a dataclass type
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise BadValue(
            f"world {world!r} has no option {unknown[0]!r}; it knows {', '.join(known)}", world=world, option=unknown[0]
        )
    given: dict[str, Any] = {name: _fit(world, name, value, known[name].default) for name, value in options.items()}
    return kind(**given)


def _fit(world: str, name: str, value: object, default: object) -> object:
    """`value` as the type of `default`; an int may stand for a float, and text from a command line for either."""
    kind = type(default)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind:
        return value
    if isinstance(value, str):
        try:
            return _from_text(value, kind)
        except ValueError:
            pass
    raise BadValue(f"option {name!r} of world {world!r} is {value!r}, not a {kind.__name__}", world=world, option=name)


def _from_text(text: str, kind: type) -> object:
    if kind is not bool:
        return kind(text)
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


def options_of(pairs: tuple[str, ...]) -> dict[str, OptionValue]:
    """`('bytes=256MB', 'vae=false')` -> `{'bytes': '256MB', 'vae': False}`: ints, floats and booleans where they read
    so.
    """
    options: dict[str, OptionValue] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise BadValue(f"an option is written name=value, not {pair!r}")
        options[name] = _value_of(text)
    return options


def _value_of(text: str) -> OptionValue:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
