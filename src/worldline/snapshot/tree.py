"""A session's state as an engine lays it out: what a tree may hold, and its form as bytes.

The *meta* bytes are canonical JSON: sorted keys, no white space, ASCII. None, bools, strings and ints within 64 bits
are themselves, lists are arrays, dicts are objects. Everything else is an object with one key of one `$` and a
letter; a key of the engine's own that starts with `$` gets a second one, so the two never meet:

    {"$t": i}             the tensor of view i
    {"$p": [i, dim, n]}   the tensor of view i, of which the first n rows along dim are state
    {"$g": i}             the generator whose state is view i; the same i again is the same generator
    {"$u": [...]}         a tuple
    {"$i": "-ff"}         an int beyond 64 bits, hexadecimal
    {"$d": 0}             a derived entry that had to keep its place in a list
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from worldline.errors import LayoutRefused, Malformed
from worldline.schema.canonical import canonical_json
from worldline.snapshot.checks import META_BYTES_MAX

if TYPE_CHECKING:
    import torch

DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class Partial:
    """A tensor of which only the first `stop` rows along `dim` are state; the rest is unwritten memory and never
    read.

    It is neither hashed nor moved: after a restore the rest is zero. Where the tensor was allocated from the arena,
    the rest is made zero at each boundary.
    """

    tensor: torch.Tensor
    dim: int
    stop: int


Tree: TypeAlias = (
    "Mapping[str, Tree] | Sequence[Tree] | torch.Tensor | Partial | torch.Generator | int | bool | str | None"
)
"""Nested dicts (string keys), lists and tuples of tensors, generators, ints, bools, strings and None.

Floats are refused: a float that matters belongs in a tensor, where its bytes are exact. Dicts come back with sorted
keys.
"""

Node: TypeAlias = "Mapping[str, Node] | list[Node] | TupleNode | Ref | DerivedNode | int | str | None"
"""A tree with its tensors and generators replaced by references."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to view number `view`. `valid` is (dim, stop) of a `Partial`."""

    view: int
    generator: bool = False
    valid: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TupleNode:
    items: list[Node]


@dataclass(frozen=True, slots=True)
class DerivedNode:
    """Comes back as None."""


def join(path: str, key: str) -> str:
    """The path of an entry below `path`."""
    return f"{path}/{key}" if path else key


def encode_tree(node: Node) -> bytes:
    """The meta bytes. Raises `LayoutRefused` where they would be more than `META_BYTES_MAX`."""
    data = canonical_json(_to_json(node))
    if len(data) > META_BYTES_MAX:
        raise LayoutRefused(
            f"the state's tree takes {len(data)} bytes as JSON, more than {META_BYTES_MAX}", nbytes=len(data)
        )
    return data


def decode_tree(data: bytes) -> Node:
    """The tree of meta bytes. Raises `Malformed` for anything that `encode_tree` would not have written, byte for
    byte.
    """
    if len(data) > META_BYTES_MAX:
        raise Malformed(f"the state's tree takes {len(data)} bytes, more than {META_BYTES_MAX}")
    try:
        node = _from_json(json.loads(data), DEPTH_MAX)
        if encode_tree(node) != data:
            raise Malformed("the state's tree is not written canonically")
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the state's tree can't be read: {error}") from error
    return node


def _to_json(node: Node) -> Any:
    match node:
        case Ref(view=view, generator=True):
            return {"$g": view}
        case Ref(view=view, valid=(dim, stop)):
            return {"$p": [view, dim, stop]}
        case Ref(view=view):
            return {"$t": view}
        case TupleNode(items=items):
            return {"$u": [_to_json(item) for item in items]}
        case DerivedNode():
            return {"$d": 0}
        case list():
            return [_to_json(item) for item in node]
        case None | bool() | str():
            return node
        case int():
            return node if -(2**63) <= node < 2**64 else {"$i": format(node, "x")}
        case _:
            return {f"${key}" if key.startswith("$") else key: _to_json(item) for key, item in node.items()}


def _from_json(value: Any, depth_left: int) -> Node:
    if depth_left < 0:
        raise Malformed(f"the state's tree is nested more than {DEPTH_MAX} deep")
    match value:
        case None | bool() | int() | str():
            return value
        case list():
            return [_from_json(item, depth_left - 1) for item in value]
        case dict():
            if len(value) == 1:
                key, item = next(iter(value.items()))
                if key[:1] == "$" and key[1:2] != "$":
                    return _from_mark(key, item, depth_left)
            if any(key[:1] == "$" and key[1:2] != "$" for key in value):
                raise Malformed("the state's tree has a reserved key among others")
            return {key.removeprefix("$"): _from_json(item, depth_left - 1) for key, item in value.items()}
        case _:
            raise Malformed("the state's tree holds a number that is not an int")


def _from_mark(key: str, item: Any, depth_left: int) -> Node:
    match key, item:
        case "$t", int(view) if _is_index(view):
            return Ref(view)
        case "$g", int(view) if _is_index(view):
            return Ref(view, generator=True)
        case "$p", [int(view), int(dim), int(stop)] if all(map(_is_index, (view, dim, stop))):
            return Ref(view, valid=(dim, stop))
        case "$u", list():
            return TupleNode([_from_json(part, depth_left - 1) for part in item])
        case "$i", str():
            return int(item, 16)
        case "$d", 0:
            return DerivedNode()
        case _:
            raise Malformed(f"the state's tree has a wrong mark {key[:16]!r}")


def _is_index(value: int) -> bool:
    return not isinstance(value, bool) and value >= 0
