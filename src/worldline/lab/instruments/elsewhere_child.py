"""One side of a comparison of plans: a process with a plan of its own, which goes on from a cut.

    python -m worldline.lab.instruments.elsewhere_child REQUEST.json

The request is an `elsewhere.Journey` with the folder to write into, the file of the cut, threads and precision. The
first side makes the file of the cut, the others go on from it. Written are `shown.npz` (a readout a block),
`digests.json` (of each entry, a block) and `early.npz` (the bytes of each entry at the cut, `0:path`, and after the
first blocks); or an error.
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
from worldline.lab.instruments.elsewhere import ERROR, early_name, octets_of
from worldline.lab.instruments.fenced import FencedWorld
from worldline.lab.instruments.held import leave, state_of, take_up
from worldline.runtime.error_record import ErrorRecord
from worldline.worlds.plan import be_deterministic, torch_facts
from worldline.worlds.protocol import World
from worldline.worlds.registry import build_world
from worldline.worlds.seat import Seat

EARLY_BLOCKS = 3


def main(request: dict[str, Any]) -> None:
    """See the module."""
    torch.set_num_threads(request["threads"])
    torch.set_float32_matmul_precision(request["precision"])
    be_deterministic()
    folder = Path(request["folder"])
    world = FencedWorld(build_world(request["world"], request["options"]))
    actions, cut = request["actions"], request["cut"]
    digests: list[dict[str, str]] = []
    shown: list[np.ndarray] = []
    with ExitStack() as stack:
        seat = _at_the_cut(world, request, stack)
        early: dict[str, Any] = {early_name(0, path): data for path, data in _octets(seat).items()}
        for block, action in enumerate(actions[cut:], 1):
            shown.append(seat.live.step(action).copy())
            octets = _octets(seat)
            digests.append({path: xxhash.xxh3_128_hexdigest(data.tobytes()) for path, data in octets.items()})
            if block <= EARLY_BLOCKS:
                early |= {early_name(block, path): data for path, data in octets.items()}
    np.savez(folder / "shown.npz", *shown)
    np.savez(folder / "early.npz", **early)
    (folder / "digests.json").write_text(json.dumps({"facts": torch_facts(), "blocks": digests}))


def _at_the_cut(world: World, request: dict[str, Any], stack: ExitStack) -> Seat:
    """The session that was left in the file; or one opened and played to the cut, which is left there."""
    cut_file = Path(request["cut_file"])
    if cut_file.exists():
        return take_up(world, cut_file, stack)
    seat = Seat.open(world, request["seed"], stack)
    for action in request["actions"][: request["cut"]]:
        seat.step(action)
    leave(seat, cut_file)
    return seat


def _octets(seat: Seat) -> dict[str, np.ndarray]:
    return {path: octets_of(tensor) for path, tensor in state_of(seat).items()}


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text())
    try:
        main(asked)
    except WorldlineError as error:
        (Path(asked["folder"]) / ERROR).write_bytes(msgspec.json.encode(ErrorRecord.of(error)))
        sys.exit(error.exit_code)
