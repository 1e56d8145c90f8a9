"""The bodies of COPY and ROWS: rows that moved inside the arena, and new ones. Octet tables in docs/wire.md.

What is decoded here is within the limits of the format, and no more: whether the view exists and the stretches are the
state's is checked against the manifest before either has an effect.
"""

from __future__ import annotations

import struct

from worldline.errors import Malformed
from worldline.schema.rows import Copy, Runs, Shift

SHIFTS_MAX = 4096
ROWS_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of rows in one record."""

_COPY = struct.Struct("<IIII")
_SHIFT = struct.Struct("<QQQ")
_RUNS = struct.Struct("<QQQII")

COPY_BODY_BYTES_MIN = _COPY.size + _SHIFT.size
COPY_BODY_BYTES_MAX = _COPY.size + _SHIFT.size * SHIFTS_MAX
ROWS_BODY_BYTES_MIN = _RUNS.size + 1
ROWS_BODY_BYTES_MAX = _RUNS.size + ROWS_BYTES_MAX


def encode_copy(copy: Copy) -> bytes:
    """Raises `Malformed` for what no reader would take."""
    _check_copy(copy)
    head = _pack(_COPY, copy.view, copy.dim, len(copy.shifts), 0)
    return head + b"".join(_pack(_SHIFT, shift.source, shift.to, shift.rows) for shift in copy.shifts)


def decode_copy(data: bytes) -> Copy:
    """Raises `Malformed`."""
    view, dim, count, reserved = _COPY.unpack_from(data)
    entries = memoryview(data)[_COPY.size :]
    if reserved:
        raise Malformed("reserved bytes of a body are not zero")
    if len(entries) != count * _SHIFT.size:
        raise Malformed(f"a copy announces {count} shifts and has {len(entries)} bytes of them")
    copy = Copy(view, dim, tuple(Shift(*numbers) for numbers in _SHIFT.iter_unpack(entries)))
    _check_copy(copy)
    return copy


def _check_copy(copy: Copy) -> None:
    if not 1 <= len(copy.shifts) <= SHIFTS_MAX:
        raise Malformed(f"a copy of {len(copy.shifts)} shifts; 1 to {SHIFTS_MAX} are one record")
    end = 0
    for shift in sorted(copy.shifts, key=lambda shift: shift.to):
        if shift.rows < 1 or max(shift.source, shift.to) + shift.rows >= 2**63:
            raise Malformed(f"a shift of {shift.rows} rows from {shift.source} to {shift.to}")
        if shift.to < end:
            raise Malformed(f"row {shift.to} of view {copy.view} is written twice by one copy")
        end = shift.to + shift.rows


def encode_runs(runs: Runs, data: bytes | memoryview) -> bytes:
    """What comes before the bytes of rows. Raises `Malformed` for what no reader would take."""
    _check_runs(runs, len(data))
    return _pack(_RUNS, runs.offset, runs.run_bytes, runs.stride_bytes, runs.count, 0)


def decode_rows(data: bytes | memoryview) -> tuple[Runs, memoryview]:
    """The stretches, and their bytes one after the other. Raises `Malformed`."""
    offset, run_bytes, stride_bytes, count, reserved = _RUNS.unpack_from(data)
    if reserved:
        raise Malformed("reserved bytes of a body are not zero")
    runs, octets = Runs(offset, run_bytes, stride_bytes, count), memoryview(data)[_RUNS.size :]
    _check_runs(runs, len(octets))
    return runs, octets


def _check_runs(runs: Runs, nbytes: int) -> None:
    if runs.count < 1 or runs.run_bytes < 1 or runs.nbytes != nbytes or nbytes > ROWS_BYTES_MAX:
        raise Malformed(f"{runs.count} runs of {runs.run_bytes} bytes with {nbytes} bytes of data")
    apart = runs.stride_bytes == runs.run_bytes if runs.count == 1 else runs.stride_bytes >= runs.run_bytes
    if not apart or runs.offset + runs.count * runs.stride_bytes >= 2**63:
        raise Malformed(f"{runs.count} runs of {runs.run_bytes} bytes every {runs.stride_bytes} from {runs.offset}")


def _pack(layout: struct.Struct, *values: int) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise Malformed(f"a number does not fit its field: {error}") from error
