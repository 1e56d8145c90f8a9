"""The tiny world: a few kilobytes of state with every oddity that real engines show, for tests of everything above it.

`worldline.testing.tiny:TinyWorld` is a full `World`: it passes the conformance suite, steps in a millisecond and shows
noise. Each block digests the whole state, so that a single wrong bit changes the next picture and all that follow.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import blake3
import numpy as np
import torch

from worldline.errors import BadValue
from worldline.schema.inventory import Append, Kind, Once, Realloc, Ring, Roll, Rule, Static
from worldline.worlds.options import read_options
from worldline.worlds.protocol import Memory, Options, Partial, Readout, Tree

ACTIONS = ("stay", "forward", "back", "left", "right")
LAYERS = 2
WINDOW_ROWS = 7
KEPT_ROWS = 1
NEW_ROWS = 2
RING_SLOTS = 5
PAIR_ROWS = 4
LOG_ROWS = 4096
FRAMES = 3
SIDE_PX = 8

_GARBAGE = itertools.count(1)
"""What unwritten memory holds: never the same twice, as in life."""

RULES: Final = (
    Rule("derived/*", Kind.DERIVED, Static()),
    Rule("cache/*", Kind.CACHE, Roll(dim=0, shift=NEW_ROWS, keep=KEPT_ROWS)),
    Rule("ring", Kind.CACHE, Ring(dim=0, slot=1)),
    Rule("pairs/*", Kind.CACHE, Realloc()),
    Rule("features/*", Kind.CACHE, Realloc()),
    Rule("log", Kind.CACHE, Append(dim=0)),
    Rule("cross/*", Kind.CACHE, Once()),
    Rule("noise", Kind.HORIZON, Static()),
    Rule("prompt", Kind.CONST, Static()),
)


@dataclass(frozen=True, slots=True)
class TinyOptions:
    """`width` sets the size, `flavour` gives another plan, `fail_at` a block inside which the engine dies (0: never),
    `block_period_ms` how long a block takes at least.
    """

    width: int = 16
    flavour: str = ""
    fail_at: int = 0
    block_period_ms: float = 0.0

    def __post_init__(self) -> None:
        if not 8 <= self.width <= 1 << 22 or self.width % 8:
            raise BadValue(f"width must be a multiple of 8 from 8 to {1 << 22}, not {self.width}")


class TinyModel:
    """The shared module. Like some real ones it keeps a session's order of eviction on itself while it runs."""

    def __init__(self, width: int) -> None:
        # Drawn by numpy: torch's draws depend on the CPU's kernels, and two plans should differ by them alone.
        drawn = np.random.default_rng(2024).standard_normal((width, width if width <= 64 else 1), np.float32)
        self.weight = torch.from_numpy(drawn) / width**0.5
        self.evict_order: list[int] | None = None
        self.bound = threading.Lock()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, width] -> the same; spends the next place of the ring."""
        assert self.evict_order is not None
        self.evict_order.append(self.evict_order.pop(0))
        return torch.tanh(x @ self.weight if x.shape[1] <= 64 else x * self.weight[:, 0])


@dataclass(slots=True)
class TinyState:
    """Everything of one session, entry by entry what it looks like after `open`."""

    cache: list[dict[str, torch.Tensor]]  # per layer k and v [7, width]: two strided views of one buffer in the arena
    ring: torch.Tensor  # [5, width] in the arena
    ring_turned: torch.Tensor  # [width, 3]: a transposed alias of three of the ring's rows
    pairs: tuple[tuple[torch.Tensor, torch.Tensor], ...]  # bf16 [<=4, 8], made anew by every block
    features: list[torch.Tensor | str | None]  # None, then "Rep", then fp16 tensors made anew
    log: torch.Tensor  # uint8 [4096, 4], unwritten from log_rows on
    log_rows: int
    cross: dict[str, torch.Tensor | bool]  # zeros, re-bound by the first block
    noise: torch.Tensor  # [1024] drawn at open
    even: torch.Tensor  # [32]: every second element of a buffer, from its second on
    spread: torch.Tensor  # [3, 4] of four stored numbers
    count: torch.Tensor  # int64 []
    energy: torch.Tensor  # float32 []
    evict_order: list[int]
    prompt: str
    chance: torch.Generator = field(default_factory=torch.Generator)


class TinyLive:
    """One session of the tiny world."""

    rules: Sequence[Rule] = RULES

    def __init__(self, model: TinyModel, options: TinyOptions, state: TinyState) -> None:
        self._model = model
        self._options = options
        self._s = state
        self._table = torch.linspace(0, 1, WINDOW_ROWS)[:, None]  # derived: rebuilt, never moved

    def step(self, action: int) -> np.ndarray:
        s = self._s
        if not 0 <= action < len(ACTIONS):
            raise BadValue(f"the tiny world has the actions 0 to {len(ACTIONS) - 1}, not {action}")
        if self._options.fail_at == int(s.count) + 1:
            raise RuntimeError(f"the tiny engine dies in block {self._options.fail_at}, as it was told to")
        stirred = _stir(self.state(), action)
        drawn = torch.randn(NEW_ROWS, self._options.width, generator=s.chance)
        stirred.update(_bytes_of(drawn))
        noise = torch.frombuffer(bytearray(stirred.digest(length=self._options.width)), dtype=torch.uint8)
        with self._model.bound:
            self._model.evict_order = s.evict_order
            fresh = self._model.forward(drawn + noise / 256)
            s.evict_order, self._model.evict_order = self._model.evict_order, None
        self._write(fresh, stirred.digest(), action)
        if self._options.block_period_ms > 0:
            threading.Event().wait(self._options.block_period_ms / 1e3)
        picture = stirred.digest(length=FRAMES * SIDE_PX * SIDE_PX * 3)
        return np.frombuffer(picture, np.uint8).reshape(FRAMES, SIDE_PX, SIDE_PX, 3).copy()

    def state(self) -> Tree:
        s = self._s
        return {
            "cache": [dict(layer) for layer in s.cache],
            "ring": s.ring,
            "ring_turned": s.ring_turned,
            "pairs": s.pairs,
            "features": list(s.features),
            "log": Partial(s.log, 0, s.log_rows),
            "log_rows": s.log_rows,
            "cross": dict(s.cross),
            "noise": s.noise,
            "even": s.even,
            "spread": s.spread,
            "count": s.count,
            "energy": s.energy,
            "evict_order": list(s.evict_order),
            "prompt": s.prompt,
            "chance": s.chance,
            "derived": {"table": self._table},
        }

    def _write(self, fresh: torch.Tensor, digest: bytes, action: int) -> None:
        s, block = self._s, int(self._s.count)
        for i, layer in enumerate(s.cache):
            for j, side in enumerate(("k", "v")):
                rows = layer[side]
                rows[KEPT_ROWS:-NEW_ROWS] = rows[KEPT_ROWS + NEW_ROWS :].clone()
                rows[-NEW_ROWS:] = fresh + i - j + self._table[-NEW_ROWS:]
        s.ring[s.evict_order[-1]] = fresh[0]
        s.pairs = tuple(
            (_longer(k, fresh[:1, :8]), _longer(v, fresh[1:, :8].roll(i, 1))) for i, (k, v) in enumerate(s.pairs)
        )
        s.features = [_next_feature(old, fresh + i) for i, old in enumerate(s.features)]
        if s.log_rows < LOG_ROWS:
            s.log[s.log_rows] = torch.tensor([action, *digest[:3]], dtype=torch.uint8)
            s.log_rows += 1
        if not s.cross["ready"]:
            s.cross = {"k": fresh[:, :8].clone(), "v": fresh[:, :8].t().contiguous(), "ready": True}
        s.even[block % len(s.even)] += fresh[0, 0]
        s.spread[0].copy_(s.spread[1] + fresh[0, :4] + s.noise[block % len(s.noise)])
        s.count += 1
        s.energy.copy_(fresh.square().sum())


class TinyWorld:
    """See the module."""

    name = "tiny"
    actions: Sequence[str] = ACTIONS
    readout = Readout("image", FRAMES, SIDE_PX, SIDE_PX)

    def __init__(self, options: Options) -> None:
        self._options = read_options(self.name, TinyOptions, options)
        self._model = TinyModel(self._options.width)
        self.state_bytes_max = 64 * 1024 + 320 * self._options.width

    def facts(self) -> Mapping[str, str]:
        weights = blake3.blake3(_bytes_of(self._model.weight)).hexdigest()
        return {"weights": weights, "width": str(self._options.width), "flavour": self._options.flavour}

    def open(self, seed: int, memory: Memory) -> TinyLive:
        width = self._options.width
        chance = torch.Generator().manual_seed(seed)
        ring = memory.zeros("ring", (RING_SLOTS, width), torch.float32)
        buffers = [memory.zeros(f"cache/{i}", (WINDOW_ROWS, 2, width), torch.float32) for i in range(LAYERS)]
        even = _unwritten(65, torch.float32)[1::2]
        none = torch.zeros(0, 8, dtype=torch.bfloat16)
        state = TinyState(
            cache=[{"k": b[:, 0], "v": b[:, 1]} for b in buffers],
            ring=ring,
            ring_turned=ring[1:4].t(),
            pairs=((none, none.clone()), (none.clone(), none.clone())),
            features=[None, "Rep", None],
            log=_unwritten(LOG_ROWS * 4, torch.uint8).view(LOG_ROWS, 4),
            log_rows=0,
            cross={"k": torch.zeros(NEW_ROWS, 8), "v": torch.zeros(8, NEW_ROWS), "ready": False},
            noise=torch.randn(1024, generator=chance),
            even=even.copy_(torch.randn(32, generator=chance)),
            spread=torch.randn(1, 4, generator=chance).expand(3, 4),
            count=torch.zeros((), dtype=torch.int64),
            energy=torch.zeros(()),
            evict_order=list(range(RING_SLOTS)),
            prompt="a small room – ein Zimmer",
            chance=chance,
        )
        return TinyLive(self._model, self._options, state)

    def restore(self, tree: Tree, memory: Memory) -> TinyLive:
        t: Any = tree
        log = t["log"].tensor
        state = TinyState(
            **{n: t[n] for n in ("ring", "ring_turned", "log_rows", "noise", "even", "spread", "count", "energy")},
            cache=[dict(layer) for layer in t["cache"]],
            pairs=tuple((k, v) for k, v in t["pairs"]),
            features=list(t["features"]),
            log=log,
            cross=dict(t["cross"]),
            evict_order=list(t["evict_order"]),
            prompt=t["prompt"],
            chance=t["chance"],
        )
        return TinyLive(self._model, self._options, state)


def _unwritten(count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((count,), next(_GARBAGE) % 251, dtype=dtype)


def _longer(rows: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.cat([rows, new.to(rows.dtype)])[-PAIR_ROWS:].clone()


def _next_feature(old: torch.Tensor | str | None, fresh: torch.Tensor) -> torch.Tensor | str:
    match old:
        case None:
            return "Rep"
        case str():
            return fresh[:1].half()
        case _:
            return torch.cat([old[-1:], fresh[:1].half()])


def _stir(tree: Tree, action: int) -> blake3.blake3:
    """Absorbs every byte of the state (but the generator's, whose draws show it) and the action."""
    stirred = blake3.blake3(action.to_bytes(8, "little", signed=True))
    for leaf in _leaves(tree):
        stirred.update(leaf)
    return stirred


def _leaves(tree: Tree) -> Iterator[bytes]:
    match tree:
        case torch.Tensor():
            yield _bytes_of(tree)
        case Partial(tensor=tensor, dim=dim, stop=stop):
            yield _bytes_of(tensor.narrow(dim, 0, stop))
        case torch.Generator():
            return
        case None | str() | bool() | int():
            yield repr(tree).encode()
        case Mapping():
            for name in sorted(tree):
                yield from _leaves(tree[name])
        case _:
            for item in tree:
                yield from _leaves(item)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
