"""Stretches of device memory put together and taken apart in one launch: a handful of scattered leaves becomes one copy
over the bus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

WORDS_A_PROGRAM = 1024
WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """`nbytes` from byte `source` of one memory to byte `target` of another; both begin at multiples of 8."""

    source: int
    target: int
    nbytes: int


@triton.jit
def copy_words(source, target, sources, targets, sizes, WORDS: tl.constexpr):
    """Grid: stretches, times programs of `WORDS` words. `sources`, `targets` and `sizes` in bytes; the last, partial
    word of a stretch is copied byte by byte, so that nothing beyond it is written.
    """
    stretch = tl.program_id(0)
    size = tl.load(sizes + stretch)
    start = tl.program_id(1) * WORDS
    word = start + tl.arange(0, WORDS)
    whole = word < size // 8
    here = tl.load(sources + stretch)
    there = tl.load(targets + stretch)
    from_words = source.to(tl.pointer_type(tl.uint64))
    to_words = target.to(tl.pointer_type(tl.uint64))
    tl.store(to_words + there // 8 + word, tl.load(from_words + here // 8 + word, mask=whole), mask=whole)
    tail = (size // 8) * 8 + tl.arange(0, 8)
    rest = (tail < size) & (tail // 8 >= start) & (tail // 8 < start + WORDS)
    tl.store(target + there + tail, tl.load(source + here + tail, mask=rest), mask=rest)


def copy_stretches(source: torch.Tensor, target: torch.Tensor, stretches: Sequence[Stretch]) -> None:
    """Copies every stretch from `source` to `target`: [n] uint8 each, on one device. No two overlap in `target`.

    On a card it is queued on the current stream.
    """
    if not stretches:
        return
    table = np.array([(one.source, one.target, one.nbytes) for one in stretches], np.int64)
    sources, targets, sizes = table.T
    if (sources % WORD_BYTES).any() or (targets % WORD_BYTES).any() or (table < 0).any():
        raise ValueError("a stretch begins off a word")
    if (sources + sizes).max() > source.numel() or (targets + sizes).max() > target.numel():
        raise ValueError("a stretch ends outside the memory")
    words = int(sizes.max()) // WORD_BYTES + 1
    rows = torch.from_numpy(np.ascontiguousarray(table.T)).to(source.device)
    copy_words[(len(stretches), -(-words // WORDS_A_PROGRAM))](
        source, target, rows[0], rows[1], rows[2], WORDS=WORDS_A_PROGRAM
    )


def packed(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where stretches of these sizes lie when they are put one after the other, and how much that takes."""
    places: list[int] = []
    end = 0
    for size in sizes:
        places.append(end)
        end += -(-size // WORD_BYTES) * WORD_BYTES
    return places, end
