"""The engine's own modules, loaded out of a checkout, with weights in them."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from worldline.errors import BadValue
from worldline.worlds.checkouts import Edits, find_checkout, load_engine
from worldline.worlds.matrix_game_2.shape import (
    ACTION_HEAD_WIDTH,
    BLOCK_FRAMES,
    CONDITION_CHANNELS,
    CONTEXT_ROWS,
    CONTEXT_WIDTH,
    KEYBOARD_INPUTS,
    LATENT_CHANNELS,
    MOUSE_INPUTS,
    STEPS,
    WINDOW_FRAMES,
    Shape,
)
from worldline.worlds.module_weights import digest_weights, draw_weights
from worldline.worlds.weights import find_weights

NAME: Final = "matrix-game-2"
_HERE: Final = "worldline.worlds.checkouts"
WEIGHTS_SEED: Final = 2
GENERATOR_FILE, DECODER_FILE, START_FILE = "base_distill.safetensors", "Wan2.1_VAE.pth", "start.safetensors"


@dataclass(frozen=True, slots=True)
class MatrixGame2:
    """Weights ready to run, to which no session writes.

    `start`: the first picture's latent [1, 16, 1, height, width] and its `visual_context` [1, 257, 1280]; None: drawn.
    """

    generator: Any  # upstream's WanDiffusionWrapper
    decoder: Any  # upstream's VAEDecoderWrapper, or None
    times: torch.Tensor  # of the denoising steps, float32 [steps]
    start: dict[str, torch.Tensor] | None
    facts: dict[str, str]


def load_matrix_game_2(shape: Shape, weights: str) -> MatrixGame2:
    """The engine at this shape. Raises `MissingExtra` without the checkout, `BadValue` for weights that don't fit."""
    engine = load_engine(
        find_checkout(NAME),
        ["utils.wan_wrapper", "demo_utils.vae_block3"],
        _edits(shape),
        first=["diffusers.loaders", "diffusers.models.modeling_utils"],
    )
    with torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(io.StringIO()):
        wrapper = engine["utils.wan_wrapper"].WanDiffusionWrapper(_config(shape), timestep_shift=5.0, is_causal=True)
        decoder = _decoder(engine["demo_utils.vae_block3"], shape.decoder_width) if shape.decoder_width else None
    wrapper.model.num_frame_per_block = BLOCK_FRAMES
    start = _fill(wrapper, decoder, weights)
    parts = [part.float().eval().requires_grad_(False) for part in (wrapper, decoder) if part is not None]
    times = torch.cat([wrapper.scheduler.timesteps, torch.zeros(1)])[1000 - torch.tensor(STEPS[: shape.steps])]
    facts = {"weights": digest_weights(*parts), "source": engine.digest, "shape": repr(shape)}
    return MatrixGame2(wrapper, decoder, times, start, facts)


def _edits(shape: Shape) -> Edits:
    """880 tokens a frame are written into the text in many places; they are this shape's."""
    return Edits(
        modules={
            "flash_attn": f"{_HERE}.attention",
            "flash_attn_interface": None,
            "wan.modules.attention": f"{_HERE}.attention",
            "wan.modules.tokenizers": f"{_HERE}.unneeded",
        },
        values={880: shape.tokens},
        constants={"torch.cuda.current_device": "cpu"},
        plain=frozenset({"torch.compile"}),
        bare=frozenset({"wan", "wan.modules", "utils"}),
    )


def _config(shape: Shape) -> dict[str, Any]:
    hidden = ACTION_HEAD_WIDTH * shape.action_heads
    small = 128 if shape.dim >= 1536 else 16
    return {
        "action_config": {
            "blocks": list(range(shape.action_layers)),
            "enable_keyboard": True,
            "enable_mouse": True,
            "heads_num": shape.action_heads,
            "hidden_size": small,
            "img_hidden_size": shape.dim,
            "keyboard_dim_in": KEYBOARD_INPUTS,
            "keyboard_hidden_dim": hidden,
            "mouse_dim_in": MOUSE_INPUTS,
            "mouse_hidden_dim": hidden,
            "mouse_qk_dim_list": [8, 28, 28],
            "patch_size": [1, 2, 2],
            "qk_norm": True,
            "qkv_bias": False,
            "rope_dim_list": [8, 28, 28],
            "rope_theta": 256,
            "vae_time_compression_ratio": 4,
            "windows_size": 3,
        },
        "dim": shape.dim,
        "eps": 1e-6,
        "ffn_dim": shape.ffn,
        "freq_dim": 256,
        "in_dim": LATENT_CHANNELS + CONDITION_CHANNELS,
        "local_attn_size": WINDOW_FRAMES,
        "model_type": "i2v",
        "num_heads": shape.heads,
        "num_layers": shape.layers,
        "out_dim": LATENT_CHANNELS,
        "sink_size": 0,
        "text_len": 512,
    }


def _decoder(module: Any, width: int) -> Any:
    wrapper = module.VAEDecoderWrapper()
    if width != wrapper.decoder.dim:
        wrapper.decoder = module.VAEDecoder3d(dim=width)
    return wrapper


def _fill(wrapper: Any, decoder: Any, weights: str) -> dict[str, torch.Tensor] | None:
    if weights == "random":
        for part in (wrapper, decoder):
            if part is not None:
                draw_weights(part, WEIGHTS_SEED)
        return None
    folder = find_weights(weights)
    try:
        wrapper.load_state_dict(_safetensors(folder / GENERATOR_FILE))
        if decoder is not None:
            # Released in this form only; `weights_only` reads tensors and nothing that could run.
            held = torch.load(folder / DECODER_FILE, map_location="cpu", weights_only=True)
            decoder.load_state_dict({k: v for k, v in held.items() if "decoder." in k or "conv2" in k})
        start = _safetensors(folder / START_FILE)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadValue(f"the weights {weights!r} are not this engine's: {error}"[:1000], weights=weights) from error
    context = (1, CONTEXT_ROWS, CONTEXT_WIDTH)
    if start.keys() != {"latent", "visual_context"} or start["visual_context"].shape != context:
        raise BadValue(f"{START_FILE} must hold a latent and a visual_context of the shape {context}")
    return {name: tensor.float() for name, tensor in start.items()}


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path)
