"""AnyFlow FAR as a world: the causal video transformer of `diffusers`, run chunk by chunk.

A block is a chunk of three latent frames. The model attends to what it made before: to the newest chunks token by
token, to older ones in a coarser patching. After each chunk it reads all its latents again and rewrites both caches
from their start, so an entry changes wherever its frames moved from fine to coarse. See docs/engines/diffusers.md.

The upstream pipeline plays a partition of chunks that is fixed beforehand. Here the loop goes on for ever: beyond
`context_chunks` the oldest chunk is forgotten, and positions count from the oldest that is left.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import blake3
import numpy as np
import torch
from torch.nn.attention import flex_attention

from worldline.errors import BadValue
from worldline.schema.inventory import Free, Kind, Realloc, Rule
from worldline.worlds.latent_picture import latent_picture
from worldline.worlds.module_weights import digest_weights, draw_weights
from worldline.worlds.options import read_options
from worldline.worlds.protocol import Memory, Options, Readout, Tree
from worldline.worlds.registry import missing_extra

ACTIONS: Final = ("stay", "forward", "back", "left", "right")
CHUNK_FRAMES: Final = 3
FULL_CHUNKS: Final = 3
"""Chunks attended to token by token, the one that is being made among them."""
PATCH, COARSE_PATCH = 2, 4
PROMPT_ROWS: Final = 8
TEXT_WIDTH: Final = 16
CHANNELS: Final = 16
SHOWN_SCALE: Final = 4
WEIGHTS_SEED: Final = 42

RULES: Final = (
    Rule("kv_cache/*", Kind.CACHE, Free()),
    Rule("latents", Kind.CACHE, Realloc()),
    Rule("*", Kind.AUX, Free()),
)


@dataclass(frozen=True, slots=True)
class AnyFlowOptions:
    """`latent_px`: side of a latent frame. `steps` of denoising a chunk. Weights are random."""

    layers: int = 2
    heads: int = 2
    latent_px: int = 8
    context_chunks: int = 6
    steps: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.layers <= 64 or not 1 <= self.heads <= 64 or not 1 <= self.steps <= 50:
            raise BadValue("layers and heads must be from 1 to 64, steps from 1 to 50")
        if self.latent_px < COARSE_PATCH or self.latent_px % COARSE_PATCH or self.latent_px > 128:
            raise BadValue(f"latent_px must be a multiple of {COARSE_PATCH} up to 128, not {self.latent_px}")
        if not FULL_CHUNKS < self.context_chunks <= 64:
            raise BadValue(f"context_chunks must be from {FULL_CHUNKS + 1} to 64, not {self.context_chunks}")

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        """Keys and values of a layer: [2, 1, heads, rows, 16]."""
        fine, coarse = (CHUNK_FRAMES * (self.latent_px // patch) ** 2 for patch in (PATCH, COARSE_PATCH))
        rows = {
            "full_cache": (FULL_CHUNKS - 1) * fine,
            "compressed_cache": (self.context_chunks - FULL_CHUNKS) * coarse,
        }
        return {name: (2, 1, self.heads, count, 16) for name, count in rows.items()}


@dataclass(slots=True)
class AnyFlowState:
    """All of a session."""

    kv_cache: list[dict[str, torch.Tensor]]  # a layer's full_cache and compressed_cache
    latents: torch.Tensor  # [1, frames, 16, side, side]: what the caches were read from, at most context_chunks - 1
    chance: torch.Generator


@dataclass(frozen=True, slots=True)
class AnyFlow:
    """The model and a prompt an action, ready to run, to which no session writes."""

    model: Any  # diffusers' AnyFlowFARTransformer3DModel
    scheduler: Any  # FlowMapEulerDiscreteScheduler, the class: an instance counts its steps
    prompts: torch.Tensor  # [actions, rows, width]


class AnyFlowLive:
    """One session."""

    rules: Sequence[Rule] = RULES

    def __init__(self, engine: AnyFlow, options: AnyFlowOptions, state: AnyFlowState) -> None:
        self._engine = engine
        self._options = options
        self._s = state

    @torch.no_grad()
    def step(self, action: int) -> np.ndarray:
        if not 0 <= action < len(ACTIONS):
            raise BadValue(f"the diffusers world has the actions 0 to {len(ACTIONS) - 1}, not {action}")
        prompt = self._engine.prompts[action : action + 1]
        chunk = self._denoise(prompt)
        kept = (self._options.context_chunks - 2) * CHUNK_FRAMES
        self._s.latents = torch.cat([self._s.latents[:, -kept:], chunk], dim=1)
        self._read_again(prompt)
        return latent_picture(chunk, SHOWN_SCALE)

    def state(self) -> Tree:
        s = self._s
        return {"kv_cache": [dict(layer) for layer in s.kv_cache], "latents": s.latents, "chance": s.chance}

    def _denoise(self, prompt: torch.Tensor) -> torch.Tensor:
        """A new chunk [1, 3, 16, side, side], out of noise."""
        side = self._options.latent_px
        chunk = torch.randn(1, CHUNK_FRAMES, CHANNELS, side, side, generator=self._s.chance)
        scheduler = self._engine.scheduler()
        scheduler.set_timesteps(self._options.steps, device="cpu")
        for i, start in enumerate(scheduler.timesteps):
            end = scheduler.sigmas[i + 1] * scheduler.config.num_train_timesteps
            flow = self._run(chunk, start, end, prompt, is_cache_step=False)
            chunk = scheduler.step(flow, start, chunk, return_dict=False)[0]
        return chunk.float()

    def _read_again(self, prompt: torch.Tensor) -> None:
        """Rewrites the caches from the latents."""
        clean = torch.zeros(())
        self._run(self._s.latents, clean, clean, prompt, is_cache_step=True)

    def _run(
        self, frames: torch.Tensor, start: torch.Tensor, end: torch.Tensor, prompt: torch.Tensor, *, is_cache_step: bool
    ) -> torch.Tensor:
        known = self._s.latents.shape[1] // CHUNK_FRAMES
        made: tuple[torch.Tensor, Any] = self._engine.model(
            hidden_states=frames,
            chunk_partition=[CHUNK_FRAMES] * (known if is_cache_step else known + 1),
            timestep=start.repeat(1, frames.shape[1]),
            r_timestep=end.repeat(1, frames.shape[1]),
            encoder_hidden_states=prompt,
            return_dict=False,
            kv_cache=self._s.kv_cache,
            kv_cache_flag={"num_cached_chunks": known, "is_cache_step": is_cache_step},
        )
        return made[0]


class AnyFlowWorld:
    """See the module."""

    name = "diffusers"
    actions: Sequence[str] = ACTIONS

    def __init__(self, options: Options) -> None:
        self._options = read_options(self.name, AnyFlowOptions, options)
        self._engine, self._version = _load(self._options)
        side = self._options.latent_px
        self.readout = Readout("image", CHUNK_FRAMES, side * SHOWN_SCALE, side * SHOWN_SCALE)
        caches = 4 * sum(int(np.prod(shape)) for shape in self._options.cache_shapes().values())
        latents = 4 * self._options.context_chunks * CHUNK_FRAMES * CHANNELS * side * side
        self.state_bytes_max = self._options.layers * (caches + 8192) + latents + 64 * 1024

    def facts(self) -> Mapping[str, str]:
        prompts = blake3.blake3(self._engine.prompts.numpy().tobytes()).hexdigest(length=16)
        return {
            "weights": digest_weights(self._engine.model),
            "prompts": prompts,
            "options": repr(self._options),
            "diffusers": self._version,
        }

    def open(self, seed: int, memory: Memory) -> AnyFlowLive:
        caches = [
            {
                name: memory.zeros(f"kv_cache/{layer}/{name}", shape, torch.float32)
                for name, shape in self._options.cache_shapes().items()
            }
            for layer in range(self._options.layers)
        ]
        side = self._options.latent_px
        state = AnyFlowState(caches, torch.zeros(1, 0, CHANNELS, side, side), torch.Generator().manual_seed(seed))
        return AnyFlowLive(self._engine, self._options, state)

    def restore(self, tree: Tree, memory: Memory) -> AnyFlowLive:
        t: Any = tree
        state = AnyFlowState([dict(layer) for layer in t["kv_cache"]], t["latents"], t["chance"])
        return AnyFlowLive(self._engine, self._options, state)


def _load(options: AnyFlowOptions) -> tuple[AnyFlow, str]:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        diffusers: Any = importlib.import_module("diffusers")
    except ModuleNotFoundError as error:
        raise missing_extra("diffusers", error.name or "diffusers") from error
    # Outside of torch.compile its attention is computed unfused anyway; without this it would be traced for each shape.
    flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    with torch.random.fork_rng(devices=[]):  # building draws weights from the process's generator
        model = diffusers.AnyFlowFARTransformer3DModel(
            patch_size=(1, PATCH, PATCH),
            compressed_patch_size=(1, COARSE_PATCH, COARSE_PATCH),
            full_chunk_limit=FULL_CHUNKS,
            num_attention_heads=options.heads,
            attention_head_dim=16,
            in_channels=CHANNELS,
            out_channels=CHANNELS,
            text_dim=TEXT_WIDTH,
            freq_dim=32,
            ffn_dim=64,
            num_layers=options.layers,
        )
    draw_weights(model, WEIGHTS_SEED)
    chance = np.random.default_rng(WEIGHTS_SEED)
    prompts = chance.integers(-1024, 1025, (len(ACTIONS), PROMPT_ROWS, TEXT_WIDTH)) / 512
    engine = AnyFlow(
        model.float().eval().requires_grad_(False),
        diffusers.FlowMapEulerDiscreteScheduler,
        torch.from_numpy(prompts.astype(np.float32)),
    )
    return engine, str(diffusers.__version__)
