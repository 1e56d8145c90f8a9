"""Latents as pictures, for adapters whose decoder keeps no state and is not loaded."""

from __future__ import annotations

import numpy as np
import torch


def latent_picture(latents: torch.Tensor, scale: int) -> np.ndarray:
    """Three of the latents' channels as colours, each element `scale` pixels wide and high.

    [1, frames, channels, height, width] become uint8 [frames, scale height, scale width, 3].
    """
    colours = ((latents[0, :, :3].permute(0, 2, 3, 1) + 2) * 64).clamp(0, 255).to(torch.uint8).numpy()
    return colours.repeat(scale, axis=1).repeat(scale, axis=2)
