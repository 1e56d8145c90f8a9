"""Oasis 500M as a world: the diffusion transformer of a checkout of open-oasis, which keeps no key/value cache.

A block is one frame. The model looks back on at most 31 latent frames and is run over all of them in every step of
denoising, so a session is its window of latents, the actions that made them, and a generator. The buffers in which the
position embedding keeps its angles are filled while the engine is built: they are the model's, and no session's.
See docs/engines/open-oasis.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from worldline.errors import BadValue
from worldline.schema.inventory import Free, Kind, Realloc, Rule
from worldline.worlds.checkouts import Edits, find_checkout, load_engine
from worldline.worlds.module_weights import digest_weights, draw_weights
from worldline.worlds.options import read_options
from worldline.worlds.protocol import Memory, Options, Readout, Tree
from worldline.worlds.weights import find_weights

NAME: Final = "open-oasis"
CHANNELS: Final = 16
ACTION_WIDTH: Final = 25
MOVES: Final[Mapping[str, Mapping[int, float]]] = {
    "stay": {},
    "forward": {11: 1},
    "back": {12: 1},
    "left": {13: 1},
    "right": {14: 1},
    "jump": {17: 1},
    "attack": {21: 1},
    "look left": {16: -0.5},
    "look right": {16: 0.5},
    "look up": {15: -0.5},
    "look down": {15: 0.5},
}
"""What of the 25 inputs of an action is set."""
ACTIONS: Final = tuple(MOVES)
NOISE_LEVELS: Final = 1000
CONTEXT_LEVEL: Final = 14
"""The noise level under which frames made before are told to the model."""
NOISE_MAX: Final = 20.0
LATENT_SCALE: Final = 0.07843137255
WEIGHTS_SEED: Final = 500
MODEL_FILE, DECODER_FILE, START_FILE = "oasis500m.safetensors", "vit-l-20.safetensors", "start.safetensors"

RULES: Final = (
    Rule("latents", Kind.CACHE, Realloc()),
    Rule("actions", Kind.CACHE, Realloc()),
    Rule("*", Kind.AUX, Free()),
)


@dataclass(frozen=True, slots=True)
class OpenOasisOptions:
    """`size`: `small` or `real`, the released configuration. `weights`: `random`, or a folder of the host's folder."""

    size: str = "small"
    weights: str = "random"
    steps: int = 4
    window_frames: int = 0

    def __post_init__(self) -> None:
        if self.size not in _SIZES:
            raise BadValue(f"size must be one of {', '.join(_SIZES)}, not {self.size[:40]!r}")
        if not 1 <= self.steps <= 100 or self.window_frames < 0 or self.window_frames == 1 or self.window_frames > 256:
            raise BadValue("steps must be from 1 to 100, window_frames from 2 to 256")


@dataclass(frozen=True, slots=True)
class _Size:
    latent: tuple[int, int]
    patch_px: int  # of the decoder
    model: Mapping[str, int]
    decoder: Mapping[str, int]
    window_frames: int


_SIZES: Final = {
    "small": _Size(
        (4, 8),
        4,
        {"hidden_size": 64, "depth": 2, "num_heads": 2},
        {"enc_dim": 32, "enc_depth": 1, "enc_heads": 2, "dec_dim": 32, "dec_depth": 1, "dec_heads": 2},
        6,
    ),
    "real": _Size(
        (18, 32),
        20,
        {"hidden_size": 1024, "depth": 16, "num_heads": 16},
        {"enc_dim": 1024, "enc_depth": 6, "enc_heads": 16, "dec_dim": 1024, "dec_depth": 12, "dec_heads": 16},
        32,
    ),
}


@dataclass(slots=True)
class OpenOasisState:
    """All of a session: what the model looks back on, at most one frame less than its window."""

    latents: torch.Tensor  # [1, frames, 16, height, width]
    actions: torch.Tensor  # [1, frames, 25], of the same frames
    chance: torch.Generator


@dataclass(frozen=True, slots=True)
class OpenOasis:
    """The model and its decoder, ready to run, to which no session writes."""

    model: Any
    decoder: Any
    kept_levels: torch.Tensor  # [1000]: the share of the signal that is left at each noise level
    start: torch.Tensor | None  # [1, frames, 16, height, width]
    facts: dict[str, str]


class OpenOasisLive:
    """One session."""

    rules: Sequence[Rule] = RULES

    def __init__(self, engine: OpenOasis, window_frames: int, steps: int, state: OpenOasisState) -> None:
        self._engine = engine
        self._window_frames = window_frames
        self._steps = steps
        self._s = state

    @torch.no_grad()
    def step(self, action: int) -> np.ndarray:
        if not 0 <= action < len(ACTIONS):
            raise BadValue(f"the open-oasis world has the actions 0 to {len(ACTIONS) - 1}, not {action}")
        s = self._s
        said = torch.zeros(1, 1, ACTION_WIDTH)
        for place, value in MOVES[ACTIONS[action]].items():
            said[..., place] = value
        actions = torch.cat([s.actions, said], dim=1)
        fresh = torch.randn(1, 1, *s.latents.shape[2:], generator=s.chance).clamp(-NOISE_MAX, NOISE_MAX)
        latents = torch.cat([s.latents, self._denoise(fresh, actions)], dim=1)
        kept = self._window_frames - 1
        s.latents, s.actions = latents[:, -kept:].contiguous(), actions[:, -kept:].contiguous()
        return self._picture(latents[:, -1])

    def state(self) -> Tree:
        s = self._s
        return {"latents": s.latents, "actions": s.actions, "chance": s.chance}

    def _denoise(self, frame: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """DDIM (Song et al. 2021) over the newest frame [1, 1, 16, height, width], velocity predicted."""
        levels = torch.linspace(-1, NOISE_LEVELS - 1, self._steps + 1).long().tolist()
        context = self._s.latents.shape[1]
        for level, next_level in zip(levels[:0:-1], levels[-2::-1], strict=True):
            told = torch.tensor([[CONTEXT_LEVEL] * context + [level]])
            seen = torch.cat([self._s.latents, frame], dim=1)
            velocity = self._engine.model(seen, told, actions)[:, -1:]
            kept = self._engine.kept_levels[level]
            clean = kept.sqrt() * frame - (1 - kept).sqrt() * velocity
            noise = ((1 / kept).sqrt() * frame - clean) / (1 / kept - 1).sqrt()
            kept = self._engine.kept_levels[next_level] if next_level >= 0 else torch.ones(())
            frame = kept.sqrt() * clean + noise * (1 - kept).sqrt()
        return frame

    def _picture(self, latent: torch.Tensor) -> np.ndarray:
        rows = latent.flatten(2).transpose(1, 2) / LATENT_SCALE  # [1, height * width, 16]
        decoded = (self._engine.decoder.decode(rows) + 1) / 2  # [1, 3, height, width]
        picture: np.ndarray = (decoded.clamp(0, 1) * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
        return picture


class OpenOasisWorld:
    """See the module."""

    name = NAME
    actions: Sequence[str] = ACTIONS

    def __init__(self, options: Options) -> None:
        self._options = read_options(self.name, OpenOasisOptions, options)
        size = _SIZES[self._options.size]
        self._latent = size.latent
        self._window_frames = self._options.window_frames or size.window_frames
        self._engine = _load(size, self._window_frames, self._options)
        self.readout = Readout("image", 1, size.latent[0] * size.patch_px, size.latent[1] * size.patch_px)
        frame = 4 * (CHANNELS * size.latent[0] * size.latent[1] + ACTION_WIDTH)
        self.state_bytes_max = self._window_frames * frame + 64 * 1024

    def facts(self) -> Mapping[str, str]:
        return self._engine.facts

    def open(self, seed: int, memory: Memory) -> OpenOasisLive:
        chance = torch.Generator().manual_seed(seed)
        drawn = torch.randn(1, 1, CHANNELS, *self._latent, generator=chance)
        latents = drawn if self._engine.start is None else self._engine.start.clone()
        state = OpenOasisState(latents, torch.zeros(1, latents.shape[1], ACTION_WIDTH), chance)
        return OpenOasisLive(self._engine, self._window_frames, self._options.steps, state)

    def restore(self, tree: Tree, memory: Memory) -> OpenOasisLive:
        t: Any = tree
        state = OpenOasisState(t["latents"], t["actions"], t["chance"])
        return OpenOasisLive(self._engine, self._window_frames, self._options.steps, state)


def _load(size: _Size, window_frames: int, options: OpenOasisOptions) -> OpenOasis:
    here = "worldline.worlds.checkouts"
    edits = Edits(
        modules={
            "timm.models.vision_transformer": f"{here}.layers",
            "timm.layers.helpers": f"{here}.layers",
            "torchvision.io": f"{here}.unneeded",
            "torchvision.transforms.functional": f"{here}.unneeded",
        },
        values={"cuda": "cpu"},
    )
    engine = load_engine(find_checkout(NAME), ["dit", "vae", "utils"], edits)
    height, width = size.latent
    with torch.random.fork_rng(devices=[]):
        model = engine["dit"].DiT(input_h=height, input_w=width, max_frames=window_frames, **size.model)
        decoder = engine["vae"].AutoencoderKL(
            latent_dim=CHANNELS,
            input_height=height * size.patch_px,
            input_width=width * size.patch_px,
            patch_size=size.patch_px,
            **size.decoder,
        )
    start = _fill(model, decoder, options.weights)
    for part in (model, decoder):
        part.float().eval().requires_grad_(False)
    betas = engine["utils"].sigmoid_beta_schedule(NOISE_LEVELS).float()
    with torch.no_grad():  # every angle of the window, before any session asks
        model(torch.zeros(1, window_frames, CHANNELS, height, width), torch.zeros(1, window_frames).long())
    facts = {"weights": digest_weights(model, decoder), "source": engine.digest, "options": repr(options)}
    return OpenOasis(model, decoder, torch.cumprod(1 - betas, dim=0), start, facts)


def _fill(model: Any, decoder: Any, weights: str) -> torch.Tensor | None:
    if weights == "random":
        draw_weights(model, WEIGHTS_SEED, kept=("freqs",))
        draw_weights(decoder, WEIGHTS_SEED, kept=("freqs",))
        return None
    from safetensors.torch import load_file, load_model

    folder = find_weights(weights)
    try:
        load_model(model, folder / MODEL_FILE)
        load_model(decoder, folder / DECODER_FILE)
        start: torch.Tensor = load_file(folder / START_FILE)["latents"]
    except (OSError, RuntimeError, LookupError) as error:
        raise BadValue(f"the weights {weights!r} are not this engine's: {error}"[:1000], weights=weights) from error
    return start.float()
