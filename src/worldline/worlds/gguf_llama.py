"""Llama models out of a GGUF file, in seconds: transformers' own way parses the file three times, string by string.

Format: ggml's docs/gguf.md, version 3. Weights are dequantised by the gguf package and come out as transformers' do,
bit for bit; a test holds their digest.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from worldline.errors import BadValue

MAGIC: Final = b"GGUF"
VERSION: Final = 3
COUNT_MAX: Final = 1 << 24
DEPTH_MAX: Final = 2
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.weight\Z")


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as the file has it: slowest dimension first, `kind` is ggml's type, `offset` from the data's start."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile:
    """What a file says: `facts` by key, tensors by ggml's names."""

    def __init__(self, path: Path) -> None:
        """Raises `BadValue` for what is no GGUF file of version 3."""
        self._at = 0
        self.facts: dict[str, Any] = {}
        self.stored: dict[str, Stored] = {}
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._read()
        except (struct.error, ValueError, KeyError) as error:
            raise BadValue(f"{path.name} is cut or damaged: {error!r}") from error

    def tensor(self, name: str) -> np.ndarray:
        """float32, dequantised."""
        from gguf import GGMLQuantizationType, quant_shape_to_byte_shape
        from gguf.quants import dequantize

        stored = self.stored[name]
        kind = GGMLQuantizationType(stored.kind)
        shape = stored.shape
        if kind is not GGMLQuantizationType.F32:
            shape = quant_shape_to_byte_shape(shape, kind)
        dtype = np.float32 if kind is GGMLQuantizationType.F32 else np.uint8
        raw = np.frombuffer(self._data, dtype, count=int(np.prod(shape)), offset=self._start + stored.offset)
        values: np.ndarray = dequantize(raw.reshape(shape), kind)
        return values.astype(np.float32, copy=True).reshape(stored.shape)

    def _read(self) -> None:
        if self._data[:4] != MAGIC or struct.unpack_from("<I", self._data, 4)[0] != VERSION:
            raise BadValue(f"the file is no GGUF of version {VERSION}")
        self._at = 8
        tensors, facts = self._count(), self._count()
        for _ in range(facts):
            key = self._text()
            self.facts[key] = self._value(self._number("I"), DEPTH_MAX)
        for _ in range(tensors):
            name = self._text()
            sizes = [self._number("Q") for _ in range(self._number("I"))]
            self.stored[name] = Stored(tuple(reversed(sizes)), self._number("I"), self._number("Q"))
        alignment = self.facts.get("general.alignment", 32)
        self._start = -(-self._at // alignment) * alignment

    def _value(self, kind: int, depth_left: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            return self._number(_FORMATS[kind])
        item, count = self._number("I"), self._count()
        if item in _FORMATS:
            values = struct.unpack_from(f"<{count}{_FORMATS[item]}", self._data, self._at)
            self._at += struct.calcsize(f"<{count}{_FORMATS[item]}")
            return list(values)
        if not depth_left:
            raise BadValue("the GGUF file nests its arrays too deep")
        return [self._value(item, depth_left - 1) for _ in range(count)]

    def _count(self) -> int:
        count: int = self._number("Q")
        if count > COUNT_MAX:
            raise BadValue(f"the GGUF file counts {count} entries, more than {COUNT_MAX}")
        return count

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += struct.calcsize(f"<{code}")
        return value

    def _text(self) -> str:
        size = self._count()
        self._at += size
        return self._data[self._at - size : self._at].decode()


def llama_config(file: GgufFile) -> dict[str, Any]:
    """Arguments of transformers' `LlamaConfig`. Raises `BadValue` for a model that is no plain llama."""
    facts = file.facts
    if facts.get("general.architecture") != "llama" or any("expert" in key or "rope.scaling" in key for key in facts):
        raise BadValue("GGUF files are read of plain llama models only; give a directory of transformers' format")
    heads = facts["llama.attention.head_count"]
    return {
        "vocab_size": file.stored["token_embd.weight"].shape[0],
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts.get("llama.attention.head_count_kv", heads),
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": facts.get("llama.rope.freq_base", 10000.0)},
        "tie_word_embeddings": "output.weight" not in file.stored,
        "bos_token_id": facts.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": facts.get("tokenizer.ggml.eos_token_id"),
    }


def llama_weights(file: GgufFile) -> dict[str, np.ndarray]:
    """Float32 arrays by transformers' names. Raises `BadValue` for a tensor that a plain llama doesn't have."""
    weights: dict[str, np.ndarray] = {}
    for name in file.stored:
        block = _BLOCK.match(name)
        if block is not None and block[2] in _BLOCK_NAMES:
            value = file.tensor(name)
            if block[2] in {"attn_q", "attn_k"}:
                key = "head_count" if block[2] == "attn_q" else "head_count_kv"
                value = _half_rotation(value, file.facts[f"llama.attention.{key}"])
            weights[f"model.layers.{block[1]}.{_BLOCK_NAMES[block[2]]}.weight"] = value
        elif name in _NAMES:
            weights[_NAMES[name]] = file.tensor(name)
        elif name != "rope_freqs.weight":
            raise BadValue(f"the GGUF file has a tensor {name!r}, which no plain llama has")
    return weights


def _half_rotation(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows in transformers' order: ggml rotates neighbouring rows of a head, transformers row i with row i + half."""
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


class GgufTokenizer:
    """The file's byte-level BPE."""

    def __init__(self, file: GgufFile) -> None:
        """Raises `BadValue` for another kind of tokenizer."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        facts = file.facts
        if facts.get("tokenizer.ggml.model") != "gpt2":
            raise BadValue("GGUF files are read with a byte-level tokenizer only; give a directory")
        words, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
        merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
        self._bpe = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        self._bpe.decoder = decoders.ByteLevel()
        self.special_ids = [i for i, kind in enumerate(kinds) if kind == 3]  # ggml's "control"
        self._bpe.add_special_tokens([AddedToken(words[i], special=True) for i in self.special_ids])

    def encode(self, text: str) -> list[int]:
        return list(self._bpe.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Any) -> str:
        text: str = self._bpe.decode(list(ids), skip_special_tokens=False)
        return text
