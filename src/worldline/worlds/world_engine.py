"""Overworld's world_engine as a world: the transformer and the ring caches of a checkout, a frame a block.

Each layer keeps a true ring of frames and one frame of scratch behind it; global layers keep every n-th frame only. The
caches are buffers of modules that are not persistent, so a `state_dict` of them is empty: here a session has cache
modules of its own, over its own memory. See docs/engines/world-engine.md.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from torch.nn.attention import flex_attention

from worldline.errors import BadValue
from worldline.schema.inventory import Free, Kind, Ring, Rule
from worldline.worlds.checkouts import Edits, find_checkout, load_engine
from worldline.worlds.latent_picture import latent_picture
from worldline.worlds.module_weights import digest_weights, draw_weights
from worldline.worlds.options import read_options
from worldline.worlds.protocol import Memory, Options, Partial, Readout, Tree

NAME: Final = "world-engine"
BUTTONS: Final = 8
MOVES: Final[Mapping[str, tuple[tuple[int, ...], tuple[float, float], float]]] = {
    "stay": ((), (0, 0), 0),
    "forward": ((0,), (0, 0), 0),
    "back": ((1,), (0, 0), 0),
    "left": ((2,), (0, 0), 0),
    "right": ((3,), (0, 0), 0),
    "look left": ((), (-1, 0), 0),
    "look right": ((), (1, 0), 0),
    "forward and look up": ((0,), (0, 1), 0),
    "next tool": ((), (0, 0), 1),
}
"""Buttons that are pressed, the mouse's velocity, and the wheel's sign, of each action."""
ACTIONS: Final = tuple(MOVES)
SIGMAS: Final = (1.0, 0.75, 0.5, 0.25, 0.0)
WEIGHTS_SEED: Final = 16
SHOWN_SCALE: Final = 8


@dataclass(frozen=True, slots=True)
class WorldEngineOptions:
    """Weights are random. Every `global_period`-th layer is global: a longer ring, of every `dilation`-th frame."""

    layers: int = 2
    dim: int = 64
    heads: int = 2
    height: int = 4
    width: int = 4
    channels: int = 8
    local_frames: int = 4
    global_frames: int = 8
    global_period: int = 2
    dilation: int = 2
    horizon_frames: int = 4096

    def __post_init__(self) -> None:
        if not 1 <= self.layers <= 64 or self.heads < 1 or self.dim % (32 * self.heads) or self.dim > 1 << 13:
            raise BadValue("layers must be from 1 to 64, dim a multiple of 32 times the heads and at most 8192")
        if min(self.height, self.width) < 2 or self.height * self.width > 1024 or not 3 <= self.channels <= 64:
            raise BadValue("height and width must be at least 2, of 1024 tokens at most; channels from 3 to 64")
        if not 1 <= self.local_frames <= 256 or not 1 <= self.dilation <= self.global_frames <= 4096:
            raise BadValue("local_frames must be from 1 to 256, global_frames from the dilation to 4096")
        if self.global_frames % self.dilation or self.global_period < 1 or not 1 <= self.horizon_frames <= 1 << 16:
            raise BadValue("global_frames must be a multiple of the dilation; horizon_frames from 1 to 65536")

    @property
    def tokens(self) -> int:
        """A frame's."""
        return self.height * self.width

    def config(self) -> SimpleNamespace:
        """What upstream reads out of its config.yaml."""
        return SimpleNamespace(
            n_layers=self.layers,
            d_model=self.dim,
            n_heads=self.heads,
            n_kv_heads=self.heads,
            height=self.height,
            width=self.width,
            tokens_per_frame=self.tokens,
            patch=(1, 1),
            channels=self.channels,
            n_frames=self.horizon_frames,
            n_buttons=BUTTONS,
            mlp_ratio=2,
            local_window=self.local_frames,
            global_window=self.global_frames,
            global_attn_period=self.global_period,
            global_pinned_dilation=self.dilation,
            noise_conditioning="wan",
            prompt_conditioning=None,
            ctrl_conditioning="mlp_fusion",
            ctrl_conditioning_period=1,
            ctrl_cond_dropout=0.0,
            value_residual=True,
            gated_attn=False,
        )


@dataclass(slots=True)
class WorldEngineState:
    """All of a session. `cache` is upstream's StaticKVCache; of a layer's rows the last frame's are scratch."""

    cache: Any
    frame: torch.Tensor  # int64 [1, 1]
    chance: torch.Generator


@dataclass(frozen=True, slots=True)
class WorldEngine:
    """The model, ready to run. It writes the frame's number into itself in each pass: `running` is held meanwhile."""

    model: Any
    new_cache: Any
    running: threading.Lock
    facts: dict[str, str]


class WorldEngineLive:
    """One session."""

    def __init__(self, engine: WorldEngine, options: WorldEngineOptions, state: WorldEngineState) -> None:
        self.rules: Sequence[Rule] = (
            Rule("layers/*/kv", Kind.CACHE, Ring(dim=3, slot=options.tokens)),
            Rule("*", Kind.AUX, Free()),
        )
        self._engine = engine
        self._options = options
        self._s = state

    @torch.no_grad()
    def step(self, action: int) -> np.ndarray:
        if not 0 <= action < len(ACTIONS):
            raise BadValue(f"the world-engine world has the actions 0 to {len(ACTIONS) - 1}, not {action}")
        s, o = self._s, self._options
        if int(s.frame) >= o.horizon_frames:
            raise BadValue(f"the session's horizon of {o.horizon_frames} frames is spent")
        buttons, mouse, wheel = MOVES[ACTIONS[action]]
        told = {
            "button": torch.zeros(1, 1, BUTTONS).index_fill_(2, torch.tensor(buttons, dtype=torch.int64), 1.0),
            "mouse": torch.tensor([[mouse]], dtype=torch.float32),
            "scroll": torch.tensor([[[wheel]]], dtype=torch.float32),
            "frame_timestamp": s.frame,
        }
        frame = torch.randn(1, 1, o.channels, o.height, o.width, generator=s.chance)
        with self._engine.running:
            s.cache.set_frozen(True)
            for now, later in itertools.pairwise(SIGMAS):
                velocity = self._engine.model(frame, torch.full((1, 1), now), **told, kv_cache=s.cache)
                frame = frame + (later - now) * velocity
            s.cache.set_frozen(False)
            self._engine.model(frame, torch.zeros(1, 1), **told, kv_cache=s.cache)
        s.frame.add_(1)
        return latent_picture(frame, SHOWN_SCALE)

    def state(self) -> Tree:
        s = self._s
        return {
            "layers": [{"kv": Partial(layer.kv, 3, layer.L), "written": layer.written} for layer in s.cache.layers],
            "frame": s.frame,
            "chance": s.chance,
        }


class WorldEngineWorld:
    """See the module."""

    name = NAME
    actions: Sequence[str] = ACTIONS

    def __init__(self, options: Options) -> None:
        o = self._options = read_options(self.name, WorldEngineOptions, options)
        self._engine = _load(o)
        self.readout = Readout("image", 1, o.height * SHOWN_SCALE, o.width * SHOWN_SCALE)
        rows = o.tokens * (max(o.local_frames, o.global_frames) + 1)
        self.state_bytes_max = o.layers * (8 * rows * o.dim + rows + 8192) + 64 * 1024

    def facts(self) -> Mapping[str, str]:
        return self._engine.facts

    def open(self, seed: int, memory: Memory) -> WorldEngineLive:
        cache = self._engine.new_cache()
        for i, layer in enumerate(cache.layers):
            layer.kv = memory.zeros(f"layers/{i}/kv", layer.kv.shape, torch.float32)
            written = memory.zeros(f"layers/{i}/written", layer.written.shape, torch.bool)
            layer.written = written.copy_(layer.written)
        state = WorldEngineState(cache, torch.zeros(1, 1, dtype=torch.int64), torch.Generator().manual_seed(seed))
        return WorldEngineLive(self._engine, self._options, state)

    def restore(self, tree: Tree, memory: Memory) -> WorldEngineLive:
        t: Any = tree
        cache = self._engine.new_cache()
        for layer, saved in zip(cache.layers, t["layers"], strict=True):
            layer.kv, layer.written = saved["kv"].tensor, saved["written"]
        return WorldEngineLive(self._engine, self._options, WorldEngineState(cache, t["frame"], t["chance"]))


def _load(o: WorldEngineOptions) -> WorldEngine:
    here = "worldline.worlds.checkouts"
    edits = Edits(
        modules={"tensordict": f"{here}.layers", "omegaconf": f"{here}.unneeded"},
        values={"cuda": "cpu"},
        plain=frozenset({"torch.compile"}),
        bare=frozenset({"src", "src.model"}),
    )
    names = ["src.model.world_model", "src.model.kv_cache"]
    engine = load_engine(find_checkout(NAME), names, edits, ["rotary_embedding_torch", "einops"])
    # Outside of torch.compile its attention is computed unfused anyway; without this it would be traced for each shape.
    flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    config = o.config()
    with torch.random.fork_rng(devices=[]):
        model = engine["src.model.world_model"].WorldModel(config)
    draw_weights(model, WEIGHTS_SEED, kept=("freqs", "v_lamb"))
    model.eval().requires_grad_(False)

    def new_cache() -> Any:
        return engine["src.model.kv_cache"].StaticKVCache(config, batch_size=1, dtype=torch.float32)

    facts = {"weights": digest_weights(model), "source": engine.digest, "options": repr(o)}
    return WorldEngine(model, new_cache, threading.Lock(), facts)
