"""From an engine's tree to references and a list of tensors, in canonical order: dict keys sorted, lists by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch

from worldline.errors import LayoutRefused
from worldline.schema.inventory import Free, Kind, Rule
from worldline.snapshot.dtypes import ITEM_BYTES, RNG
from worldline.snapshot.tree import DEPTH_MAX, DerivedNode, Node, Partial, Ref, Tree, TupleNode, join

TORCH_DTYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, name) for name in ITEM_BYTES if name != RNG and hasattr(torch, name)
}
_NAMES: Mapping[torch.dtype, str] = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_UNRULED = Rule("*", Kind.AUX, Free())


@dataclass(frozen=True, slots=True)
class Found:
    """One tensor of the tree. `valid` is its part that is state, the tensor itself where all of it is."""

    path: str
    dtype: str
    tensor: torch.Tensor
    valid: torch.Tensor
    rule: Rule


class Walk:
    """One pass over a tree. Afterwards `node` is the tree with references and `found` what they refer to."""

    def __init__(self, tree: Tree, rules: Rules) -> None:
        """Raises `LayoutRefused` for what a tree may not hold."""
        self.found: list[Found] = []
        self._rules = rules
        # Keyed by id: valid for the pass, because the generators are held by the list beside the index.
        self._generators: dict[int, tuple[torch.Generator, int]] = {}
        if not isinstance(tree, Mapping):
            raise LayoutRefused("a state's tree is a dict at the top")
        self.node = self._visit(tree, "", DEPTH_MAX)

    def _visit(self, tree: Tree, path: str, depth_left: int) -> Node:
        if depth_left < 0:
            raise LayoutRefused(f"the state's tree is nested more than {DEPTH_MAX} deep at {path[:200]!r}", path=path)
        if path and self._rules.of(path).kind is Kind.DERIVED:
            return DerivedNode()
        match tree:
            case torch.Tensor():
                return self._add(path, tree, tree)
            case Partial():
                return self._add_partial(path, tree)
            case torch.Generator():
                return self._add_generator(path, tree)
            case Mapping():
                return self._visit_mapping(tree, path, depth_left - 1)
            case _ if type(tree) in (bool, int, str, type(None)):
                assert tree is None or isinstance(tree, (int, str))
                return tree
            case list() | tuple() if type(tree) in (list, tuple):
                items = [self._visit(item, join(path, str(i)), depth_left - 1) for i, item in enumerate(tree)]
                return items if type(tree) is list else TupleNode(items)
            case _:
                raise LayoutRefused(
                    f"the state holds a {type(tree).__name__} at {path!r}: {_advice(tree)}",
                    path=path,
                    type=type(tree).__name__,
                )

    def _visit_mapping(self, tree: Mapping[str, Tree], path: str, depth_left: int) -> Node:
        strangers = [key for key in tree if type(key) is not str]
        if strangers:
            raise LayoutRefused(f"the dict at {path!r} has a key that is no string: {strangers[0]!r:.80}", path=path)
        nodes = {key: self._visit(tree[key], join(path, key), depth_left) for key in sorted(tree)}
        return {key: node for key, node in nodes.items() if not isinstance(node, DerivedNode)}

    def _add(self, path: str, tensor: torch.Tensor, valid: torch.Tensor) -> Ref:
        self.found.append(Found(path, self._check(path, tensor), tensor, valid, self._rules.of(path)))
        return Ref(len(self.found) - 1)

    def _add_partial(self, path: str, partial: Partial) -> Ref:
        tensor = partial.tensor
        if not isinstance(tensor, torch.Tensor):
            raise LayoutRefused(f"the valid part at {path!r} is not of a tensor", path=path)
        self._check(path, tensor)
        dim = partial.dim + tensor.dim() if partial.dim < 0 else partial.dim
        if not 0 <= dim < tensor.dim() or not 0 <= partial.stop <= tensor.shape[dim]:
            raise LayoutRefused(
                f"{path!r} can't have {partial.stop} valid rows along dimension {partial.dim}", path=path
            )
        ref = self._add(path, tensor, tensor.detach().narrow(dim, 0, partial.stop))
        return Ref(ref.view, valid=(dim, partial.stop))

    def _add_generator(self, path: str, generator: torch.Generator) -> Ref:
        if generator.device.type != "cpu":
            raise LayoutRefused(f"the generator at {path!r} is on {generator.device}, not on the CPU", path=path)
        known = self._generators.get(id(generator))
        if known is None:
            state = generator.get_state()
            known = (generator, len(self.found))
            self.found.append(Found(path, RNG, state, state, self._rules.of(path)))
            self._generators[id(generator)] = known
        return Ref(known[1], generator=True)

    def _check(self, path: str, tensor: torch.Tensor) -> str:
        name = _NAMES.get(tensor.dtype)
        why = None
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            why = f"is a {type(tensor).__name__}"
        elif tensor.device.type != "cpu":
            why = f"is on {tensor.device}, not on the CPU"
        elif tensor.layout != torch.strided:
            why = f"has the layout {tensor.layout}"
        elif name is None:
            why = f"has the dtype {tensor.dtype}, which no other host is known to read"
        elif tensor.is_conj() or tensor.is_neg():
            why = "is a lazy conjugate or negation; resolve it"
        elif tensor.numel() and tensor.data_ptr() == 0:
            why = "has no memory"
        if why is not None or name is None:
            raise LayoutRefused(f"the tensor at {path!r} {why}", path=path)
        return name


class Rules:
    """Rules with a memory: a path is matched once, not once a block."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """The first rule that matches counts."""
        self.rules = tuple(rules)
        self._known: dict[str, Rule] = {}

    def of(self, path: str) -> Rule:
        """The rule of an entry; one that none names is `AUX` and may be rewritten anywhere."""
        rule = self._known.get(path)
        if rule is None:
            rule = next((rule for rule in self.rules if fnmatchcase(path, rule.pattern)), _UNRULED)
            self._known[path] = rule
        return rule


def _advice(value: object) -> str:
    match value:
        case float() | complex():
            return "put it in a float64 tensor, where its bytes are exact"
        case tuple() | list() | int() | str():
            return "a subclass would not come back as what it was; use the plain type"
        case _:
            return "a tree holds dicts, lists, tuples, tensors, generators, ints, bools, strings and None"
