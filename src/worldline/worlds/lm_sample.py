"""Keys and values of a trained language model, as octets: what codecs are measured on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from worldline.errors import BadValue
from worldline.worlds.lm_cache import CacheSpec
from worldline.worlds.lm_weights import load_weights

KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def cache_octets(text: str, tokens: int, kind: str = "bf16") -> np.ndarray:
    """The cache of SmolLM2 after `tokens` of `text`, cast to `kind`; uint8, layer by layer, keys before values.

    Raises `MissingExtra`, and `BadValue` for a kind that is none of `KINDS`.
    """
    if kind not in KINDS:
        raise BadValue(f"a cache is cast to {' or '.join(KINDS)}, not to {kind[:40]!r}")
    weights = load_weights("smollm2", "sdpa")
    ids = torch.tensor(weights.encode(text)[:tokens])
    cache: Any = weights.new_cache(CacheSpec("dynamic", len(ids), weights.heads))
    with torch.no_grad():
        weights.run(ids, torch.arange(len(ids)), cache)
    tensors = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    return np.concatenate([each.to(KINDS[kind]).contiguous().view(torch.uint8).reshape(-1).numpy() for each in tensors])
