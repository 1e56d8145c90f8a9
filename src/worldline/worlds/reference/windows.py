"""Where keys and values live: two windows for training, a session's rolling one, and the sampler over any of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from worldline.worlds.reference.model import WINDOW_BLOCKS, Window, WorldTransformer
from worldline.worlds.reference.simulator import BLOCK_FRAMES

LEVELS = (1.0, 0.7)  # noise levels of the two sampling steps
HINT_NOISE = 0.75  # standard deviation, beside latents of 1


def denoise_block(
    transformer: WorldTransformer, last: Tensor, action: Tensor, window: Window, generator: torch.Generator | None
) -> Tensor:
    """One block's latents [blocks, 3, 16, 8, 8] in two steps: from noise, then from the first answer, noised again."""
    sample = torch.zeros_like(last[:, None].expand(-1, BLOCK_FRAMES, -1, -1, -1))
    for level in LEVELS:
        noise = torch.randn(sample.shape, generator=generator)
        noisy = (1 - level) * sample + level * noise
        sample = transformer(noisy, last, last.new_full((len(last),), level), action, window).float()
    return sample


def as_hint(last: Tensor, generator: torch.Generator | None) -> Tensor:
    """The frame shown last, noised: clean, it would tell everything and the window would hardly be read."""
    return last + HINT_NOISE * torch.randn(last.shape, generator=generator)


class ClipWindow:
    """Training: clean blocks 0.. and noisy blocks 1.. of the same clips side by side; both look back at clean ones."""

    def __init__(self, clips: int, blocks: int) -> None:
        self.clips = clips
        self.blocks = blocks

    def extend_tokens(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self._with_past(k), self._with_past(v), self._mask(k)

    extend_actions = extend_tokens

    def _with_past(self, x: Tensor) -> Tensor:
        clean = x.unflatten(0, (2, self.clips, self.blocks))[0]
        before = torch.cat([torch.zeros_like(clean[:, :1]), clean[:, :-1]], dim=1)
        return torch.cat([torch.stack([before, clean]).flatten(0, 2), x], dim=1)

    def _mask(self, k: Tensor) -> Tensor:
        """Hides the past of each clip's first clean block, which has none."""
        rows = k.shape[1]
        mask = torch.zeros(2, self.clips, self.blocks, 1, 1, WINDOW_BLOCKS * rows, dtype=k.dtype)
        mask[0, :, 0, :, :, :rows] = -torch.inf
        return mask.flatten(0, 2)


class PassingWindow:
    """A batch of rollouts: the last block's keys and values, replaced by the current one's at `pass_on`."""

    def __init__(self) -> None:
        self.past: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}
        self.current: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    def pass_on(self) -> None:
        self.past, self.current = self.current, {}

    def extend_tokens(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, None]:
        return self._extend(("tokens", layer), k, v)

    def extend_actions(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, None]:
        return self._extend(("actions", layer), k, v)

    def _extend(self, key: tuple[str, int], k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, None]:
        self.current[key] = (k, v)
        if key not in self.past:
            return k, v, None
        past_k, past_v = self.past[key]
        return torch.cat([past_k, k], dim=1), torch.cat([past_v, v], dim=1), None


@dataclass(slots=True)
class RollingCache:
    """One layer's keys and values of the last two blocks, laid out and rolled as Matrix-Game-2 does.

    Rows fill up from the left; once all are live, a new block shifts them left by its own length. The passes over one
    block (two of sampling, one clean) write the same rows.
    """

    k: Tensor  # float32 [1, rows, heads, head width], rows = 2 * the rows of a block
    v: Tensor  # the same
    global_end_index: Tensor  # int64 [1]: rows ever written
    local_end_index: Tensor  # int64 [1]: live rows

    def extend(self, k: Tensor, v: Tensor, end_row: int) -> tuple[Tensor, Tensor, None]:
        """Writes a block's rows, which end at `end_row` counted from the session's start; returns the live window."""
        rows, capacity = k.shape[1], self.k.shape[1]
        local_end = int(self.local_end_index.item())
        new = end_row - int(self.global_end_index.item())
        assert new in {0, rows}, "the caches and the session's frame count are of different blocks"
        if new:
            if local_end + new > capacity:
                self.k[:, :-new] = self.k[:, new:].clone()
                self.v[:, :-new] = self.v[:, new:].clone()
            local_end = min(local_end + new, capacity)
            self.global_end_index.fill_(end_row)
            self.local_end_index.fill_(local_end)
        self.k[:, local_end - rows : local_end] = k
        self.v[:, local_end - rows : local_end] = v
        return self.k[:, :local_end], self.v[:, :local_end], None


class RollingWindow:
    """A session's caches under the transformer: `tokens` one a layer, `actions` one a layer of the first half."""

    def __init__(self, tokens: list[RollingCache], actions: list[RollingCache]) -> None:
        self.tokens = tokens
        self.actions = actions
        self.block = 0  # whose rows are written now

    def extend_tokens(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, None]:
        return self.tokens[layer].extend(k, v, (self.block + 1) * k.shape[1])

    def extend_actions(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, None]:
        return self.actions[layer].extend(k, v, (self.block + 1) * k.shape[1])
