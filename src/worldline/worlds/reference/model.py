"""Networks of the reference world: picture encoder, causal picture decoder, block-causal diffusion transformer.

A picture is 64 x 64 palette indices, a latent [16, 8, 8], a frame 4 x 4 tokens. The transformer denoises a block of
three frames at once; each layer attends to the block's own tokens and to the previous block's, whose keys and values
come from a clean pass over what was shown. Keys are kept without positions: a position is added by slot in the window
when they are read, so a session has no horizon. Training and serving run the same layers; only the `Window` that
keeps the keys differs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from worldline.worlds.reference.simulator import ACTIONS, BLOCK_FRAMES, PALETTE, VIEW_PX

COLOURS = len(PALETTE)
LATENT_CHANNELS = 16
LATENT_PX = VIEW_PX // 8
FRAME_TOKENS = (LATENT_PX // 2) ** 2
BLOCK_TOKENS = BLOCK_FRAMES * FRAME_TOKENS
WINDOW_BLOCKS = 2
WINDOW_FRAMES = WINDOW_BLOCKS * BLOCK_FRAMES
WINDOW_TOKENS = WINDOW_BLOCKS * BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the transformer. The first half of the layers also attends to the recent actions."""

    width: int = 160
    layers: int = 4
    head_width: int = 32
    action_heads: int = 4
    action_head_width: int = 16
    stem_width: int = 64

    @property
    def heads(self) -> int:
        return self.width // self.head_width

    @property
    def action_layers(self) -> int:
        return self.layers // 2


class Window(Protocol):
    """Where a forward pass leaves this block's keys and values, and finds the window they belong to."""

    def extend_tokens(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Takes [blocks, 48, heads, width]; returns the window's live k and v, oldest first, and a mask or None."""
        ...

    def extend_actions(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The same for the actions: [blocks, 3, action heads, action head width]."""
        ...


class PictureEncoder(nn.Module):
    """Palette indices [frames, 64, 64] -> latents [frames, 16, 8, 8] of zero mean and unit variance."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.cells = nn.Conv2d(COLOURS, width, 4, stride=4)
        self.mix = nn.Conv2d(width, width, 3, padding=1)
        self.pool = nn.Conv2d(width, LATENT_CHANNELS, 2, stride=2)
        self.register_buffer("mean", torch.zeros(LATENT_CHANNELS, 1, 1))
        self.register_buffer("scale", torch.ones(LATENT_CHANNELS, 1, 1))

    def forward(self, views: Tensor) -> Tensor:
        return (self.raw(views) - self.mean) / self.scale

    def raw(self, views: Tensor) -> Tensor:
        """Latents before standardisation."""
        hot = F.one_hot(views.long(), COLOURS).permute(0, 3, 1, 2).float()
        x = F.gelu(self.cells(hot))
        raw: Tensor = self.pool(x + F.gelu(self.mix(x)))
        return raw


class PictureDecoder(nn.Module):
    """Latents -> palette logits, frame by frame; two convolutions over time remember two frames each (`features`)."""

    MEMORY_FRAMES = 2

    def __init__(self, width: int = 64, cell_width: int = 48) -> None:
        super().__init__()
        taps = self.MEMORY_FRAMES + 1
        self.time_in = nn.Conv2d(taps * LATENT_CHANNELS, width, 1)
        self.space = nn.Conv2d(width, width, 3, padding=1)
        self.time_out = nn.Conv2d(taps * width, width, 1)
        self.to_cells = nn.Conv2d(width, 4 * cell_width, 1)
        self.cells = nn.Conv2d(cell_width, cell_width, 3, padding=1)
        self.to_pixels = nn.Conv2d(cell_width, 16 * COLOURS, 1)

    def forward(self, latents: Tensor, features: list[Tensor | None]) -> tuple[Tensor, list[Tensor]]:
        """Latents [clips, frames, 16, 8, 8] and the last call's features (None: none) to [clips, frames, 16, 64, 64].

        The features returned are newly allocated: [clips, 2, 16, 8, 8] and [clips, 2, 64, 8, 8].
        """
        clips, frames = latents.shape[:2]
        x, kept_in = _taps(latents, features[0])
        x = F.gelu(self.time_in(x))
        x = x + F.gelu(self.space(x))
        y, kept_out = _taps(x.unflatten(0, (clips, frames)), features[1])
        x = x + F.gelu(self.time_out(y))
        x = F.pixel_shuffle(F.gelu(self.to_cells(x)), 2)
        x = x + F.gelu(self.cells(x))
        logits = F.pixel_shuffle(self.to_pixels(x), 4)
        return logits.unflatten(0, (clips, frames)), [kept_in, kept_out]


def _taps(x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Each frame beside its two predecessors, [clips * frames, 3 * channels, h, w], and a copy of the last two."""
    if before is None:
        before = torch.zeros_like(x[:, :1]).expand(-1, PictureDecoder.MEMORY_FRAMES, -1, -1, -1)
    long = torch.cat([before, x], dim=1)
    frames = x.shape[1]
    taps = torch.cat([long[:, i : i + frames] for i in range(PictureDecoder.MEMORY_FRAMES + 1)], dim=2)
    return taps.flatten(0, 1), long[:, -PictureDecoder.MEMORY_FRAMES :].clone()


class WorldTransformer(nn.Module):
    """Predicts a block's clean latents from noisy ones, the frame shown last, the action and the window."""

    def __init__(self, shape: Shape = Shape()) -> None:
        super().__init__()
        d, s = shape.width, shape.stem_width
        self.shape = shape
        self.level = nn.Sequential(nn.Linear(32, d), nn.SiLU(), nn.Linear(d, d))
        self.action = nn.Embedding(len(ACTIONS), d)
        self.frame = nn.Parameter(0.02 * torch.randn(BLOCK_FRAMES, d))
        self.place = nn.Parameter(0.02 * torch.randn(FRAME_TOKENS, d))
        self.modulate = nn.Linear(d, 6 * d)
        self.stem_in = nn.Conv2d(2 * LATENT_CHANNELS, s, 3, padding=1)
        self.stem_film = nn.Linear(d, 2 * s)
        self.stem_mix = nn.Conv2d(s, s, 3, padding=1)
        self.to_tokens = nn.Conv2d(s, d, 2, stride=2)
        self.layers = nn.ModuleList(Layer(shape, i) for i in range(shape.layers))
        self.norm = nn.LayerNorm(d, elementwise_affine=False)
        self.to_cells = nn.Linear(d, 4 * s)
        self.head_mix = nn.Conv2d(2 * s, s, 3, padding=1)
        self.head_film = nn.Linear(d, 2 * s)
        self.head_out = nn.Conv2d(s, LATENT_CHANNELS, 3, padding=1)

    def forward(self, noisy: Tensor, last: Tensor, level: Tensor, action: Tensor, window: Window) -> Tensor:
        """Clean latents [blocks, 3, 16, 8, 8].

        noisy [blocks, 3, 16, 8, 8] = (1 - level) * clean + level * noise; last [blocks, 16, 8, 8]: the frame before;
        level [blocks] in 0..1; action int64 [blocks].
        """
        stem, tokens, condition = self.embed(noisy, last, level, action)
        return self.read(stem, self.think(tokens, condition, action, window), condition)

    def remember(self, clean: Tensor, last: Tensor, action: Tensor, window: Window) -> None:
        """The clean pass: leaves the block's keys and values in the window and predicts nothing."""
        level = clean.new_zeros(len(clean))
        _, tokens, condition = self.embed(clean, last, level, action)
        self.think(tokens, condition, action, window)

    def embed(self, noisy: Tensor, last: Tensor, level: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Stem features [blocks * 3, s, 8, 8], tokens [blocks, 48, d], condition [blocks, 3, d]."""
        condition = (self.level(_waves(level)) + self.action(action))[:, None] + self.frame
        x = torch.cat([noisy, last[:, None].expand_as(noisy)], dim=2).flatten(0, 1)
        x = F.gelu(_film(self.stem_in(x), self.stem_film(F.silu(condition))))
        x = x + F.gelu(self.stem_mix(x))
        tokens = self.to_tokens(x).flatten(2).transpose(1, 2) + self.place
        tokens = tokens.unflatten(0, (-1, BLOCK_FRAMES)) + self.frame[:, None]
        return x, tokens.flatten(1, 2), condition

    def think(self, tokens: Tensor, condition: Tensor, action: Tensor, window: Window) -> Tensor:
        modulation = self.modulate(F.silu(condition))
        pressed = self.action(action)[:, None] + self.frame
        for layer in self.layers:
            tokens = layer(tokens, modulation, pressed, window)
        return tokens

    def read(self, stem: Tensor, tokens: Tensor, condition: Tensor) -> Tensor:
        side = LATENT_PX // 2
        x = self.to_cells(self.norm(tokens)).unflatten(1, (BLOCK_FRAMES, side, side)).flatten(0, 1).permute(0, 3, 1, 2)
        x = torch.cat([F.pixel_shuffle(x, 2), stem], dim=1)
        x = F.gelu(_film(self.head_mix(x), self.head_film(F.silu(condition))))
        clean: Tensor = self.head_out(x).unflatten(0, (-1, BLOCK_FRAMES))
        return clean


class Layer(nn.Module):
    """Attention over the window, attention over the recent actions (first half of the layers), a perceptron."""

    def __init__(self, shape: Shape, index: int) -> None:
        super().__init__()
        d = shape.width
        self.index = index
        self.norm = nn.LayerNorm(d, elementwise_affine=False)
        self.modulation = nn.Parameter(torch.zeros(6, d))
        self.tokens = WindowAttention(d, shape.heads, shape.head_width, WINDOW_TOKENS)
        acts = index < shape.action_layers
        self.actions = WindowAttention(d, shape.action_heads, shape.action_head_width, WINDOW_FRAMES) if acts else None
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x: Tensor, modulation: Tensor, pressed: Tensor, window: Window) -> Tensor:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = (
            (modulation.unflatten(2, (6, -1)) + self.modulation).repeat_interleave(FRAME_TOKENS, dim=1).unbind(2)
        )
        y = self.norm(x) * (1 + scale_a) + shift_a
        x = x + (1 + gate_a) * self.tokens(y, *window.extend_tokens(self.index, *self.tokens.keys_values(y)))
        if self.actions is not None:
            x = x + self.actions(self.norm(x), *window.extend_actions(self.index, *self.actions.keys_values(pressed)))
        y = self.norm(x) * (1 + scale_m) + shift_m
        thought: Tensor = x + (1 + gate_m) * self.down(F.gelu(self.up(y)))
        return thought


class WindowAttention(nn.Module):
    """Multi-head attention whose keys get their position, a learned vector a slot of the window, when they are read."""

    def __init__(self, width: int, heads: int, head_width: int, slots: int) -> None:
        super().__init__()
        self.heads = heads
        inner = heads * head_width
        self.query = nn.Linear(width, inner)
        self.key_value = nn.Linear(width, 2 * inner)
        self.out = nn.Linear(inner, width)
        self.slot = nn.Parameter(0.1 * torch.randn(slots, heads, head_width))

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[blocks, rows, heads, head width] each, keys without position."""
        k, v = self.key_value(x).unflatten(2, (2, self.heads, -1)).unbind(2)
        return k, v

    def forward(self, x: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q = self.query(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k = (k + self.slot[-k.shape[1] :].to(k.dtype)).transpose(1, 2)
        # Spelled out: on a CPU the fused kernel's bf16 backward takes four times as long, and 48 x 96 gains nothing.
        scores = (q * k.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        scores = scores if mask is None else scores + mask
        heads = scores.softmax(-1).to(v.dtype) @ v.transpose(1, 2)
        mixed: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return mixed


def _film(x: Tensor, scale_shift: Tensor) -> Tensor:
    """x [frames, c, h, w] scaled and shifted by [.., 2 c], a row a frame (Perez et al. 2018)."""
    scale, shift = scale_shift.reshape(len(x), -1, 1, 1).chunk(2, dim=1)
    return x * (1 + scale) + shift


def _waves(level: Tensor) -> Tensor:
    """Sines and cosines [blocks, 32] of levels in 0..1 (Vaswani et al. 2017)."""
    rates = torch.exp(torch.linspace(0, math.log(100), 16))
    angles = level[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)
