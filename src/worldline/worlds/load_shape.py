"""Matrix-Game-2's session as a list of tensors, at any number of tokens a frame.

`load` allocates from these shapes, and the rewritten fraction follows from them. Sizes: SkyworkAI/Matrix-Game,
Matrix-Game-2 (pipeline/causal_inference.py, configs/distilled_model/universal/config.json). The decoder's feature cache
holds the last two input frames of each of the 32 causal convolutions of the Wan 2.1 decoder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from worldline.errors import BadValue
from worldline.schema.inventory import Append, Free, Kind, Once, Realloc, Ring, Roll, Static, WriteRule

FULL_TOKENS = 880
"""Tokens a frame at scale 1: 22 x 40 patches of a 44 x 80 latent."""
FULL_LAYERS = 30
WINDOW_FRAMES = 6
BLOCK_FRAMES = 3
HEADS, HEAD_WIDTH = 12, 128
ACTION_HEADS, ACTION_HEAD_WIDTH = 16, 64
FULL_CONTEXT_TOKENS = 257
CONTEXT_WIDTH = 1280
LATENT_CHANNELS, CONDITION_CHANNELS = 16, 20
DECODER_WIDTH = 96
TIME_CONVOLUTIONS = (11, 18)
"""Entries of the feature cache that are `None`, then the string `"Rep"`, then tensors."""
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "int64": 8}


class Family(StrEnum):
    """What the paper counts: its S is the cache family alone; a move takes everything."""

    CACHE = "cache"
    DECODER = "decoder"
    HORIZON = "horizon"
    AUX = "aux"


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a session. `resident`: written in place for life, so allocated from the arena."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    family: Family
    kind: Kind
    write: WriteRule
    resident: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]

    @property
    def rewritten_bytes(self) -> int:
        """Bytes that a block rewrites once the window is full."""
        return rewritten_bytes(self.write, self.shape, self.nbytes)


@dataclass(frozen=True, slots=True)
class Shape:
    """`tokens` a frame, `layers` of which half attend to actions, `horizon_frames` laid out ahead, decoder or not."""

    tokens: int = FULL_TOKENS
    layers: int = FULL_LAYERS
    horizon_frames: int = 150
    vae: bool = True

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.layers < 2 or self.layers % 2 or self.horizon_frames < WINDOW_FRAMES:
            raise BadValue(
                f"a session needs 1 token a frame or more (not {self.tokens}), an even number of layers"
                f" (not {self.layers}) and a horizon of {WINDOW_FRAMES} frames or more (not {self.horizon_frames})"
            )

    @property
    def action_layers(self) -> int:
        return self.layers // 2

    @property
    def context_tokens(self) -> int:
        """In proportion, so that the rewritten fraction is the same at every scale."""
        return max(1, round(FULL_CONTEXT_TOKENS * self.tokens / FULL_TOKENS))

    @property
    def latent_px(self) -> tuple[int, int]:
        """Height and width of a latent: two a patch each way, as near to 44 : 80 as the tokens allow."""
        wished = math.sqrt(self.tokens * 22 / 40)
        rows = min((n for n in range(1, self.tokens + 1) if self.tokens % n == 0), key=lambda n: abs(n - wished))
        return 2 * rows, 2 * (self.tokens // rows)

    def entries(self) -> Iterator[Entry]:
        """Every tensor of a session whose window is full, in the order of the state tree."""
        for i in range(self.layers):
            yield from self._layer(i)
        if self.vae:
            yield from self._features()
        yield from self._horizon()

    def _layer(self, i: int) -> Iterator[Entry]:
        window = (1, WINDOW_FRAMES * self.tokens, HEADS, HEAD_WIDTH)
        tokens = Roll(dim=1, shift=BLOCK_FRAMES * self.tokens)
        actions = Roll(dim=1, shift=BLOCK_FRAMES) if i < self.action_layers else Static()
        caches: tuple[tuple[str, tuple[int, ...], WriteRule], ...] = (
            ("kv_cache1", window, tokens),
            ("kv_cache_mouse", (self.tokens, WINDOW_FRAMES, ACTION_HEADS, ACTION_HEAD_WIDTH), actions),
            ("kv_cache_keyboard", (1, WINDOW_FRAMES, ACTION_HEADS, ACTION_HEAD_WIDTH), actions),
        )
        for name, shape, write in caches:
            for side in ("k", "v"):
                yield Entry(f"{name}/{i}/{side}", shape, "bfloat16", Family.CACHE, Kind.CACHE, write, resident=True)
            for index in ("global_end_index", "local_end_index"):
                yield Entry(f"{name}/{i}/{index}", (1,), "int64", Family.AUX, Kind.AUX, Free(), resident=True)
        context = (1, self.context_tokens, HEADS, HEAD_WIDTH)
        for side in ("k", "v"):
            yield Entry(f"crossattn_cache/{i}/{side}", context, "bfloat16", Family.CACHE, Kind.CACHE, Once())

    def _features(self) -> Iterator[Entry]:
        height, width = self.latent_px
        wide, half, thin = 4 * DECODER_WIDTH, 2 * DECODER_WIDTH, DECODER_WIDTH
        plan = (
            [(LATENT_CHANNELS, 1), *[(wide, 1)] * 10, (wide, 1)]  # first, middle and stage 0, time convolution
            + [(half, 2), *[(wide, 2)] * 5, (wide, 2)]  # stage 1, time convolution
            + [(half, 4)] * 6
            + [(thin, 8)] * 6
            + [(thin, 8)]  # head
        )
        for i, (channels, zoom) in enumerate(plan):
            shape = (1, channels, 2, zoom * height, zoom * width)
            yield Entry(f"feat_cache/{i}", shape, "float16", Family.DECODER, Kind.CACHE, Realloc())

    def _horizon(self) -> Iterator[Entry]:
        frames, latent = self.horizon_frames, self.latent_px
        inputs = 4 * frames - 3
        plan: tuple[tuple[str, tuple[int, ...], Kind, WriteRule], ...] = (
            ("noise", (1, LATENT_CHANNELS, frames, *latent), Kind.HORIZON, Static()),
            ("cond/cond_concat", (1, CONDITION_CHANNELS, frames, *latent), Kind.HORIZON, Static()),
            ("cond/visual_context", (1, self.context_tokens, CONTEXT_WIDTH), Kind.CONST, Static()),
            ("cond/mouse_cond", (1, inputs, 2), Kind.HORIZON, Free()),
            ("cond/keyboard_cond", (1, inputs, 4), Kind.HORIZON, Free()),
        )
        for path, shape, kind, write in plan:
            yield Entry(path, shape, "bfloat16", Family.HORIZON, kind, write)
        yield Entry("thought", (self.layers, HEAD_WIDTH), "float32", Family.AUX, Kind.AUX, Free())


def rewritten_bytes(write: WriteRule, shape: tuple[int, ...], nbytes: int) -> int:
    """Of a tensor of so many bytes: what a block rewrites once the window is full, as its rule says."""
    match write:
        case Roll(dim=dim, keep=keep):
            return nbytes * (shape[dim] - keep) // shape[dim]
        case Ring(dim=dim, slot=slot):
            return nbytes * slot // shape[dim]
        case Realloc() | Free():
            return nbytes
        case Static() | Once() | Append():
            return 0
        case _:
            assert_never(write)


def new_bytes(write: WriteRule, shape: tuple[int, ...], nbytes: int) -> int:
    """Of what a block rewrites: the rows that were nowhere before."""
    if isinstance(write, Roll):
        return nbytes * write.shift // shape[write.dim]
    return rewritten_bytes(write, shape, nbytes)


def state_bytes(entries: Iterable[Entry], *families: Family) -> int:
    """Bytes of the entries of these families, of all where none is named."""
    return sum(entry.nbytes for entry in entries if not families or entry.family in families)


def rewritten_fraction(entries: Iterable[Entry], *families: Family) -> float:
    """Share of these families' bytes that one block rewrites once the window is full."""
    chosen = [entry for entry in entries if not families or entry.family in families]
    return sum(entry.rewritten_bytes for entry in chosen) / state_bytes(chosen)


def shape_of_size(target_bytes: int, layers: int, horizon_frames: int, vae: bool) -> Shape:
    """The shape whose whole state is nearest to `target_bytes`. Raises `BadValue` below the smallest."""

    def shape(tokens: int) -> Shape:
        return Shape(tokens, layers, horizon_frames, vae)

    def size(tokens: int) -> int:
        return state_bytes(shape(tokens).entries())

    smallest = size(1)
    step = (size(FULL_TOKENS) - smallest) / (FULL_TOKENS - 1)
    if target_bytes < smallest // 2:
        raise BadValue(f"the smallest load session of {layers} layers has {smallest} bytes; fewer layers, fewer bytes")
    guess = 1 + max(0, round((target_bytes - smallest) / step))
    tokens = min(range(max(1, guess - 2), guess + 3), key=lambda n: abs(size(n) - target_bytes))
    return shape(tokens)
