"""What people use in a move's place: a session's tensors to a file and back, in a process of its own.

    python -m worldline.lab.bench.serialisers BYTES FILE

Reads commands `save KIND` and `load KIND` from stdin and answers each with its seconds. KIND is torch, safetensors or
pickle. The state is the load world's after a few blocks.
"""

from __future__ import annotations

import pickle  # noqa: TID251 - measured as others use it, on a file of this pair of processes; nothing is installed from it
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from worldline.clock import SystemClock
from worldline.snapshot.arena import Arena
from worldline.snapshot.memory import ArenaMemory, arena_capacity
from worldline.worlds.load import LoadWorld

BLOCKS = 3


def tensors_of(tree: Any, path: str = "state") -> dict[str, torch.Tensor]:
    """Every tensor of a tree by its path."""
    if isinstance(tree, torch.Tensor):
        return {path: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    found: dict[str, torch.Tensor] = {}
    for key, value in items:
        found |= tensors_of(value, f"{path}/{key}")
    return found


def save(kind: str, tensors: dict[str, torch.Tensor], file: Path) -> None:
    """Writes the file anew."""
    match kind:
        case "torch":
            torch.save(tensors, file)
        case "safetensors":
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
        case _:
            with file.open("wb") as out:
                pickle.dump(tensors, out, protocol=pickle.HIGHEST_PROTOCOL)


def load(kind: str, file: Path) -> object:
    """Reads all of it into memory of this process."""
    match kind:
        case "torch":
            return torch.load(file, weights_only=True)
        case "safetensors":
            return {name: tensor.clone() for name, tensor in load_file(file).items()}  # a mapped file is not loaded yet
        case _:
            with file.open("rb") as source:
                return pickle.load(source)  # noqa: S301 - see the import


def main() -> None:
    """See the module."""
    size, file = sys.argv[1], Path(sys.argv[2])
    clock = SystemClock()
    torch.set_num_threads(1)
    tensors: dict[str, torch.Tensor] = {}
    print("ready", flush=True)  # noqa: T201 - whoever started us waits for it
    for line in sys.stdin:
        verb, kind = line.split()
        if verb == "save" and not tensors:
            world = LoadWorld({"bytes": size, "vae": False})
            live = world.open(1, ArenaMemory(Arena.create(arena_capacity(world.state_bytes_max), "bench")))
            for _ in range(BLOCKS):
                live.step(1)
            tensors = tensors_of(live.state())
        began_s = clock.monotonic_s()
        kept = save(kind, tensors, file) if verb == "save" else load(kind, file)  # type: ignore[func-returns-value]
        print(clock.monotonic_s() - began_s, flush=True)  # noqa: T201
        del kept


if __name__ == "__main__":
    main()
