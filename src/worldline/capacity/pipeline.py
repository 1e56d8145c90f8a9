"""A move as a pipeline: compress, send, decompress, verify, each chunk a stage ahead of the next.

A stage's total is the time it would take for the whole state by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from worldline.capacity.domain import Real, at_least_zero, positive, whole
from worldline.errors import BadValue

CHUNKS_MAX = 10_000_000
CELLS_MAX = 1_000_000
"""Chunks times stages that are computed one by one."""


def pipeline_s(
    stages_s: Sequence[Real], chunks: int, start_s: Real | None = None, chunk_overhead_s: Real | None = None
) -> Real:
    """The time of equal chunks: start + sum A/K + (K - 1)/K max A, with A/K longer by the overhead in each stage.

    Exact; equal to the max-plus recursion, and one-chunk buffers suffice. Domain: at least one stage, all >= 0,
    1 <= chunks. Raises `BadValue` outside. Source: the permutation flow line with constant times.
    """
    if not stages_s:
        raise BadValue("a pipeline has at least one stage")
    whole(chunks, "chunks", least=1, most=CHUNKS_MAX)
    zero = at_least_zero(stages_s[0], "a stage's time") * 0
    start = zero if start_s is None else at_least_zero(start_s, "start_s")
    overhead = zero if chunk_overhead_s is None else at_least_zero(chunk_overhead_s, "chunk_overhead_s")
    each = [at_least_zero(total, "a stage's time") / chunks + overhead for total in stages_s]
    return start + sum(each, zero) + (chunks - 1) * max(each)


def best_chunks(stages_s: Sequence[float], chunk_overhead_s: float) -> int:
    """The number of equal chunks that takes the least time: near sqrt((sum A - max A) / h).

    1 where one stage does everything; `CHUNKS_MAX` where a chunk costs nothing (more is always better).
    Domain and errors as `pipeline_s`.
    """
    pipeline_s(stages_s, 1, 0.0, chunk_overhead_s)
    rest_s = sum(stages_s) - max(stages_s)
    if rest_s <= 0:
        return 1
    if chunk_overhead_s == 0 or math.sqrt(rest_s / chunk_overhead_s) >= CHUNKS_MAX:
        return CHUNKS_MAX
    near = math.floor(math.sqrt(rest_s / chunk_overhead_s))
    return min((max(near, 1), near + 1), key=lambda chunks: pipeline_s(stages_s, chunks, 0.0, chunk_overhead_s))


def stage_totals_s(
    state_bytes: Real, wire_bytes_per_s: Real, ratio: Real, compress_bytes_per_s: Real, decompress_bytes_per_s: Real
) -> tuple[Real, Real, Real]:
    """Compress, send and decompress: S/c, S/(rB), S/d; rates of the coder are of raw bytes.

    Domain: rates and ratio > 0, `state_bytes` >= 0.
    """
    at_least_zero(state_bytes, "state_bytes")
    wire = positive(ratio, "ratio") * positive(wire_bytes_per_s, "wire_bytes_per_s")
    return (
        state_bytes / positive(compress_bytes_per_s, "compress_bytes_per_s"),
        state_bytes / wire,
        state_bytes / positive(decompress_bytes_per_s, "decompress_bytes_per_s"),
    )


def makespan_s(chunks_s: Sequence[Sequence[Real]], buffer_chunks: int | None = None) -> Real:
    """The time of unequal chunks; one row a chunk, one column a stage.

    `buffer_chunks`: how many finished chunks fit between two stages; a stage that finds no room keeps its chunk and
    stands still. None: any number. Domain: rows of equal length, all >= 0, at most `CELLS_MAX` cells. Raises `BadValue`
    outside. Source: max-plus, C[i][j] = max(C[i-1][j], C[i][j-1]) + a[i][j]; finite buffers: blocking after service.
    """
    stages = len(chunks_s[0]) if chunks_s else 0
    if stages == 0 or any(len(row) != stages for row in chunks_s):
        raise BadValue("chunks are rows of equal length, with at least one chunk and one stage")
    if len(chunks_s) * stages > CELLS_MAX:
        raise BadValue(f"more than {CELLS_MAX} chunks times stages")
    if buffer_chunks is not None:
        whole(buffer_chunks, "buffer_chunks", most=CELLS_MAX)
    zero = at_least_zero(chunks_s[0][0], "a chunk's time") * 0
    left: list[list[Real]] = []  # when a chunk leaves a stage
    for i, row in enumerate(chunks_s):
        times: list[Real] = []
        for j, spent in enumerate(row):
            free = left[i - 1][j] if i else zero
            came = times[j - 1] if j else zero
            leaves = max(free, came) + at_least_zero(spent, "a chunk's time")
            if buffer_chunks is not None and j + 1 < stages and i > buffer_chunks:
                leaves = max(leaves, left[i - buffer_chunks - 1][j + 1])
            times.append(leaves)
        left.append(times)
    return left[-1][-1]
