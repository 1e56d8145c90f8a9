"""Commands made of functions that measure: a function's own options, then those that all of its kind share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar, cast

Printing = TypeVar("Printing")


def command_of(
    measure: Callable[..., object], printing: Printing, run: Callable[[dict[str, object], Printing], int]
) -> Callable[..., int]:
    """A command with the options of `measure` after its first parameter, then those of `printing`'s type.

    It calls `run` with the former by name and the latter as one value. Its help is the docstring of `measure`.
    """
    signature = inspect.signature(measure, eval_str=True)
    own = list(signature.parameters.values())[1:]
    kind = inspect.Parameter("printing", inspect.Parameter.KEYWORD_ONLY, default=printing, annotation=type(printing))

    def command(**given: object) -> int:
        shared = cast(Printing, given.pop("printing", printing))
        return run({each.name: given.get(each.name, each.default) for each in own}, shared)

    command.__doc__ = measure.__doc__
    parameters = [*own, kind]
    command.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": int}
    command.__signature__ = signature.replace(parameters=parameters, return_annotation=int)  # type: ignore[attr-defined]
    return command
