"""Everything that docs/gpu.md claims of a card, measured on one in one run, and written as a table.

    python benchmarks/gpu.py --bytes 1.67GB --out docs/gpu-table.md

Each row is checked before it is timed: digests against the CPU's, copies and codes byte for byte, a hand-over by the
digests that the other process takes. A row that fails ends the run. Without a card it says so and writes nothing.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from worldline.gpu import handover, window
from worldline.gpu.copies import Stretch, copy_stretches
from worldline.gpu.digests import leaf_digests
from worldline.gpu.mirror import LEAF_BYTES, Bus, Mirror
from worldline.kernel import kernel
from worldline.lab.fingerprint import fingerprint
from worldline.schema.layout import Extent
from worldline.units import format_bytes, parse_bytes

RUNS = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One step: what it touches, and the median of its times on the card's own clock."""

    name: str
    nbytes: int
    median_ms: float
    spread: float
    note: str = ""

    def text(self) -> str:
        rate = self.nbytes / self.median_ms / 1e6
        figures = f"{format_bytes(self.nbytes)} | {self.median_ms:.3f} | {rate:.1f} | {self.spread:.2f}"
        return f"| {self.name} | {figures} | {self.note} |"


def timed(name: str, nbytes: int, work: Callable[[], object], note: str = "") -> Row:
    """The median of `RUNS` runs after one that warms up, by CUDA events on the current stream."""
    work()
    times = []
    for _ in range(RUNS):
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began.record()
        work()
        ended.record()
        ended.synchronize()
        times.append(began.elapsed_time(ended))
    middle = statistics.median(times)
    return Row(name, nbytes, middle, (max(times) - min(times)) / middle, note)


def state_of(nbytes: int) -> torch.Tensor:
    """bf16 as attention leaves it, a fifth of it never written."""
    generator = torch.Generator("cuda").manual_seed(1)
    values = torch.randn(nbytes // 2, dtype=torch.bfloat16, device="cuda", generator=generator)
    values[: nbytes // 10] = 0
    return values.view(torch.uint8)


def check(claim: bool, what: str) -> None:
    """Ends the run where a claim is false: no table is written from a card that computes something else."""
    if not claim:
        raise SystemExit(f"not true on this card: {what}")


def rows_of(nbytes: int) -> list[Row]:
    """Every row, each checked first."""
    memory = state_of(nbytes)
    host = memory.cpu().numpy()
    leaves = [Extent(at, min(LEAF_BYTES, nbytes - at)) for at in range(0, nbytes, LEAF_BYTES)]
    offsets = np.array([leaf.offset for leaf in leaves], np.int64)
    sizes = np.array([leaf.nbytes for leaf in leaves], np.int64)
    wanted = kernel().leaf_digests(host, offsets, sizes)
    check(b"".join(leaf_digests(memory, leaves)) == wanted, "leaf digests equal the CPU's")
    other = torch.empty_like(memory)
    rows = [
        timed("read (sum of words)", nbytes, lambda: memory.view(torch.int64).sum(), "limit of reading"),
        timed("copy on the card", nbytes, lambda: other.copy_(memory), "limit of copying"),
        timed("leaf digests", nbytes, lambda: leaf_digests(memory, leaves)),
    ]
    every_second = [Stretch(leaf.offset, leaf.offset // 2, leaf.nbytes) for leaf in leaves[::2]]
    rows.append(timed("gather of half the leaves", nbytes // 2, lambda: copy_stretches(memory, other, every_second)))
    mirror = Mirror(memory, np.zeros(nbytes, np.uint8), Bus(memory.device))
    mirror.down()
    check(mirror.host.tobytes() == host.tobytes(), "a mirror holds the card's bytes")
    rows.append(timed("mirror, nothing changed", nbytes, mirror.down, "digests only"))

    def rewritten() -> None:
        memory[: nbytes // 2].add_(1)
        mirror.down()

    rows.append(timed("mirror, half rewritten", nbytes // 2, rewritten, "digest, gather, bus, digest on the host"))
    rows.append(timed("mirror up", nbytes, mirror.up, "bus, scatter, digest"))
    encoded = window.encode(memory)
    check(
        encoded.cpu().numpy().tobytes() == kernel().encode_granules(memory.cpu().numpy(), True).tobytes(),
        "the window code equals the CPU's",
    )
    window.decode_into(encoded, other)
    check(torch.equal(other, memory), "the window code comes back whole")
    ratio = f"ratio {nbytes / encoded.numel():.3f}"
    rows.append(timed("window encode", nbytes, lambda: window.encode(memory), ratio))
    rows.append(timed("window decode", nbytes, lambda: window.decode_into(encoded, other)))
    rows.append(handover_row(memory, leaves))
    if torch.cuda.device_count() > 1:
        peer = torch.empty_like(memory, device="cuda:1")
        rows.append(timed("peer copy to a second card", nbytes, lambda: peer.copy_(memory)))
        check(torch.equal(peer.cpu(), memory.cpu()), "a peer copy holds the same bytes")
    return rows


def handover_row(memory: torch.Tensor, leaves: list[Extent]) -> Row:
    """Another process opens the memory by CUDA IPC and digests it where it lies."""
    code = "from worldline.gpu.handover import answer; answer()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        offer = handover.Offer.of(memory)
        wanted = b"".join(leaf_digests(memory, leaves))

        def asked() -> bytes:
            handover.ask(child.stdin, offer, leaves)
            return handover.told(child.stdout, len(leaves))

        check(asked() == wanted, "the other process reads the same bytes by CUDA IPC")
        row = timed("hand-over by CUDA IPC, verified by the other process", memory.numel(), asked)
        child.stdin.close()
    return row


def main() -> None:
    """The script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", default="1.67GB")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no card is here: nothing was measured, and nothing is written")
    nbytes = parse_bytes(words.bytes) // 4096 * 4096
    rows = rows_of(nbytes)
    machine = fingerprint()
    text = "\n".join(
        [
            f"# {torch.cuda.get_device_name(0)}, {format_bytes(nbytes)}",
            "",
            f"torch {torch.__version__}, commit {machine.commit}; medians of {RUNS}.",
            "",
            "| step | bytes | ms | GB/s | spread | |",
            "|---|---|---|---|---|---|",
            *(row.text() for row in rows),
            "",
        ]
    )
    if words.out is not None:
        words.out.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
