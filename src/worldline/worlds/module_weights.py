"""Weights of a torch module: drawn, for an engine whose own aren't here, and digested."""

from __future__ import annotations

import math

import blake3
import numpy as np
import torch


@torch.no_grad()
def draw_weights(module: torch.nn.Module, seed: int, kept: tuple[str, ...] = ()) -> None:
    """Fills every parameter, in the order of their names: matrices and kernels evenly with variance 1/fan-in, gains 1,
    biases 0. Those whose names end in one of `kept` stay as they are.

    Drawn by numpy, from integers: torch's draws depend on the CPU's kernels, and equal weights are wanted on all.
    """
    chance = np.random.default_rng(seed)
    for name, weight in sorted(module.named_parameters()):
        if name.endswith(kept):
            continue
        fan_in = math.prod(weight.shape[1:])
        if fan_in > 1:
            drawn = chance.integers(-1024, 1025, weight.shape, dtype=np.int16)
            weight.copy_(torch.from_numpy(drawn)).mul_(math.sqrt(3 / fan_in) / 1024)
        else:
            weight.fill_(0.0 if name.endswith("bias") else 1.0)


def digest_weights(*modules: torch.nn.Module) -> str:
    """BLAKE3-256 (hex) over names, dtypes, shapes and bytes of all parameters and persistent buffers."""
    digest = blake3.blake3()
    for module in modules:
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            digest.update(memoryview(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()
