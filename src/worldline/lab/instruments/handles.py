"""Reductions of a state as small functions state -> state: what a target would go on with if less than all was moved.

A state is a dict of tensors by path, copies that a handle may change; generators are their bytes. A handle returns the
same paths; one that it leaves out is zeros at the target. Python values are always moved. Name one's own as
`MODULE:FUNCTION`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import torch

from worldline.codecs.protocol import STRETCH_BYTES_MAX
from worldline.codecs.registry import available, codec
from worldline.errors import BadValue, WorldlineError
from worldline.worlds.told import FAULTS, told

State: TypeAlias = dict[str, torch.Tensor]
Handle: TypeAlias = Callable[[State], State]
INT8_LEVELS, INT4_LEVELS = 127, 7
RANK_SHARE = 0.25


def identity(state: State) -> State:
    """Everything as it is."""
    return state


def coded(name: str) -> Handle:
    """Through the lossless codec `name`, there and back."""

    def handle(state: State) -> State:
        return {path: _through(codec(name), tensor) for path, tensor in state.items()}

    return handle


def _through(way: object, tensor: torch.Tensor) -> torch.Tensor:
    octets = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    decoded = np.empty_like(octets)
    for at in range(0, octets.nbytes, STRETCH_BYTES_MAX):
        stretch = slice(at, at + STRETCH_BYTES_MAX)
        way.decode_into(way.encode(octets[stretch].data), decoded[stretch].data)  # type: ignore[attr-defined]
    return torch.from_numpy(decoded).view(tensor.dtype).reshape(tensor.shape)


def evict(state: State) -> State:
    """The older half of each cache is forgotten: zeros along its longest dimension."""
    made = {}
    for path, tensor in state.items():
        if _is_cache(tensor):
            dim = max(range(tensor.dim()), key=lambda dim: tensor.shape[dim])
            tensor.narrow(dim, 0, tensor.shape[dim] // 2).zero_()
        made[path] = tensor
    return made


def quantised(levels: int) -> Handle:
    """Whole numbers from -levels to levels, one scale a row of the last dimension."""

    def reduce(tensor: torch.Tensor) -> torch.Tensor:
        wide = tensor.float()
        scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-30) / levels
        return (wide / scale).round() * scale

    return on_caches(reduce)


def fp8(tensor: torch.Tensor) -> torch.Tensor:
    """e4m3, scaled by the tensor's largest."""
    scale = tensor.float().abs().max().clamp(min=1e-30) / 448
    return (tensor.float() / scale).to(torch.float8_e4m3fn).float() * scale


def bf16(tensor: torch.Tensor) -> torch.Tensor:
    """Sixteen bits."""
    return tensor.float().bfloat16().float()


def low_rank(tensor: torch.Tensor) -> torch.Tensor:
    """The best approximation by a quarter of the ranks, rows being all but the last two dimensions."""
    flat = tensor.float().reshape(-1, tensor.shape[-1] * (tensor.shape[-2] if tensor.dim() > 2 else 1))
    u, s, v = torch.linalg.svd(flat, full_matrices=False)
    rank = max(1, int(RANK_SHARE * len(s)))
    made: torch.Tensor = (u[:, :rank] * s[:rank]) @ v[:rank]
    return made.reshape(tensor.shape)


def partial(state: State) -> State:
    """Caches alone: counters, generators and the last picture stay behind."""
    return caches_of(state)


def caches_of(state: State) -> State:
    """Those tensors that count as caches: floating point, of three dimensions or more."""
    return {path: tensor for path, tensor in state.items() if _is_cache(tensor)}


def _is_cache(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() >= 3


def on_caches(reduce: Callable[[torch.Tensor], torch.Tensor]) -> Handle:
    """`reduce` for each cache: floating point, of three dimensions or more."""

    def handle(state: State) -> State:
        return {
            path: reduce(tensor).to(tensor.dtype) if _is_cache(tensor) and tensor.numel() else tensor
            for path, tensor in state.items()
        }

    return handle


def deduplicated(other: State, error_max: float) -> Handle:
    """Rows that another session of the same world also has are taken from there: rows that are equal for `error_max` 0,
    else those within that relative error, each by the nearest one.
    """

    def handle(state: State) -> State:
        return {path: _shared(tensor, other.get(path), error_max) for path, tensor in state.items()}

    return handle


def _shared(tensor: torch.Tensor, other: torch.Tensor | None, error_max: float) -> torch.Tensor:
    if other is None or not _is_cache(tensor) or other.shape != tensor.shape or not tensor.numel():
        return tensor
    rows, others = (t.float().reshape(-1, t.shape[-1]) for t in (tensor, other))
    distance, nearest = torch.cdist(rows, others).min(1)
    near = distance <= error_max * rows.norm(dim=1)
    if error_max == 0:
        near = (rows == others[nearest]).all(1)
    return torch.where(near[:, None], others[nearest], rows).reshape(tensor.shape).to(tensor.dtype)


def residual(predicted: State, levels: int = INT4_LEVELS) -> Handle:
    """What a predictor does not explain, quantised. `predicted` stands for a learned predictor's answer: the state a
    block before, scaled to fit. Replace it by your own, as `MODULE:FUNCTION`, to try one.
    """

    def handle(state: State) -> State:
        made = {}
        for path, tensor in state.items():
            before = predicted.get(path)
            if before is None or before.shape != tensor.shape or not _is_cache(tensor):
                made[path] = tensor
                continue
            guess = before.float()
            guess = guess * ((guess * tensor.float()).sum() / guess.square().sum().clamp(min=1e-30))
            left = quantised(levels)({path: tensor.float() - guess})[path]
            made[path] = (guess + left).to(tensor.dtype)
        return made

    return handle


def perturbed(direction: State, size: float) -> Handle:
    """Off by `size` of the state's own norm along `direction`, of norm 1."""

    def handle(state: State) -> State:
        scale = size * norm(state)
        return {
            path: (tensor.double() + scale * direction[path]).to(tensor.dtype) if path in direction else tensor
            for path, tensor in state.items()
        }

    return handle


def norm(state: Mapping[str, torch.Tensor]) -> float:
    """Over all caches."""
    return math.sqrt(sum(float(t.double().square().sum()) for t in state.values() if _is_cache(t)))


def difference(one: State, other: State) -> State:
    """`one` - `other` in the caches, of norm 1; zeros where they are equal."""
    made = {path: t.double() - other[path].double() for path, t in one.items() if _is_cache(t)}
    length = float(sum(t.square().sum() for t in made.values())) ** 0.5
    return {path: t / (length or 1.0) for path, t in made.items()}


def difference_of(one: State, other: State) -> State:
    """`one` - `other` by path, zeros where `one` has none or another shape."""
    return {
        path: (one[path].double() if path in one and one[path].shape == tensor.shape else 0) - tensor.double()
        for path, tensor in other.items()
        if tensor.is_floating_point()
    }


def chance(state: State, seed: int) -> State:
    """A direction at random."""
    drawn = torch.Generator().manual_seed(seed)
    made = {p: torch.randn(t.shape, generator=drawn, dtype=torch.float64) for p, t in state.items() if _is_cache(t)}
    length = float(sum(t.square().sum() for t in made.values())) ** 0.5
    return {path: t / length for path, t in made.items()}


LOSSLESS: dict[str, Handle] = {"identity": identity} | {f"codec {name}": coded(name) for name in available()}
LOSSY: dict[str, Handle] = {
    "evict half": evict,
    "bf16": on_caches(bf16),
    "fp8": on_caches(fp8),
    "int8": quantised(INT8_LEVELS),
    "int4": quantised(INT4_LEVELS),
    "low rank": on_caches(low_rank),
    "partial state": partial,
}
"""Built in. Those that need a second session or the past are made by `kill`."""


def made_by(name: str, handle: Handle, state: State) -> State:
    """What `handle` makes of copies of `state`: some or all of its paths, each of its own shape and dtype.

    Raises `BadValue` for anything else, and for whatever the handle raises: written into the target it would be
    stretched, cast or left out, and the loss would be told of something that the handle never meant.
    """
    try:
        with torch.no_grad():
            made: object = handle({path: tensor.clone() for path, tensor in state.items()})
    except WorldlineError:
        raise
    except FAULTS as error:
        raise BadValue(f"the handle {name!r} failed: {told(error)}", handle=name) from error
    if not isinstance(made, Mapping):
        raise BadValue(f"the handle {name!r} returns a {type(made).__name__}, and not a dict of tensors", handle=name)
    for path, tensor in made.items():
        if path not in state:
            raise BadValue(f"the handle {name!r} returns {path!r:.80}, which the state does not have", handle=name)
        was, now = _kind(state[path]), _kind(tensor)
        if was != now:
            raise BadValue(f"the handle {name!r} returns {path!r} as {now}, and it is {was}", handle=name)
    return {path: tensor.detach() for path, tensor in made.items()}


def _kind(tensor: object) -> str:
    if not isinstance(tensor, torch.Tensor):
        return type(tensor).__name__
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} on {tensor.device}"


def own(name: str) -> Handle:
    """The function at `MODULE:FUNCTION`. Raises `BadValue`."""
    module, colon, attribute = name.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), attribute, None) if colon else None
    except FAULTS as error:
        raise BadValue(f"the handle {name!r} can't be imported: {told(error)}") from error
    if not callable(found):
        raise BadValue(f"{name!r} is no built-in handle, and no MODULE:FUNCTION")
    return found
