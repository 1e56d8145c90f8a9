"""Keys and values of a trained language model, as octets: what codecs are measured on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from worldline.worlds.lm_cache import CacheSpec
from worldline.worlds.lm_weights import load_weights


def cache_octets(text: str, tokens: int) -> np.ndarray:
    """The cache of SmolLM2 after `tokens` of `text`, cast to bfloat16; uint8, layer by layer, keys before values.

    Raises `MissingExtra`.
    """
    weights = load_weights("smollm2", "sdpa")
    ids = torch.tensor(weights.encode(text)[:tokens])
    cache: Any = weights.new_cache(CacheSpec("dynamic", len(ids), weights.heads))
    with torch.no_grad():
        weights.run(ids, torch.arange(len(ids)), cache)
    tensors = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    return np.concatenate(
        [each.to(torch.bfloat16).contiguous().view(torch.uint8).reshape(-1).numpy() for each in tensors]
    )
