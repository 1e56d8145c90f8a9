"""Small parts under the names by which engines import them from large packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


class Mlp(torch.nn.Module):
    """Two linear layers, with timm's names for them."""

    def __init__(
        self, in_features: int, hidden_features: int, act_layer: Callable[[], torch.nn.Module] = torch.nn.GELU, **_: Any
    ) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(in_features, hidden_features)
        self.act = act_layer()
        self.fc2 = torch.nn.Linear(hidden_features, in_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc2(self.act(self.fc1(x)))
        return out


def to_2tuple(value: int | tuple[int, int]) -> tuple[int, int]:
    """A side as height and width."""
    return value if isinstance(value, tuple) else (value, value)


class TensorDict(dict[str, torch.Tensor]):
    """Tensors by name; the size of a batch, which the original checks, is not kept."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], batch_size: object = None) -> None:
        super().__init__(tensors)
