"""Torch's attention under the names by which engines ask for flash-attn, where that package is not.

Layout: queries [batch, rows, heads, width], keys and values alike; what is returned too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **unused: Any) -> torch.Tensor:
    """Every query sees every key. Computed in the dtype of the values."""
    queries, keys, values = (tensor.to(v.dtype).transpose(1, 2) for tensor in (q, k, v))
    return F.scaled_dot_product_attention(queries, keys, values).transpose(1, 2)


def flash_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **unused: Any) -> torch.Tensor:
    """As `flash_attn_func`, in the dtype of the queries."""
    return flash_attn_func(q, k, v).to(q.dtype)


attention = flash_attention
