"""Compiles the kernels for cards that need not be here, and tells what each takes.

    python -m worldline.gpu.compiled 80 90 100

prints one JSON list: kernel, sm, registers a thread, bytes of stack, of shared memory and of code.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from worldline.gpu.copies import WORDS_A_PROGRAM, copy_words
from worldline.gpu.digests import LEAVES_A_PROGRAM
from worldline.gpu.window import decode_granules, encode_granules, move_together
from worldline.gpu.xxh3 import digest_leaves

WARPS = 4
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel as it is launched. `signature`: what each parameter is; `constants`: those known when it is compiled."""

    name: str
    function: Any
    signature: Mapping[str, str]
    constants: Mapping[str, int]


KERNELS = (
    Kernel(
        "digest_leaves",
        digest_leaves,
        {"words": "*u64", "offsets": "*i64", "sizes": "*i64", "table": "*u64", "out": "*u64", "count": "i32"},
        {"LEAVES": LEAVES_A_PROGRAM},
    ),
    Kernel(
        "copy_words",
        copy_words,
        {"source": "*u8", "target": "*u8", "sources": "*i64", "targets": "*i64", "sizes": "*i64"},
        {"WORDS": WORDS_A_PROGRAM},
    ),
    Kernel(
        "encode_granules", encode_granules, {"elements": "*i16", "heads": "*u8", "slots": "*u8", "widths": "*i64"}, {}
    ),
    Kernel("move_together", move_together, {"slots": "*u8", "widths": "*i64", "places": "*i64", "out": "*u8"}, {}),
    Kernel(
        "decode_granules",
        decode_granules,
        {
            "body": "*u8",
            "kinds": "*i64",
            "lowests": "*i64",
            "escapes": "*i64",
            "places": "*i64",
            "elements": "*i16",
            "wrong": "*u8",
        },
        {},
    ),
)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kernel takes on one kind of card."""

    kernel: str
    sm: int
    registers: int
    stack_bytes: int
    shared_bytes: int
    code_bytes: int


def usage_of(kernel: Kernel, sm: int) -> Usage:
    """Compiles it. Needs no card; ptxas and cuobjdump come with Triton."""
    signature = {**kernel.signature, **dict.fromkeys(kernel.constants, "constexpr")}
    source = ASTSource(kernel.function, signature, constexprs=dict(kernel.constants))
    cubin = triton.compile(source, target=GPUTarget("cuda", sm, 32), options={"num_warps": WARPS}).asm["cubin"]
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = [str(tool), "--dump-resource-usage", file.name]
        told = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    found = _USAGE.search(told)
    assert found is not None, f"cuobjdump told no usage of {kernel.name}: {told[:200]}"
    registers, stack, shared = map(int, found.groups())
    return Usage(kernel.name, sm, registers, stack, shared, len(cubin))


def main() -> None:
    """The process."""
    usages = [usage_of(kernel, int(sm)) for sm in sys.argv[1:] for kernel in KERNELS]
    sys.stdout.write(json.dumps([asdict(usage) for usage in usages], indent=1) + "\n")


if __name__ == "__main__":
    main()
