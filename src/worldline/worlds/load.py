"""The load world: Matrix-Game-2's state and write rules without its weights, at any scale.

Every tensor has the real shape, dtype and way of being written: windows rolled in place, caches of layers that are
never written, entries re-bound once, a feature list re-allocated every block, horizons drawn at open. What is written
is noise that depends on every byte of the state before it, on the action and on the session's generator, and no page
is like another: a wrong bit anywhere changes the strip at the foot of the next picture and all that comes after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import blake3
import numpy as np
import torch

from worldline.clock import SystemClock
from worldline.errors import BadValue
from worldline.schema.inventory import Free, Kind, Rule
from worldline.units import format_bytes, parse_bytes
from worldline.worlds.load_shape import (
    BLOCK_FRAMES,
    FULL_LAYERS,
    FULL_TOKENS,
    HEAD_WIDTH,
    TIME_CONVOLUTIONS,
    WINDOW_FRAMES,
    Entry,
    Shape,
    shape_of_size,
    state_bytes,
)
from worldline.worlds.options import read_options
from worldline.worlds.protocol import Memory, Options, Readout, Tree

ACTIONS = ("stay", "forward", "back", "left", "right")
TINTS = np.array([[150, 150, 160], [90, 200, 110], [210, 120, 80], [90, 140, 230], [220, 190, 80]], np.float32)
LAYERS_MAX, HORIZON_FRAMES_MAX = 256, 100_000
BYTES_MAX = 10**12
"""Of one session: no host has more, and a shape without end is never laid out."""
SIDE_PX = 96
CELL_PX = SIDE_PX // WINDOW_FRAMES
STRIP_PX = 6
ROW = 128
"""Elements written with one salt: 256 bytes, a divisor of every tensor's size."""
STRIDE = 8
"""Elements from the start of one row's noise to the start of the next one's, in the pool."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """`scale` 1 is the real size; `bytes` (such as `256MB`), where given, chooses the scale instead.

    A block takes `block_period_ms`, of which it computes for `compute_share`, or as long as it takes. Where it
    `announces`, it says within a block what it will not write again.
    """

    scale: float = 1.0
    bytes: str = ""
    layers: int = FULL_LAYERS
    horizon_frames: int = 150
    vae: bool = True
    block_period_ms: float = 0.0
    compute_share: float = 0.0
    announces: bool = True

    def __post_init__(self) -> None:
        if self.layers > LAYERS_MAX or self.horizon_frames > HORIZON_FRAMES_MAX:
            raise BadValue(f"at most {LAYERS_MAX} layers and a horizon of {HORIZON_FRAMES_MAX} frames are laid out")
        if not 0 < self.scale <= 16:
            raise BadValue(f"scale must be above 0 and at most 16, not {self.scale}")
        if not 0 <= self.block_period_ms <= 600_000 or not 0 <= self.compute_share <= 1:
            raise BadValue("block_period_ms must be from 0 to 600000 and compute_share from 0 to 1")

    def shape(self) -> Shape:
        if self.bytes:
            if parse_bytes(self.bytes) > BYTES_MAX:
                raise BadValue(f"a load session has at most {format_bytes(BYTES_MAX)}, not {self.bytes}")
            return shape_of_size(parse_bytes(self.bytes), self.layers, self.horizon_frames, self.vae)
        return Shape(max(1, round(self.scale * FULL_TOKENS)), self.layers, self.horizon_frames, self.vae)


class LoadLive:
    """One session. `tree` holds what `state()` shows; entries are re-bound in it as the real engine re-binds them."""

    def __init__(self, options: LoadOptions, shape: Shape, tree: dict[str, Any]) -> None:
        self._options = options
        self._shape = shape
        self._tree = tree
        self.rules: Sequence[Rule] = rules_of(shape)
        self.written: Callable[[torch.Tensor], None] | None = None
        """See `protocol.Announces`: a layer's windows are final once the layer was written."""

    def step(self, action: int) -> np.ndarray:
        clock = SystemClock()
        started_s = clock.monotonic_s()
        if not 0 <= action < len(ACTIONS):
            raise BadValue(f"the load world has the actions 0 to {len(ACTIONS) - 1}, not {action}")
        seen = self._read(action)
        self._condition(action)
        pen = Pen(self._tree["generator"], seen.digest(), rows_max=self._rows_max())
        for i in range(self._shape.layers):
            self._write_layer(i, pen)
        self._think(pen)
        if self._shape.vae:
            self._decode(pen)
        self._tree["current_start_frame"] += BLOCK_FRAMES
        picture = self._picture(seen)
        self._pace(started_s, clock)
        return picture

    def state(self) -> Tree:
        t = self._tree
        tree: Tree = {
            **t,
            "feat_cache": list(t["feat_cache"]),
            "cond": dict(t["cond"]),
            **{name: [dict(layer) for layer in t[name]] for name in _FAMILIES},
        }
        return tree

    def _read(self, action: int) -> blake3.blake3:
        """Sums every byte of the state, a tensor in up to six parts, so that no wrong bit stays unseen."""
        t = self._tree
        seen = blake3.blake3(f"{action} {t['current_start_frame']} ".encode())
        for name in _FAMILIES:
            for layer in t[name]:
                for _, value in sorted(layer.items()):  # a restored dict has its keys in order
                    seen.update(_sums(value))
        conditions = [value for _, value in sorted(t["cond"].items())]
        for value in (*t["feat_cache"], t["noise"], *conditions, t["thought"]):
            seen.update(_sums(value))
        return seen

    def _condition(self, action: int) -> None:
        """Writes the action into the horizon, in place. The horizon is used in a circle: a session has no end."""
        frame, frames = self._tree["current_start_frame"], self._shape.horizon_frames
        rows = torch.arange(4 * frame, 4 * (frame + BLOCK_FRAMES)) % (4 * frames - 3)
        self._tree["cond"]["mouse_cond"][0, rows] = (action - 2) / 8
        self._tree["cond"]["keyboard_cond"][0, rows] = torch.eye(len(ACTIONS))[action, 1:].bfloat16()

    def _write_layer(self, i: int, pen: Pen) -> None:
        t, tokens = self._tree, self._shape.tokens
        _append(t["kv_cache1"][i], tokens, pen)
        if i < self._shape.action_layers:
            _append(t["kv_cache_mouse"][i], 1, pen)
            _append(t["kv_cache_keyboard"][i], 1, pen)
        if self.written is not None and self._options.announces:
            for name in _WINDOWS:
                for side in ("k", "v"):
                    self.written(t[name][i][side])
        cross = t["crossattn_cache"][i]
        if not cross["is_init"]:
            for side in ("k", "v"):
                cross[side] = pen.fresh(cross[side].shape, torch.bfloat16)
            cross["is_init"] = True

    def _think(self, pen: Pen) -> None:
        """A small attention over the newest token: the float arithmetic by which two kernel plans differ."""
        newest = torch.stack([layer["k"][0, -1].float() for layer in self._tree["kv_cache1"]])  # [layers, heads, width]
        scores = torch.softmax(newest @ newest[:, :1].transpose(1, 2) / HEAD_WIDTH**0.5, dim=1)
        thought = torch.tanh((scores * newest).sum(1) + 0.5 * self._tree["thought"])
        self._tree["thought"].copy_(thought)
        pen.stir(_bytes_of(thought))

    def _decode(self, pen: Pen) -> None:
        """Every entry anew. The two time convolutions begin as real ones do: `None`, then `"Rep"`, then tensors."""
        features = self._tree["feat_cache"]
        for i, entry in enumerate(e for e in self._shape.entries() if e.path.startswith("feat_cache/")):
            if i in TIME_CONVOLUTIONS and features[i] is None:
                features[i] = "Rep"
            else:
                features[i] = pen.fresh(entry.shape, torch.float16)

    def _rows_max(self) -> int:
        largest = max(e.nbytes for e in self._shape.entries() if e.rewritten_bytes or "crossattn" in e.path)
        return largest // 2 // ROW + 1

    def _picture(self, seen: blake3.blake3) -> np.ndarray:
        """A row a layer, a column a frame of the window, moving left as it rolls; the strip digests the whole state."""
        layers, tokens = self._shape.layers, self._shape.tokens
        keys = torch.stack(
            [c["k"].view(WINDOW_FRAMES, tokens, -1)[:, 0, :CELL_PX] for c in self._tree["kv_cache1"]]
        ).float()  # [layers, window, CELL_PX]
        rows = np.arange(SIDE_PX - STRIP_PX) * layers // (SIDE_PX - STRIP_PX)
        light = keys.clamp(-2, 2).div(6).add(0.6).numpy()[rows].reshape(len(rows), SIDE_PX, 1)
        image = np.empty((BLOCK_FRAMES, SIDE_PX, SIDE_PX, 3), np.uint8)
        cells = np.clip(light * self._tints(), 0, 255).astype(np.uint8)
        for frame in range(BLOCK_FRAMES):
            image[frame, : len(rows)] = np.roll(cells, (BLOCK_FRAMES - 1 - frame) * CELL_PX, axis=1)
        strip = np.frombuffer(seen.digest(length=SIDE_PX * STRIP_PX * 3), np.uint8)
        image[:, len(rows) :] = strip.reshape(STRIP_PX, SIDE_PX, 3)
        return image

    def _tints(self) -> np.ndarray:
        """[1, SIDE_PX, 3]: the colour of the action that made each frame of the window; black before the first."""
        end, inputs = self._tree["current_start_frame"], 4 * self._shape.horizon_frames - 3
        frames = np.arange(end - WINDOW_FRAMES, end)
        pressed = self._tree["cond"]["keyboard_cond"][0, torch.from_numpy(4 * frames % inputs)].float().numpy()
        action = np.where(pressed.any(1), pressed.argmax(1) + 1, 0)
        tints = TINTS[action] * (frames >= 0)[:, None]
        return np.repeat(tints, CELL_PX, axis=0)[None]

    def _pace(self, started_s: float, clock: SystemClock) -> None:
        period_s = self._options.block_period_ms / 1e3
        burnt = torch.ones(128, 128)
        while clock.monotonic_s() - started_s < period_s * self._options.compute_share:
            burnt @ burnt  # keeps the core busy and changes nothing
        left_s = period_s - (clock.monotonic_s() - started_s)
        if left_s > 0:
            threading.Event().wait(left_s)


class Pen:
    """Cheap noise: rows of a small Gaussian pool, each from another place and with other low bits and signs.

    All of it follows from the generator and from what was stirred in.
    """

    def __init__(self, generator: torch.Generator, digest: bytes, rows_max: int) -> None:
        spare = 4096
        pool = torch.randn(rows_max * STRIDE + ROW + spare, generator=generator)
        self._pools = {dtype: pool.to(dtype).view(torch.int16) for dtype in (torch.bfloat16, torch.float16)}
        self._spare = spare
        self._digest = digest
        self._index = torch.arange(rows_max, dtype=torch.int64)
        self._count = 0

    def stir(self, data: bytes) -> None:
        self._digest = blake3.blake3(self._digest + data).digest()

    def fresh(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A new tensor, filled."""
        made = torch.empty(tuple(shape), dtype=dtype)
        self.fill(made.view(1, -1))
        return made

    def fill(self, target: torch.Tensor) -> None:
        """Writes [stretches, n]: each stretch contiguous, n a multiple of `ROW`."""
        self._count += 1
        key = np.frombuffer(blake3.blake3(self._digest + self._count.to_bytes(8, "little")).digest(), np.int64)
        stretches, width = target.shape
        rows = stretches * width // ROW
        noise = self._pools[target.dtype].as_strided((rows, ROW), (STRIDE, 1), int(key[0]) % self._spare)
        # A multiplicative hash of the row's number; the sign and the low seven bits change, so values stay Gaussian.
        mixed = (self._index[:rows] + int(key[1])) * (int(key[2]) | 1)
        salt = ((mixed >> 40) & 0x7F | (mixed >> 33) & 0x8000).to(torch.int16)
        shape = (stretches, width // ROW, ROW)
        out = target.view(torch.int16).unflatten(1, shape[1:])
        torch.bitwise_xor(noise.view(shape), salt.view(*shape[:2], 1), out=out)


class LoadWorld:
    """See the module. `shape.entries()` lists what a session holds and how a block rewrites it."""

    name = "load"
    actions: Sequence[str] = ACTIONS
    readout = Readout("image", BLOCK_FRAMES, SIDE_PX, SIDE_PX)

    def __init__(self, options: Options) -> None:
        self._options = read_options(self.name, LoadOptions, options)
        self.shape = self._options.shape()
        entries = list(self.shape.entries())
        self.state_bytes_max = state_bytes(entries) + 4096 * len(entries) + 64 * 1024

    def facts(self) -> Mapping[str, str]:
        return {"weights": "none", "shape": repr(self.shape)}

    def canary_world(self) -> LoadWorld:
        """The same kernels over a thousandth of the bytes."""
        return LoadWorld({"scale": 2 / FULL_TOKENS, "layers": 4, "horizon_frames": 12})

    def open(self, seed: int, memory: Memory) -> LoadLive:
        generator = torch.Generator().manual_seed(seed)
        tree: dict[str, Any] = {name: [{} for _ in range(self.shape.layers)] for name in _FAMILIES}
        tree |= {"feat_cache": [], "cond": {}, "generator": generator, "current_start_frame": 0}
        for layer in tree["crossattn_cache"]:
            layer["is_init"] = False
        for entry in self.shape.entries():
            _place(tree, entry, _allocate(entry, generator, memory))
        return LoadLive(self._options, self.shape, tree)

    def restore(self, tree: Tree, memory: Memory) -> LoadLive:
        t: Any = tree
        bound = dict(t) | {name: [dict(layer) for layer in t[name]] for name in _FAMILIES}
        bound |= {"feat_cache": list(t["feat_cache"]), "cond": dict(t["cond"])}
        return LoadLive(self._options, self.shape, bound)


_WINDOWS = ("kv_cache1", "kv_cache_mouse", "kv_cache_keyboard")
_FAMILIES = ("kv_cache1", "kv_cache_mouse", "kv_cache_keyboard", "crossattn_cache")


def rules_of(shape: Shape) -> tuple[Rule, ...]:
    """One rule a tensor of the shape; the rest (flags, counters, generator) is small and free."""
    return (
        *(Rule(entry.path, entry.kind, entry.write) for entry in shape.entries()),
        Rule("*", Kind.AUX, Free()),
    )


def _allocate(entry: Entry, generator: torch.Generator, memory: Memory) -> torch.Tensor | None:
    dtype: torch.dtype = getattr(torch, entry.dtype)
    if entry.resident:
        return memory.zeros(entry.path, entry.shape, dtype)
    if entry.path.startswith("feat_cache/"):
        return None
    if entry.path in {"noise", "cond/cond_concat", "cond/visual_context"}:
        return torch.randn(entry.shape, generator=generator).to(dtype)
    return torch.zeros(entry.shape, dtype=dtype)


def _place(tree: dict[str, Any], entry: Entry, value: torch.Tensor | None) -> None:
    *groups, name = entry.path.split("/")
    if groups == ["feat_cache"]:
        tree["feat_cache"].append(value)
        return
    place: Any = tree
    for group in groups:
        place = place[int(group) if isinstance(place, list) else group]
    place[name] = value


def _append(cache: dict[str, torch.Tensor], tokens: int, pen: Pen) -> None:
    """Three frames of `tokens` rows each at the end of the window, which rolls left in place once it is full."""
    new, window = BLOCK_FRAMES * tokens, WINDOW_FRAMES * tokens
    end = int(cache["local_end_index"].item())
    for side in ("k", "v"):
        rows = cache[side]
        if end == window:
            rows[:, :new] = rows[:, new:]  # half of the window: nothing overlaps
        at = min(end, window - new)
        pen.fill(rows[:, at : at + new].flatten(2).view(rows.shape[0], -1))
    cache["global_end_index"].add_(new)
    cache["local_end_index"].fill_(min(end + new, window))


def _sums(value: torch.Tensor | str | bool | None) -> bytes:
    """Sums modulo 2^64 of up to six equal parts of a tensor's bytes: any one changed bit changes them."""
    if not isinstance(value, torch.Tensor):
        return repr(value).encode()
    data = _bytes_of(value) if value.nbytes % 8 else value.reshape(-1).view(torch.uint8).numpy()
    words = np.frombuffer(data, np.uint64, count=len(data) // 8)
    parts = WINDOW_FRAMES if len(words) % WINDOW_FRAMES == 0 else 1
    sums: bytes = words.reshape(parts, -1).sum(axis=1).tobytes()
    return sums + bytes(data[len(data) // 8 * 8 :])


def _bytes_of(tensor: torch.Tensor) -> bytes:
    data: bytes = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return data
