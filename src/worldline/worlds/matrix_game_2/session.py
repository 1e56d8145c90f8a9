"""One session: the loop over blocks, and all that it carries from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from worldline.errors import BadValue
from worldline.schema.inventory import Rule
from worldline.worlds.matrix_game_2.engine import MatrixGame2
from worldline.worlds.matrix_game_2.shape import BLOCK_FRAMES, FRAME_INPUTS, Shape
from worldline.worlds.protocol import Tree

_TURN: Final = 0.1
MOVES: Final[dict[str, tuple[tuple[float, ...], tuple[float, float]]]] = {
    "stay": ((0, 0, 0, 0), (0, 0)),
    "forward": ((1, 0, 0, 0), (0, 0)),
    "back": ((0, 1, 0, 0), (0, 0)),
    "left": ((0, 0, 1, 0), (0, 0)),
    "right": ((0, 0, 0, 1), (0, 0)),
    "look up": ((0, 0, 0, 0), (_TURN, 0)),
    "look down": ((0, 0, 0, 0), (-_TURN, 0)),
    "look left": ((0, 0, 0, 0), (0, -_TURN)),
    "look right": ((0, 0, 0, 0), (0, _TURN)),
    "forward and look left": ((1, 0, 0, 0), (0, -_TURN)),
    "forward and look right": ((1, 0, 0, 0), (0, _TURN)),
}
"""Keyboard (forward, back, left, right) and mouse (up, right) of each action."""
ACTIONS: Final = tuple(MOVES)
Caches = list[dict[str, torch.Tensor]]


@dataclass(slots=True)
class MatrixGame2State:
    """All of a session. Each cache is a list over the layers.

    `crossattn_cache` follows from `cond["visual_context"]` and is made anew where `is_init` is false.
    """

    kv_cache1: Caches  # k, v [1, 6 * tokens, heads, width]; global_end_index, local_end_index int64 [1]
    kv_cache_mouse: Caches  # k, v [tokens, 6, action heads, 64] and indexes
    kv_cache_keyboard: Caches  # k, v [1, 6, action heads, 64] and indexes
    crossattn_cache: list[dict[str, Any]]
    feat_cache: list[torch.Tensor | str | None]  # the decoder's: 32 entries, or none where there is no decoder
    noise: torch.Tensor  # [1, 16, horizon, height, width]
    cond: dict[str, torch.Tensor]  # cond_concat, visual_context, mouse_cond, keyboard_cond: the latter written ahead
    current_start_frame: int
    generator: torch.Generator


class MatrixGame2Live:
    """One session."""

    def __init__(self, engine: MatrixGame2, shape: Shape, state: MatrixGame2State) -> None:
        self.rules: Sequence[Rule] = shape.rules()
        self._engine = engine
        self._shape = shape
        self._s = state

    @torch.no_grad()
    def step(self, action: int) -> np.ndarray:
        if not 0 <= action < len(ACTIONS):
            raise BadValue(f"the matrix-game-2 world has the actions 0 to {len(ACTIONS) - 1}, not {action}")
        s = self._s
        end = s.current_start_frame + BLOCK_FRAMES
        if end > self._shape.horizon_frames:
            raise BadValue(f"the session's horizon of {self._shape.horizon_frames} frames is spent")
        conditions = self._condition(ACTIONS[action], end)
        latents = self._denoise(s.noise[:, :, s.current_start_frame : end], conditions)
        self._run(latents, conditions, torch.zeros(()))  # leaves the clean block's keys and values in the caches
        picture = self._picture(latents)
        s.current_start_frame = end
        return picture

    def state(self) -> Tree:
        s = self._s
        return {
            "kv_cache1": [dict(layer) for layer in s.kv_cache1],
            "kv_cache_mouse": [dict(layer) for layer in s.kv_cache_mouse],
            "kv_cache_keyboard": [dict(layer) for layer in s.kv_cache_keyboard],
            "crossattn_cache": [dict(layer) for layer in s.crossattn_cache],
            "feat_cache": list(s.feat_cache),
            "noise": s.noise,
            "cond": dict(s.cond),
            "current_start_frame": s.current_start_frame,
            "generator": s.generator,
        }

    def _condition(self, action: str, end: int) -> dict[str, torch.Tensor]:
        """Writes the action into the horizon, in place. The engine reads all actions up to the block's end."""
        cond, (keyboard, mouse) = self._s.cond, MOVES[action]
        stop = 1 + FRAME_INPUTS * (end - 1)
        start = max(0, stop - FRAME_INPUTS * BLOCK_FRAMES)
        cond["keyboard_cond"][:, start:stop] = torch.tensor(keyboard)
        cond["mouse_cond"][:, start:stop] = torch.tensor(mouse)
        return {
            "cond_concat": cond["cond_concat"][:, :, end - BLOCK_FRAMES : end],
            "visual_context": cond["visual_context"],
            "mouse_cond": cond["mouse_cond"][:, :stop],
            "keyboard_cond": cond["keyboard_cond"][:, :stop],
        }

    def _denoise(self, noisy: torch.Tensor, conditions: dict[str, torch.Tensor]) -> torch.Tensor:
        """The block's clean latents [1, 16, 3, height, width]."""
        times = self._engine.times
        clean = self._run(noisy, conditions, times[0])
        for time in times[1:]:
            frames = clean.transpose(1, 2)[0]  # [3, 16, height, width]
            fresh = torch.empty_like(frames).normal_(generator=self._s.generator)  # randn_like: strides are kept
            again = self._engine.generator.scheduler.add_noise(frames, fresh, time.repeat(BLOCK_FRAMES))
            clean = self._run(again.transpose(0, 1)[None], conditions, time)
        return clean

    def _run(self, latents: torch.Tensor, conditions: dict[str, torch.Tensor], time: torch.Tensor) -> torch.Tensor:
        """One pass; writes the block's keys and values, for which the window rolls once a block."""
        s = self._s
        _, clean = self._engine.generator(
            noisy_image_or_video=latents,
            conditional_dict=conditions,
            timestep=time.repeat(1, BLOCK_FRAMES),
            kv_cache=s.kv_cache1,
            kv_cache_mouse=s.kv_cache_mouse,
            kv_cache_keyboard=s.kv_cache_keyboard,
            crossattn_cache=s.crossattn_cache,
            current_start=s.current_start_frame * self._shape.tokens,
        )
        shown: torch.Tensor = clean
        return shown

    def _picture(self, latents: torch.Tensor) -> np.ndarray:
        """The decoder's frames; of the first block, which has three less, the first is shown four times."""
        if self._engine.decoder is None:
            video = latents[0, :3].transpose(0, 1)
        else:
            decoded, features = self._engine.decoder(latents.transpose(1, 2), *self._s.feat_cache)
            self._s.feat_cache = list(features)
            video = decoded[0]
        missing = self._shape.block_frames - len(video)
        video = torch.cat([video[:1].expand(missing, -1, -1, -1), video])
        return ((video.permute(0, 2, 3, 1) + 1) * 127.5).clamp(0, 255).to(torch.uint8).numpy()
