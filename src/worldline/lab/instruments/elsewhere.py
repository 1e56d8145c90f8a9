"""A session in processes that compute by other kernels, threads or precision: each a plan of its own.

`Journey` says what is played; `go` has one process play it, and reads what it left; `recomputed` is the state that
another plan comes to from the same actions.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from worldline.errors import Internal, TimedOut
from worldline.lab.instruments.handles import State
from worldline.runtime.error_record import ErrorRecord
from worldline.worlds.protocol import Options

WAIT_S = 1800.0
CUT = "cut.npz"
ERROR = "error.json"
"""What a side writes in place of its results, where it could not go on."""


@dataclass(frozen=True, slots=True)
class Computing:
    """How a process computes: variables that libraries read at their start, threads and torch's float32 products."""

    variables: Mapping[str, str]
    threads: int = 1
    precision: str = "highest"


HERE, OTHER_KERNELS = "same plan", "aten default"
PATHS: Mapping[str, Computing] = {
    HERE: Computing({}),
    OTHER_KERNELS: Computing({"ATEN_CPU_CAPABILITY": "default"}),
    "aten avx2": Computing({"ATEN_CPU_CAPABILITY": "avx2"}),
    "two threads": Computing({"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}, threads=2),
    "onednn sse41": Computing({"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "bf16 products": Computing({"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}, precision="medium"),
}
"""The plan at hand, and others; one that asks for what the processor is not is the plan at hand. Threads that wait do
not spin: on busy cores that would take minutes for seconds.
"""


@dataclass(frozen=True, slots=True)
class Journey:
    """A session's whole way: `cut` of the actions lead to the boundary at which its state is handed over."""

    world: str
    options: Options
    seed: int
    actions: Sequence[int]
    cut: int


@dataclass(frozen=True, slots=True)
class Side:
    """What one process showed and held behind the cut."""

    shown: list[np.ndarray]
    """A readout a block."""
    facts: dict[str, str]
    blocks: list[dict[str, str]]
    """Digest of each entry, a block."""
    early: dict[str, np.ndarray]
    """Octets of each entry, by `early_name`: at the cut, which is block 0, and after the first blocks."""


def go(folder: Path, name: str, journey: Journey) -> Side:
    """Has a process of the plan `name` play `journey`. The first in `folder` leaves its state at the cut there, and
    those after it go on from that.

    Raises what the process says it failed of, `Internal` if it says nothing, and `TimedOut`.
    """
    own = folder / f"side-{name.replace(' ', '-')}"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    path = PATHS[name]
    asked: dict[str, Any] = asdict(journey) | {"folder": str(own), "cut_file": str(folder / CUT)}
    asked |= {"threads": path.threads, "precision": path.precision}
    (own / "request.json").write_text(json.dumps(asked))
    command = [sys.executable, "-m", "worldline.lab.instruments.elsewhere_child", str(own / "request.json")]
    environment = os.environ | dict(path.variables)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=WAIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimedOut(f"the side {name!r} did not end within {WAIT_S:g} s", side=name) from None
    if done.returncode:
        said = own / ERROR
        if said.exists():
            raise msgspec.json.decode(said.read_bytes(), type=ErrorRecord).to_error(side=name)
        raise Internal(f"the side {name!r} ended: {done.stderr[-600:]}", side=name)
    told = json.loads((own / "digests.json").read_text())
    side = Side(_arrays(own / "shown.npz"), told["facts"], told["blocks"], _members(own / "early.npz"))
    shutil.rmtree(own)
    return side


def recomputed(folder: Path, journey: Journey, like: State) -> State:
    """The moved tensors at the cut as other kernels make them from the same actions; dtypes and shapes are `like`'s."""
    to_cut = Journey(journey.world, journey.options, journey.seed, list(journey.actions[: journey.cut]), journey.cut)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        early = go(Path(own), OTHER_KERNELS, to_cut).early
    return {path: tensor_of(early[early_name(0, path)], tensor) for path, tensor in like.items()}


def early_name(block: int, path: str) -> str:
    """An archive's members are files: no folders in their names."""
    return f"{block}:{path.replace('/', '|')}"


def octets_of(tensor: torch.Tensor) -> np.ndarray:
    """Its bytes in C order."""
    made: np.ndarray = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return made


def tensor_of(octets: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """A tensor of `like`'s dtype and shape."""
    return torch.from_numpy(octets.copy()).view(like.dtype).reshape(like.shape)


def _arrays(path: Path) -> list[np.ndarray]:
    with np.load(path) as saved:
        return [saved[f"arr_{at}"] for at in range(len(saved.files))]


def _members(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as saved:
        return {name: saved[name] for name in saved.files}
