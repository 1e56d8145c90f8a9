"""The caches that `transformers` keeps for a language model, as state: four kinds of layer, and how each is written.

| layer | keys and values | beside them | written |
|---|---|---|---|
| grows | [1, heads, rows, width], None at first | | made anew by concatenation |
| slides | as above, at most the window's rows | an int: tokens seen | made anew by concatenation |
| static | [1, heads, capacity, width], the first rows used | int64 []: rows used | in place, by index |
| static, slides | [1, heads, window, width] | int64 [] and an int: tokens seen | in place; rolled once full |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from worldline.errors import BadValue
from worldline.schema.inventory import Free, Kind, Realloc, Rule, WriteRule
from worldline.worlds.protocol import Memory, Partial, Tree

LAYER_OF_KIND: Final[Mapping[str, str]] = {
    "dynamic": "DynamicLayer",
    "sliding": "DynamicSlidingWindowLayer",
    "static": "StaticLayer",
    "static-sliding": "StaticSlidingWindowLayer",
}
"""What the option `cache` names -> the class of every layer."""


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """How sessions keep a model's keys and values. `capacity` rows at most in a static layer.

    `heads`: (heads, width of keys, width of values) of each layer.
    """

    kind: str
    capacity: int
    heads: Sequence[tuple[int, int, int]]

    @property
    def static(self) -> bool:
        return self.kind.startswith("static")

    @property
    def slides(self) -> bool:
        """Whether layers forget by themselves."""
        return self.kind.endswith("sliding")

    def rules(self) -> tuple[Rule, ...]:
        """A block writes as many rows as there are tokens in it, which depend on the action: no fixed shift."""
        write: WriteRule = Free() if self.static else Realloc()
        return (
            Rule("layers/*/seen*", Kind.AUX, Free()),
            Rule("layers/*", Kind.CACHE, write),
            Rule("ids", Kind.CACHE, Realloc()),
            Rule("*", Kind.AUX, Free()),
        )


def check_layers(cache: Any, kind: str) -> None:
    """Raises `BadValue` where this model's layers are not of the kind that the option `cache` names."""
    expected = LAYER_OF_KIND[kind]
    others = sorted({type(layer).__name__ for layer in cache.layers} - {expected})
    if others or not cache.layers:
        raise BadValue(
            f"cache={kind} keeps layers of the kind {expected}, and this model keeps {', '.join(others) or 'none'}",
            cache=kind,
        )


def prepare(cache: Any, spec: CacheSpec, memory: Memory) -> Any:
    """A new session's cache. Static layers get their tensors from the session's memory, once for all."""
    if not spec.static:
        return cache
    for i, (layer, (heads, key_width, value_width)) in enumerate(zip(cache.layers, spec.heads, strict=True)):
        shape = (1, heads, layer.max_cache_len)
        keys = memory.zeros(f"layers/{i}/k", (*shape, key_width), torch.float32)
        _bind_static(layer, keys, memory.zeros(f"layers/{i}/v", (*shape, value_width), torch.float32))
    return cache


def cache_tree(cache: Any) -> list[Tree]:
    """What is state of each layer. All layers have seen as many tokens as the first, so it alone tells where the model
    need not read it of each.
    """
    return [_layer_tree(layer, i == 0) for i, layer in enumerate(cache.layers)]


def restore_cache(cache: Any, saved: Sequence[Any]) -> None:
    """Makes a fresh cache what `cache_tree` told."""
    for layer, of_layer in zip(cache.layers, saved, strict=True):
        _restore_layer(layer, of_layer, saved[0])


def _layer_tree(layer: Any, first: bool) -> Tree:
    match type(layer).__name__:
        case "DynamicSlidingWindowLayer":
            return {"k": layer.keys, "v": layer.values} | ({"seen": layer.cumulative_length} if first else {})
        case "StaticLayer":
            rows = int(layer.cumulative_length)
            return _used(layer, rows) | {"seen": layer.cumulative_length}
        case "StaticSlidingWindowLayer":
            seen = layer.cumulative_length_int
            full = seen >= layer.max_cache_len  # from then on the tensor is not read any more
            rows = min(seen, layer.max_cache_len)
            return _used(layer, rows) | {"seen": None if full else layer.cumulative_length, "seen_int": seen}
        case _:
            return {"k": layer.keys, "v": layer.values}


def _restore_layer(layer: Any, saved: Any, first: Any) -> None:
    match type(layer).__name__:
        case "DynamicSlidingWindowLayer":
            if saved["k"] is not None:
                layer.lazy_initialization(saved["k"], saved["v"])
                layer.keys, layer.values = saved["k"], saved["v"]
            layer.cumulative_length = first["seen"]
        case "StaticLayer":
            _bind_static(layer, saved["k"].tensor, saved["v"].tensor)
            layer.cumulative_length = saved["seen"]
        case "StaticSlidingWindowLayer":
            _bind_static(layer, saved["k"].tensor, saved["v"].tensor)
            if saved["seen"] is not None:
                layer.cumulative_length = saved["seen"]
            layer.cumulative_length_int = saved["seen_int"]
        case _:
            if saved["k"] is not None:
                layer.update(saved["k"], saved["v"])


def forget(layer: Any, kept: int, over: int) -> None:
    """Drops `over` rows behind the first `kept`, of a layer that does not slide by itself."""
    if type(layer).__name__ == "StaticLayer":
        rows = int(layer.cumulative_length)
        for tensor in (layer.keys, layer.values):
            tensor[:, :, kept : rows - over] = tensor[:, :, kept + over : rows].clone()
        layer.cumulative_length.sub_(over)
    else:
        layer.keys = torch.cat([layer.keys[..., :kept, :], layer.keys[..., kept + over :, :]], dim=-2)
        layer.values = torch.cat([layer.values[..., :kept, :], layer.values[..., kept + over :, :]], dim=-2)


def tidy(layer: Any) -> None:
    """A window that was cut out of a longer tensor becomes one of its own: what it forgot is no state."""
    if type(layer).__name__ == "DynamicSlidingWindowLayer" and layer.is_initialized:
        layer.keys, layer.values = layer.keys.contiguous(), layer.values.contiguous()


def _used(layer: Any, rows: int) -> dict[str, Tree]:
    return {"k": Partial(layer.keys, 2, rows), "v": Partial(layer.values, 2, rows)}


def _bind_static(layer: Any, keys: torch.Tensor, values: torch.Tensor) -> None:
    """What the layer's own initialisation sets, over tensors that are there already."""
    layer.keys, layer.values = keys, values
    layer.device = keys.device
    layer.batch_size, layer.num_heads = keys.shape[:2]
    layer.k_head_dim, layer.v_head_dim = keys.shape[-1], values.shape[-1]
    layer.is_initialized = True
