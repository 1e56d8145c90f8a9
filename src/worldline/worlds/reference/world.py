"""The reference world as an engine: trained weights, and sessions with Matrix-Game-2's families of state, small.

A block is two sampling steps, the picture decoder, and a clean pass over what was shown: the palette indices are
encoded again, so that what the caches remember is a picture of this world and small errors never add up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from worldline.errors import BadValue, LayoutRefused
from worldline.schema.inventory import Kind, Realloc, Roll, Rule
from worldline.units import format_bytes
from worldline.worlds.options import read_options
from worldline.worlds.protocol import Memory, Options, Readout, Tree
from worldline.worlds.reference.model import (
    BLOCK_TOKENS,
    LATENT_CHANNELS,
    LATENT_PX,
    WINDOW_FRAMES,
    WINDOW_TOKENS,
    PictureDecoder,
    PictureEncoder,
    Shape,
    WorldTransformer,
)
from worldline.worlds.reference.simulator import (
    ACTIONS,
    BLOCK_FRAMES,
    STAY,
    VIEW_PX,
    Place,
    colours,
    roll_out,
    walkable_places,
)
from worldline.worlds.reference.windows import LEVELS, RollingCache, RollingWindow, as_hint, denoise_block
from worldline.worlds.weights import find_weights

WEIGHTS: Final = Path(__file__).with_name("weights.safetensors")
WEIGHTS_BYTES_MAX: Final = 64 << 20

RULES: Final = (
    Rule("kv/*/[kv]", Kind.CACHE, Roll(dim=1, shift=BLOCK_TOKENS)),
    Rule("action_kv/*/[kv]", Kind.CACHE, Roll(dim=1, shift=BLOCK_FRAMES)),
    Rule("decoder_features/*", Kind.CACHE, Realloc()),
)  # the rest (end indices, last frame, generator, counters) is AUX and rewritten freely


@dataclass(frozen=True, slots=True)
class ReferenceOptions:
    """`weights`: a file of one's own training, in the host's folder of weights, instead of the shipped one."""

    weights: str = ""


@dataclass(frozen=True, slots=True)
class Networks:
    """The weights' three parts, read only while serving."""

    encoder: PictureEncoder
    decoder: PictureDecoder
    transformer: WorldTransformer

    @classmethod
    def from_bytes(cls, weights: bytes) -> Networks:
        """Networks in float32 from a safetensors file's bytes. Raises `BadValue` when it is not one of this world."""
        try:
            tensors = load(weights)
            networks = cls(PictureEncoder(), PictureDecoder(), WorldTransformer())
            for name in ("encoder", "decoder", "transformer"):
                part = {k.removeprefix(f"{name}."): v.float() for k, v in tensors.items() if k.startswith(f"{name}.")}
                getattr(networks, name).load_state_dict(part)
                getattr(networks, name).requires_grad_(False).eval()
        except (SafetensorError, RuntimeError) as error:
            raise BadValue(f"not the reference world's weights: {error}") from error
        return networks


@dataclass(slots=True)
class ReferenceState:
    """All of a session. Sizes for the default shape (4 layers of 5 x 32, 2 action layers of 4 x 16)."""

    kv: list[RollingCache]  # k and v [1, 96, 5, 32]
    action_kv: list[RollingCache]  # k and v [1, 6, 4, 16]
    decoder_features: list[Tensor | None]  # None, then [1, 2, 16, 8, 8] and [1, 2, 64, 8, 8], made anew by every block
    last_frame: Tensor  # [1, 16, 8, 8] latent of the picture shown last: the next block's hint
    noise: torch.Generator
    frame: int = 0  # frames remembered, the three of the opening included


class ReferenceLive:
    """One session."""

    rules: Sequence[Rule] = RULES

    def __init__(self, networks: Networks, state: ReferenceState) -> None:
        self._networks = networks
        self._s = state

    @torch.no_grad()
    def step(self, action: int) -> np.ndarray:
        """uint8 [3, 64, 64, 3]. Raises `BadValue` for an action that is not 0..4; the state is then untouched."""
        if not 0 <= action < len(ACTIONS):
            raise BadValue(f"action {action} is not one of 0..{len(ACTIONS) - 1} ({', '.join(ACTIONS)})")
        s, networks = self._s, self._networks
        window = self._window()
        pressed = torch.tensor([action])
        hint = as_hint(s.last_frame, s.noise)
        sample = denoise_block(networks.transformer, hint, pressed, window, s.noise)
        logits, features = networks.decoder(sample, s.decoder_features)
        views = logits[0].argmax(1)
        self._remember(views, hint, pressed, window)
        s.decoder_features = list(features)
        return colours(views.numpy())

    def state(self) -> Tree:
        s = self._s
        return {
            "kv": [_cache_tree(cache) for cache in s.kv],
            "action_kv": [_cache_tree(cache) for cache in s.action_kv],
            "decoder_features": list(s.decoder_features),
            "last_frame": s.last_frame,
            "noise": s.noise,
            "frame": s.frame,
        }

    @torch.no_grad()
    def begin(self, views: np.ndarray) -> None:
        """Remembers the opening: uint8 [3, 64, 64] palette indices in which the walker stands still."""
        shown = torch.from_numpy(views)
        hint = as_hint(self._networks.encoder(shown[-1:]), self._s.noise)
        self._remember(shown, hint, torch.tensor([STAY]), self._window())

    def _window(self) -> RollingWindow:
        window = RollingWindow(self._s.kv, self._s.action_kv)
        window.block = self._s.frame // BLOCK_FRAMES
        return window

    def _remember(self, views: Tensor, hint: Tensor, pressed: Tensor, window: RollingWindow) -> None:
        """The clean pass over the pictures shown, [3, 64, 64] palette indices, with the hint they were made from."""
        s = self._s
        latents = self._networks.encoder(views)
        self._networks.transformer.remember(latents[None], hint, pressed, window)
        s.last_frame.copy_(latents[-1:])
        s.frame += BLOCK_FRAMES


class ReferenceWorld:
    """See the module."""

    name = "reference"
    actions: Sequence[str] = ACTIONS
    readout = Readout("image", BLOCK_FRAMES, VIEW_PX, VIEW_PX)
    state_bytes_max = 1 << 20

    def __init__(self, options: Options) -> None:
        name = read_options(self.name, ReferenceOptions, options).weights
        path = find_weights(name) if name else WEIGHTS
        try:
            if not path.is_file() or path.stat().st_size > WEIGHTS_BYTES_MAX:
                limit = format_bytes(WEIGHTS_BYTES_MAX)
                raise BadValue(f"weights are a file of at most {limit}, and {path.name!r} is none")
            weights = path.read_bytes()
        except OSError as error:
            raise BadValue(f"can't read the weights {path.name}: {error.strerror}") from error
        self._digest = hashlib.sha256(weights).hexdigest()
        self._networks = Networks.from_bytes(weights)
        self._shape = self._networks.transformer.shape

    def facts(self) -> Mapping[str, str]:
        return {
            "weights_sha256": self._digest,
            "shape": str(self._shape),
            "levels": ",".join(map(str, LEVELS)),
            "window_frames": str(WINDOW_FRAMES),
            "torch": torch.__version__,
        }

    def open(self, seed: int, memory: Memory) -> ReferenceLive:
        """The walker stands somewhere the seed decides, facing the player; the caches hold that sight as block 0."""
        state = ReferenceState(
            kv=[_new_cache(memory, f"kv/{i}", *size) for i, size in enumerate(_token_sizes(self._shape))],
            action_kv=[
                _new_cache(memory, f"action_kv/{i}", *size) for i, size in enumerate(_action_sizes(self._shape))
            ],
            decoder_features=[None, None],
            last_frame=memory.zeros("last_frame", (1, LATENT_CHANNELS, LATENT_PX, LATENT_PX), torch.float32),
            noise=torch.Generator().manual_seed(seed),
        )
        live = ReferenceLive(self._networks, state)
        live.begin(roll_out(opening_place(seed), [STAY])[1])
        return live

    def restore(self, tree: Tree, memory: Memory) -> ReferenceLive:
        """Raises `LayoutRefused` when the caches have other sizes than this world's."""
        t: Any = tree
        state = ReferenceState(
            kv=[RollingCache(**layer) for layer in t["kv"]],
            action_kv=[RollingCache(**layer) for layer in t["action_kv"]],
            decoder_features=list(t["decoder_features"]),
            last_frame=t["last_frame"],
            noise=t["noise"],
            frame=t["frame"],
        )
        for caches, sizes in ((state.kv, _token_sizes(self._shape)), (state.action_kv, _action_sizes(self._shape))):
            if [tuple(cache.k.shape[1:]) for cache in caches] != sizes:
                raise LayoutRefused("the caches are not this world's: another shape or number of layers")
        return ReferenceLive(self._networks, state)


def opening_place(seed: int) -> Place:
    """Where a session of this seed begins."""
    places = walkable_places()
    return Place(*places[int(np.random.default_rng(seed).integers(len(places)))])


def _token_sizes(shape: Shape) -> list[tuple[int, int, int]]:
    return [(WINDOW_TOKENS, shape.heads, shape.head_width)] * shape.layers


def _action_sizes(shape: Shape) -> list[tuple[int, int, int]]:
    return [(WINDOW_FRAMES, shape.action_heads, shape.action_head_width)] * shape.action_layers


def _new_cache(memory: Memory, path: str, rows: int, heads: int, head_width: int) -> RollingCache:
    return RollingCache(
        k=memory.zeros(f"{path}/k", (1, rows, heads, head_width), torch.float32),
        v=memory.zeros(f"{path}/v", (1, rows, heads, head_width), torch.float32),
        global_end_index=memory.zeros(f"{path}/global_end_index", (1,), torch.int64),
        local_end_index=memory.zeros(f"{path}/local_end_index", (1,), torch.int64),
    )


def _cache_tree(cache: RollingCache) -> dict[str, Tensor]:
    return {
        "k": cache.k,
        "v": cache.v,
        "global_end_index": cache.global_end_index,
        "local_end_index": cache.local_end_index,
    }
