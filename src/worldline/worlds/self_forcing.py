"""Self-Forcing as a world: the causal Wan 2.1 transformer of a checkout, with a window that rolls behind a sink.

A block is three latent frames, made in up to four steps of denoising and read once more at time 0, which leaves their
keys and values in the caches. It is told by prompts alone: an action is one of a small table of prompt embeddings, and
another prompt than before makes the cross-attention's caches anew. See docs/engines/self-forcing.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from worldline.errors import BadValue
from worldline.schema.inventory import Free, Kind, Once, Roll, Rule, Static
from worldline.worlds.checkouts import Edits, find_checkout, load_engine
from worldline.worlds.latent_picture import latent_picture
from worldline.worlds.module_weights import digest_weights, draw_weights
from worldline.worlds.options import read_options
from worldline.worlds.protocol import Memory, Options, Readout, Tree

NAME: Final = "self-forcing"
ACTIONS: Final = ("go on", "turn left", "turn right", "stop", "night falls")
BLOCK_FRAMES: Final = 3
CHANNELS: Final = 16
TEXT_ROWS, TEXT_WIDTH = 16, 32
POSITIONS_MAX: Final = 1024
STEPS: Final = (1000, 750, 500, 250)
WEIGHTS_SEED: Final = 21
SHOWN_SCALE: Final = 4


@dataclass(frozen=True, slots=True)
class SelfForcingOptions:
    """Weights are random. The window holds `window_frames`, of which the first `sink_frames` stay for ever."""

    layers: int = 2
    dim: int = 48
    heads: int = 2
    latent_height: int = 4
    latent_width: int = 8
    window_frames: int = 6
    sink_frames: int = 1
    horizon_frames: int = 1020
    steps: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.layers <= 64 or self.heads < 1 or self.dim % (2 * self.heads) or not 2 <= self.dim <= 1 << 13:
            raise BadValue("layers must be from 1 to 64, dim a multiple of twice the heads and at most 8192")
        if min(self.latent_height, self.latent_width) < 2 or self.latent_height % 2 or self.latent_width % 2:
            raise BadValue("latent_height and latent_width must be even")
        if (
            self.sink_frames < 0
            or not self.sink_frames + BLOCK_FRAMES <= self.window_frames <= 64
            or self.tokens > 4096
        ):
            raise BadValue(
                f"a window holds its sink and {BLOCK_FRAMES} frames more, 64 at most, of 4096 tokens at most"
            )
        if not self.window_frames <= self.horizon_frames <= POSITIONS_MAX or not 1 <= self.steps <= len(STEPS):
            raise BadValue(f"horizon_frames must be from the window to {POSITIONS_MAX}, steps from 1 to {len(STEPS)}")

    @property
    def tokens(self) -> int:
        """A frame's."""
        return self.latent_height // 2 * (self.latent_width // 2)

    def rules(self) -> tuple[Rule, ...]:
        """The window rolls by whole frames; only a window of whole blocks behind its sink rolls by one block."""
        rows = Roll(dim=1, shift=BLOCK_FRAMES * self.tokens, keep=self.sink_frames * self.tokens)
        return (
            Rule("kv_cache1/*/k", Kind.CACHE, rows),
            Rule("kv_cache1/*/v", Kind.CACHE, rows),
            Rule("crossattn_cache/*", Kind.DERIVED, Once()),
            Rule("noise", Kind.HORIZON, Static()),
            Rule("*", Kind.AUX, Free()),
        )


@dataclass(slots=True)
class SelfForcingState:
    """All of a session. `crossattn_cache` follows from `prompt`, and is made anew where that is -1 or another one."""

    kv_cache1: list[dict[str, torch.Tensor]]  # k, v [1, window * tokens, heads, width]; two int64 [1]
    crossattn_cache: list[dict[str, Any]]
    noise: torch.Tensor  # [1, horizon, 16, height, width]
    current_start_frame: int
    chance: torch.Generator
    prompt: int = -1  # that crossattn_cache is of


class SelfForcingLive:
    """One session."""

    def __init__(self, engine: SelfForcing, options: SelfForcingOptions, state: SelfForcingState) -> None:
        self.rules: Sequence[Rule] = options.rules()
        self._engine = engine
        self._options = options
        self._s = state

    @torch.no_grad()
    def step(self, action: int) -> np.ndarray:
        if not 0 <= action < len(ACTIONS):
            raise BadValue(f"the self-forcing world has the actions 0 to {len(ACTIONS) - 1}, not {action}")
        s = self._s
        end = s.current_start_frame + BLOCK_FRAMES
        if end > self._options.horizon_frames:
            raise BadValue(f"the session's horizon of {self._options.horizon_frames} frames is spent")
        if action != s.prompt:
            s.prompt = action
            s.crossattn_cache = [{"is_init": False} for _ in s.crossattn_cache]
        clean = self._run(s.noise[:, s.current_start_frame : end], self._engine.times[0])
        for time in self._engine.times[1:]:
            fresh = torch.randn(clean.shape[1:], generator=s.chance)
            noisy = self._engine.wrapper.scheduler.add_noise(clean[0], fresh, time.repeat(BLOCK_FRAMES))
            clean = self._run(noisy[None], time)
        self._run(clean, torch.zeros(()))
        s.current_start_frame = end
        return latent_picture(clean, SHOWN_SCALE)

    def state(self) -> Tree:
        s = self._s
        return {
            "kv_cache1": [dict(layer) for layer in s.kv_cache1],
            "crossattn_cache": [dict(layer) for layer in s.crossattn_cache],
            "noise": s.noise,
            "current_start_frame": s.current_start_frame,
            "chance": s.chance,
        }

    def _run(self, frames: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """One pass over [1, 3, 16, height, width]; writes the block's keys and values."""
        s = self._s
        _, clean = self._engine.wrapper(
            noisy_image_or_video=frames,
            conditional_dict={"prompt_embeds": self._engine.prompts[s.prompt][None]},
            timestep=time.repeat(1, BLOCK_FRAMES),
            kv_cache=s.kv_cache1,
            crossattn_cache=s.crossattn_cache,
            current_start=s.current_start_frame * self._options.tokens,
        )
        shown: torch.Tensor = clean
        return shown


class SelfForcingWorld:
    """See the module."""

    name = NAME
    actions: Sequence[str] = ACTIONS

    def __init__(self, options: Options) -> None:
        o = self._options = read_options(self.name, SelfForcingOptions, options)
        self._engine = _load(o)
        self.readout = Readout("image", BLOCK_FRAMES, o.latent_height * SHOWN_SCALE, o.latent_width * SHOWN_SCALE)
        caches = 2 * o.layers * o.window_frames * o.tokens * o.dim
        noise = o.horizon_frames * CHANNELS * o.latent_height * o.latent_width
        self.state_bytes_max = 4 * (caches + noise) + 4096 * (4 * o.layers + 1) + 64 * 1024

    def facts(self) -> Mapping[str, str]:
        return self._engine.facts

    def open(self, seed: int, memory: Memory) -> SelfForcingLive:
        o, chance = self._options, torch.Generator().manual_seed(seed)
        rows = (1, o.window_frames * o.tokens, o.heads, o.dim // o.heads)
        caches = [
            {side: memory.zeros(f"kv_cache1/{i}/{side}", rows, torch.float32) for side in ("k", "v")}
            | {
                index: memory.zeros(f"kv_cache1/{i}/{index}", (1,), torch.int64)
                for index in ("global_end_index", "local_end_index")
            }
            for i in range(o.layers)
        ]
        noise = torch.randn(1, o.horizon_frames, CHANNELS, o.latent_height, o.latent_width, generator=chance)
        state = SelfForcingState(caches, self._fresh_context(), noise, 0, chance)
        return SelfForcingLive(self._engine, o, state)

    def restore(self, tree: Tree, memory: Memory) -> SelfForcingLive:
        t: Any = tree
        caches = [dict(layer) for layer in t["kv_cache1"]]
        rest = (t["noise"], t["current_start_frame"], t["chance"])
        return SelfForcingLive(self._engine, self._options, SelfForcingState(caches, self._fresh_context(), *rest))

    def _fresh_context(self) -> list[dict[str, Any]]:
        return [{"is_init": False} for _ in range(self._options.layers)]


@dataclass(frozen=True, slots=True)
class SelfForcing:
    """The model and its prompts, ready to run, to which no session writes."""

    wrapper: Any  # upstream's WanDiffusionWrapper
    times: torch.Tensor  # of the denoising steps, float32 [steps]
    prompts: torch.Tensor  # [actions, rows, width]
    facts: dict[str, str]


def _load(o: SelfForcingOptions) -> SelfForcing:
    here = "worldline.worlds.checkouts"
    edits = Edits(
        modules={"wan.modules.attention": f"{here}.attention"}
        | {f"wan.modules.{name}": f"{here}.unneeded" for name in ("tokenizers", "t5", "vae")},
        values={1560: o.tokens, 32760: 21 * o.tokens},
        constants={"torch.cuda.current_device": "cpu"},
        plain=frozenset({"torch.compile"}),
        bare=frozenset({"wan", "wan.modules", "utils"}),
    )
    before = ["diffusers.loaders", "diffusers.models.modeling_utils"]
    engine = load_engine(find_checkout(NAME), ["utils.wan_wrapper", "wan.modules.causal_model"], edits, before)
    with torch.random.fork_rng(devices=[]):
        model = engine["wan.modules.causal_model"].CausalWanModel(
            model_type="t2v",
            text_len=TEXT_ROWS,
            in_dim=CHANNELS,
            dim=o.dim,
            ffn_dim=2 * o.dim,
            freq_dim=32,
            text_dim=TEXT_WIDTH,
            out_dim=CHANNELS,
            num_heads=o.heads,
            num_layers=o.layers,
            local_attn_size=o.window_frames,
            sink_size=o.sink_frames,
        )
    model.num_frame_per_block = BLOCK_FRAMES
    wrapper = _wrap(engine["utils.wan_wrapper"], model)
    draw_weights(wrapper, WEIGHTS_SEED)
    wrapper.float().eval().requires_grad_(False)
    drawn = np.random.default_rng(WEIGHTS_SEED).integers(-1024, 1025, (len(ACTIONS), TEXT_ROWS, TEXT_WIDTH)) / 512
    times = torch.cat([wrapper.scheduler.timesteps, torch.zeros(1)])[1000 - torch.tensor(STEPS[: o.steps])]
    facts = {"weights": digest_weights(wrapper), "source": engine.digest, "options": repr(o)}
    return SelfForcing(wrapper, times, torch.from_numpy(drawn.astype(np.float32)), facts)


def _wrap(upstream: Any, model: Any) -> Any:
    """Upstream's wrapper around this model; its own constructor reads a model from a fixed folder."""

    class Wrapper(upstream.WanDiffusionWrapper):  # type: ignore[misc]
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.model = model
            self.uniform_timestep = False
            self.seq_len = POSITIONS_MAX * model.dim
            self.scheduler = upstream.FlowMatchScheduler(shift=5.0, sigma_min=0.0, extra_one_step=True)
            self.scheduler.set_timesteps(1000, training=True)
            self.post_init()

    return Wrapper()
