"""Options of the world, and the sizes they mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from worldline.errors import BadValue
from worldline.schema.inventory import Free, Kind, Once, Realloc, Roll, Rule, Static

BLOCK_FRAMES: Final = 3
WINDOW_FRAMES: Final = 6
FRAME_INPUTS: Final = 4
"""Action inputs a latent frame; the first frame has one."""
POSITIONS_MAX: Final = 1024
"""Frames for which the engine has a table of positions: no session is longer."""
LATENT_CHANNELS: Final = 16
CONDITION_CHANNELS: Final = 20
CONTEXT_ROWS: Final = 257
CONTEXT_WIDTH: Final = 1280
ACTION_HEAD_WIDTH: Final = 64
KEYBOARD_INPUTS: Final = 4
MOUSE_INPUTS: Final = 2
STEPS: Final = (1000, 666, 333)


@dataclass(frozen=True, slots=True)
class Shape:
    """`latent` height and width, two a token each way. `decoder_width` 0: no decoder, pictures are of latents.

    The first `action_layers` of the layers attend to mouse and keyboard. `steps`: how many of `STEPS` are taken.
    """

    layers: int
    action_layers: int
    dim: int
    heads: int
    ffn: int
    action_heads: int
    latent: tuple[int, int]
    decoder_width: int
    horizon_frames: int
    steps: int

    def __post_init__(self) -> None:
        if not 0 < self.action_layers <= self.layers <= 256:
            raise BadValue("layers must be from 1 to 256, action_layers from 1 to layers")
        if self.dim < 1 or self.heads < 1 or self.dim % (2 * self.heads) or self.dim > 1 << 14:
            raise BadValue(f"dim must be a multiple of twice the heads and at most 16384, not {self.dim}/{self.heads}")
        if min(self.latent) < 2 or self.latent[0] % 2 or self.latent[1] % 2 or self.tokens > 1 << 14:
            raise BadValue(f"latent height and width must be even, for at most 16384 tokens a frame, not {self.latent}")
        if not WINDOW_FRAMES <= self.horizon_frames <= POSITIONS_MAX:
            raise BadValue(f"horizon_frames must be from {WINDOW_FRAMES} to {POSITIONS_MAX}, not {self.horizon_frames}")
        if not 1 <= self.steps <= len(STEPS) or self.ffn < 1 or not 1 <= self.action_heads <= 64:
            raise BadValue(f"steps must be from 1 to {len(STEPS)}, ffn and action_heads at least 1")

    @property
    def tokens(self) -> int:
        """A frame's."""
        return self.latent[0] // 2 * (self.latent[1] // 2)

    @property
    def inputs(self) -> int:
        """Action inputs of the horizon."""
        return 1 + FRAME_INPUTS * (self.horizon_frames - 1)

    @property
    def block_frames(self) -> int:
        """Pictures a block shows."""
        return BLOCK_FRAMES * FRAME_INPUTS if self.decoder_width else BLOCK_FRAMES

    @property
    def picture(self) -> tuple[int, int]:
        zoom = 8 if self.decoder_width else 1
        return self.latent[0] * zoom, self.latent[1] * zoom

    @property
    def state_bytes_max(self) -> int:
        """Float32 throughout; a page for each entry, and a little more."""
        width = WINDOW_FRAMES * self.action_heads * ACTION_HEAD_WIDTH
        numbers = 2 * self.layers * (WINDOW_FRAMES * self.tokens * self.dim + (self.tokens + 1) * width)
        area = self.latent[0] * self.latent[1]
        numbers += (LATENT_CHANNELS + CONDITION_CHANNELS) * self.horizon_frames * area
        numbers += CONTEXT_ROWS * CONTEXT_WIDTH + (KEYBOARD_INPUTS + MOUSE_INPUTS) * self.inputs
        numbers += 2 * area * self._feature_channels()
        return 4 * numbers + 4096 * (12 * self.layers + 48) + 256 * 1024

    def rules(self) -> tuple[Rule, ...]:
        """How the engine writes each family; indexes, the frame and the generator are small and free."""
        tokens = Roll(dim=1, shift=BLOCK_FRAMES * self.tokens)
        made = [Rule(f"kv_cache1/*/{side}", Kind.CACHE, tokens) for side in ("k", "v")]
        for layer in range(self.layers):
            write = Roll(dim=1, shift=BLOCK_FRAMES) if layer < self.action_layers else Static()
            for family in ("kv_cache_mouse", "kv_cache_keyboard"):
                made += [Rule(f"{family}/{layer}/{side}", Kind.CACHE, write) for side in ("k", "v")]
        return (
            *made,
            Rule("crossattn_cache/*", Kind.DERIVED, Once()),
            Rule("feat_cache/*", Kind.CACHE, Realloc()),
            Rule("noise", Kind.HORIZON, Static()),
            Rule("cond/cond_concat", Kind.HORIZON, Static()),
            Rule("cond/visual_context", Kind.CONST, Static()),
            Rule("cond/*", Kind.HORIZON, Free()),
            Rule("*", Kind.AUX, Free()),
        )

    def _feature_channels(self) -> int:
        """Channels of the decoder's 32 features, each counted by its area in latents."""
        w = self.decoder_width
        if not w:
            return 0
        return LATENT_CHANNELS + 44 * w + 4 * (2 * w + 24 * w) + 16 * 12 * w + 64 * 7 * w


SIZES: Final = {
    "small": Shape(2, 1, 48, 2, 96, 2, (4, 8), 4, 1020, 3),
    "widths": Shape(2, 1, 1536, 12, 1536, 16, (44, 80), 0, 150, 1),
    "real": Shape(30, 15, 1536, 12, 8960, 16, (44, 80), 96, 150, 3),
}


@dataclass(frozen=True, slots=True)
class MatrixGame2Options:
    """`size`: `small` for tests and a CPU, `widths` for two layers of the real caches' widths, `real` for the released
    configuration. A number that is not 0 stands in place of the size's.

    `weights`: `random`, or a folder of the host's folder of weights (docs/engines/matrix-game-2.md).
    """

    size: str = "small"
    weights: str = "random"
    layers: int = 0
    action_layers: int = 0
    dim: int = 0
    heads: int = 0
    ffn: int = 0
    action_heads: int = 0
    latent_height: int = 0
    latent_width: int = 0
    horizon_frames: int = 0
    steps: int = 0
    decoder_width: int = 0
    decoder: bool = True

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise BadValue(f"size must be one of {', '.join(SIZES)}, not {self.size[:40]!r}")

    def shape(self) -> Shape:
        size = SIZES[self.size]
        names = ("layers", "action_layers", "dim", "heads", "ffn", "action_heads", "horizon_frames", "steps")
        given = {name: getattr(self, name) for name in names if getattr(self, name)}
        return replace(
            size,
            latent=(self.latent_height or size.latent[0], self.latent_width or size.latent[1]),
            decoder_width=(self.decoder_width or size.decoder_width) if self.decoder else 0,
            **given,
        )
