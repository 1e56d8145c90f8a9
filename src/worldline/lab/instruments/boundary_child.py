"""One side of `lab boundary`: a process with a plan of its own, which goes on from a cut.

    python -m worldline.lab.instruments.boundary_child REQUEST.json

The request names the world, its options, the seed, all actions, how many of them lead to the cut, the folder to write
into, and the file of the cut: the first side makes it, the other goes on from it. Written are `frames.npy`,
`digests.json` (of each entry, a block) and `early.npz` (the bytes of each entry after the first blocks); or an error.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import xxhash

from worldline.errors import WorldlineError
from worldline.lab.instruments.boundary import ERROR
from worldline.lab.instruments.fenced import FencedWorld
from worldline.lab.instruments.kill import put_back, state_of
from worldline.runtime.error_record import ErrorRecord
from worldline.worlds.plan import torch_facts
from worldline.worlds.registry import build_world
from worldline.worlds.seat import Seat

EARLY_BLOCKS = 3


def main(request: dict[str, Any]) -> None:
    """See the module."""
    torch.set_num_threads(request["threads"])
    torch.set_float32_matmul_precision(request["precision"])
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    folder, cut_file = Path(request["folder"]), Path(request["cut_file"])
    world = FencedWorld(build_world(request["world"], request["options"]))
    actions, cut = request["actions"], request["cut"]
    digests: list[dict[str, str]] = []
    frames: list[np.ndarray] = []
    early: dict[str, Any] = {}
    with ExitStack() as stack:
        seat = Seat.open(world, request["seed"], stack)
        for action in actions[:cut]:
            seat.step(action)
        if cut_file.exists():
            held = state_of(seat)
            with np.load(cut_file) as saved:
                given = {path: _tensor(saved[_name(path)], tensor) for path, tensor in held.items()}
            seat = seat.copy(stack, lambda tree: put_back(tree, given))
        else:
            whole: dict[str, Any] = {_name(path): _octets(tensor) for path, tensor in state_of(seat).items()}
            np.savez(cut_file, **whole)
        for block, action in enumerate(actions[cut:]):
            frames.append(seat.live.step(action).copy())
            octets = {path: _octets(tensor) for path, tensor in state_of(seat).items()}
            digests.append({path: xxhash.xxh3_128_hexdigest(data.tobytes()) for path, data in octets.items()})
            if block < EARLY_BLOCKS:
                early |= {f"{block}:{_name(path)}": data for path, data in octets.items()}
    np.save(folder / "frames.npy", np.stack(frames))
    np.savez(folder / "early.npz", **early)
    (folder / "digests.json").write_text(json.dumps({"facts": torch_facts(), "blocks": digests}))


def _name(path: str) -> str:
    """An archive's members are files: no folders in their names."""
    return path.replace("/", "|")


def _octets(tensor: torch.Tensor) -> np.ndarray:
    made: np.ndarray = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return made


def _tensor(octets: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(octets.copy()).view(like.dtype).reshape(like.shape)


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text())
    try:
        main(asked)
    except WorldlineError as error:
        (Path(asked["folder"]) / ERROR).write_bytes(msgspec.json.encode(ErrorRecord.of(error)))
        sys.exit(error.exit_code)
