"""Matrix-Game-2 as a world: the upstream modules, run block by block from a loop that can stop and go on elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from worldline.worlds.matrix_game_2.engine import NAME, load_matrix_game_2
from worldline.worlds.matrix_game_2.session import ACTIONS, Caches, MatrixGame2Live, MatrixGame2State
from worldline.worlds.matrix_game_2.shape import (
    ACTION_HEAD_WIDTH,
    CONTEXT_ROWS,
    CONTEXT_WIDTH,
    KEYBOARD_INPUTS,
    LATENT_CHANNELS,
    MOUSE_INPUTS,
    WINDOW_FRAMES,
    MatrixGame2Options,
)
from worldline.worlds.options import read_options
from worldline.worlds.protocol import Memory, Options, Readout, Tree

FEATURES = 32
MASK_CHANNELS = 4


class MatrixGame2World:
    """See the module."""

    name = NAME
    actions: Sequence[str] = ACTIONS

    def __init__(self, options: Options) -> None:
        chosen = read_options(self.name, MatrixGame2Options, options)
        self._size = chosen.size
        self.shape = chosen.shape()
        self._engine = load_matrix_game_2(self.shape, chosen.weights)
        self.readout = Readout("image", self.shape.block_frames, *self.shape.picture)
        self.state_bytes_max = self.shape.state_bytes_max

    def facts(self) -> Mapping[str, str]:
        return self._engine.facts

    def canary_world(self) -> MatrixGame2World:
        """The small size runs the same code in a second."""
        return self if self._size == "small" else MatrixGame2World({})

    def open(self, seed: int, memory: Memory) -> MatrixGame2Live:
        shape, chance = self.shape, torch.Generator().manual_seed(seed)
        noise = torch.randn(1, LATENT_CHANNELS, shape.horizon_frames, *shape.latent, generator=chance)
        state = MatrixGame2State(
            kv_cache1=self._caches(memory, "kv_cache1", (1, shape.tokens), shape.heads, shape.dim // shape.heads),
            kv_cache_mouse=self._caches(
                memory, "kv_cache_mouse", (shape.tokens, 1), shape.action_heads, ACTION_HEAD_WIDTH
            ),
            kv_cache_keyboard=self._caches(memory, "kv_cache_keyboard", (1, 1), shape.action_heads, ACTION_HEAD_WIDTH),
            crossattn_cache=self._context_caches(),
            feat_cache=[None] * FEATURES if shape.decoder_width else [],
            noise=noise,
            cond=self._conditions(chance),
            current_start_frame=0,
            generator=chance,
        )
        return MatrixGame2Live(self._engine, shape, state)

    def restore(self, tree: Tree, memory: Memory) -> MatrixGame2Live:
        t: Any = tree
        bound = {field.name: t[field.name] for field in fields(MatrixGame2State) if field.name != "crossattn_cache"}
        for family in ("kv_cache1", "kv_cache_mouse", "kv_cache_keyboard"):
            bound[family] = [dict(layer) for layer in t[family]]
        bound |= {"feat_cache": list(t["feat_cache"]), "cond": dict(t["cond"])}
        state = MatrixGame2State(crossattn_cache=self._context_caches(), **bound)
        return MatrixGame2Live(self._engine, self.shape, state)

    def _caches(self, memory: Memory, family: str, rows: tuple[int, int], heads: int, width: int) -> Caches:
        """`rows`: how many sequences, and how many rows a frame has in each."""
        shape = (rows[0], WINDOW_FRAMES * rows[1], heads, width)
        return [
            {side: memory.zeros(f"{family}/{i}/{side}", shape, torch.float32) for side in ("k", "v")}
            | {
                index: memory.zeros(f"{family}/{i}/{index}", (1,), torch.int64)
                for index in ("global_end_index", "local_end_index")
            }
            for i in range(self.shape.layers)
        ]

    def _context_caches(self) -> list[dict[str, Any]]:
        return [{"is_init": False} for _ in range(self.shape.layers)]

    def _conditions(self, chance: torch.Generator) -> dict[str, torch.Tensor]:
        """The first picture's latent behind a mask that says which frames are given, its features, and no actions."""
        shape = self.shape
        start = self._engine.start or {
            "latent": torch.randn(1, LATENT_CHANNELS, 1, *shape.latent, generator=chance),
            "visual_context": torch.randn(1, CONTEXT_ROWS, CONTEXT_WIDTH, generator=chance),
        }
        given = torch.zeros(1, MASK_CHANNELS + LATENT_CHANNELS, shape.horizon_frames, *shape.latent)
        given[:, :MASK_CHANNELS, :1] = 1
        given[:, MASK_CHANNELS:, :1] = start["latent"]
        return {
            "cond_concat": given,
            "visual_context": start["visual_context"].clone(),
            "mouse_cond": torch.zeros(1, shape.inputs, MOUSE_INPUTS),
            "keyboard_cond": torch.zeros(1, shape.inputs, KEYBOARD_INPUTS),
        }
