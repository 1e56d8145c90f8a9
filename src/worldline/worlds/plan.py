"""The kernel plan of a world in this process: the facts that decide its bits, and a canary block that tests them."""

from __future__ import annotations

import json
import os
import platform
import sys
from typing import Protocol, runtime_checkable

import blake3
import torch

from worldline.schema.canonical import canonical_json
from worldline.schema.plan import ENGINE, Plan
from worldline.worlds.protocol import World
from worldline.worlds.scratch import ScratchMemory, digest_tree

CANARY_SEED = 0x5EED
CANARY_BLOCKS = 2
KERNEL_VARIABLES = (
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
)
"""Environment variables by which libraries choose kernels. ATEN_CPU_CAPABILITY shows in `torch.cpu_capability`, where
it counts only if the machine can do what it says.
"""


@runtime_checkable
class HasCanary(Protocol):
    """A world whose block is too large for a canary names a small one that runs the same kernels."""

    def canary_world(self) -> World: ...


def plan_of(world: World) -> Plan:
    """The plan under which this process runs `world`; runs `CANARY_BLOCKS` blocks of it in memory of its own."""
    facts = tuple(sorted((engine_facts(world) | torch_facts()).items()))
    canary = run_canary(world.canary_world() if isinstance(world, HasCanary) else world)
    covered = canonical_json([world.name, facts, canary])
    return Plan(world.name, facts, canary, blake3.blake3(b"worldline plan 1\0" + covered).hexdigest())


def engine_facts(world: World) -> dict[str, str]:
    """What the world says of itself, and what it offers: `engine.*`."""
    offered = json.dumps([list(world.actions), repr(world.readout)])
    return {f"{ENGINE}{name}": str(value) for name, value in world.facts().items()} | {
        f"{ENGINE}offers": blake3.blake3(offered.encode()).hexdigest(length=8)
    }


def be_deterministic() -> None:
    """As `torch.use_deterministic_algorithms(True, warn_only=True)`, which would import torch's compiler: half of a
    host's start. A world that compiles finds the setting in the environment.
    """
    os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1"
    torch.set_deterministic_debug_mode("warn")


def torch_facts() -> dict[str, str]:
    """What decides the bits that torch computes in this process: `torch.*`, `machine.*`, `env.*`."""
    return {
        "machine.arch": platform.machine(),
        "machine.byte_order": sys.byteorder,
        "torch.version": str(torch.__version__),
        "torch.cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch.threads": str(torch.get_num_threads()),
        "torch.deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "torch.float32_matmul": torch.get_float32_matmul_precision(),
        "torch.default_dtype": str(torch.get_default_dtype()),
        "torch.mkl": str(torch.backends.mkl.is_available()),
        "torch.mkldnn": f"{torch.backends.mkldnn.is_available()} {torch.backends.mkldnn.enabled}",
    } | {f"env.{name}": os.environ[name] for name in KERNEL_VARIABLES if name in os.environ}


def run_canary(world: World) -> str:
    """BLAKE3-256 (hex) over frames and state of the first blocks from a fixed seed."""
    live = world.open(CANARY_SEED, ScratchMemory())
    seen = blake3.blake3()
    for block in range(CANARY_BLOCKS):
        frames = live.step((block + 1) % len(world.actions) if world.actions else -1)
        seen.update(frames.tobytes())
        seen.update(digest_tree(live.state()).encode())
    return seen.hexdigest()
