"""The kernel without C: the xxhash wheel and numpy. Slower, and byte for byte the same."""

from __future__ import annotations

import numpy as np
from xxhash import xxh3_128_digest

from worldline.kernel.operations import (
    GRANULE_BYTES,
    HEADER_BYTES,
    Claims,
    Octets,
    Places,
    check_equal,
    check_places,
    granule_count,
)

ZERO, RAW, WINDOW = 0, 1, 2
ELEMENTS = GRANULE_BYTES // 2
WIDTH = 15
SAMPLE_EVERY = 16
ESCAPES_MAX = 512
BATCH_GRANULES = 1024
"""Encoded at once, so that the arrays between stay in the megabytes."""


class Plain:
    """See `Kernel`."""

    name = "python"

    def leaf_digests(self, memory: Octets, offsets: Places, sizes: Places) -> bytes:
        check_places(memory.nbytes, offsets, sizes)
        view = memoryview(memory.data)
        places = zip(offsets.tolist(), sizes.tolist(), strict=True)
        return b"".join([xxh3_128_digest(view[offset : offset + size]) for offset, size in places])

    def copy_digests(self, target: Octets, source: Octets, offsets: Places, sizes: Places) -> bytes:
        check_places(min(target.nbytes, source.nbytes), offsets, sizes)
        view, digests = memoryview(target.data), []
        for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
            np.copyto(target[offset : offset + size], source[offset : offset + size])
            digests.append(xxh3_128_digest(view[offset : offset + size]))
        return b"".join(digests)

    def copy(self, target: Octets, source: Octets) -> None:
        check_equal(target, source)
        np.copyto(target, source)

    def differences(self, left: Octets, right: Octets, granule_bytes: int) -> Claims:
        check_equal(left, right)
        if not granule_count(left.nbytes, granule_bytes):
            return np.empty(0, np.bool_)
        starts = np.arange(0, left.nbytes, granule_bytes)
        return np.asarray(np.logical_or.reduceat(left != right, starts))

    def zeros(self, memory: Octets, granule_bytes: int) -> Claims:
        if not granule_count(memory.nbytes, granule_bytes):
            return np.empty(0, np.bool_)
        starts = np.arange(0, memory.nbytes, granule_bytes)
        return np.asarray(np.bitwise_or.reduceat(memory, starts) == 0)

    def encode_granules(self, memory: Octets, window: bool) -> Octets:
        heads, bodies = [], []
        full = memory.nbytes // GRANULE_BYTES * GRANULE_BYTES
        for start in range(0, full, BATCH_GRANULES * GRANULE_BYTES):
            batch = memory[start : min(start + BATCH_GRANULES * GRANULE_BYTES, full)].reshape(-1, GRANULE_BYTES)
            head, body = _encode_full(batch, window)
            heads.append(head)
            bodies.append(body)
        tail = memory[full:]
        if tail.nbytes:
            kind = RAW if tail.any() else ZERO
            heads.append(np.array([kind, 0, 0, 0], np.uint8))
            bodies.append(tail[: tail.nbytes * kind])
        return np.concatenate([*heads, *bodies]) if heads else np.empty(0, np.uint8)

    def decode_granules(self, encoded: Octets, into: Octets) -> bool:
        count = granule_count(into.nbytes)
        if encoded.nbytes < HEADER_BYTES * count:
            return False
        heads = encoded[: HEADER_BYTES * count].reshape(-1, HEADER_BYTES)
        at = HEADER_BYTES * count
        for number, (kind, lowest, low, high) in enumerate(heads.tolist()):
            out = into[number * GRANULE_BYTES : (number + 1) * GRANULE_BYTES]
            needs = _taken(kind, lowest, low | high << 8, out.nbytes)
            if needs is None or needs > encoded.nbytes - at:
                return False
            body = encoded[at : at + needs]
            at += needs
            if kind == ZERO:
                out[:] = 0
            elif kind == RAW:
                out[:] = body
            elif not _decode_window(body, lowest, out):
                return False
        return at == encoded.nbytes

    def split_planes(self, memory: Octets) -> tuple[Octets, Octets]:
        if memory.nbytes % 2:
            raise ValueError("bf16 elements have two bytes")
        return _exponents(memory), _rest(memory)

    def join_planes(self, exponents: Octets, rest: Octets, into: Octets) -> None:
        check_equal(exponents, rest)
        if into.nbytes != 2 * rest.nbytes:
            raise ValueError("bf16 elements have two bytes")
        into[0::2] = rest & 0x7F | exponents << 7
        into[1::2] = rest & 0x80 | exponents >> 1


def _encode_full(granules: Octets, window: bool) -> tuple[Octets, Octets]:
    """Headers and bodies of whole granules, one a row."""
    heads = np.zeros((len(granules), HEADER_BYTES), np.uint8)
    live = granules.any(axis=1)
    heads[live, 0] = RAW
    widths = np.where(live, GRANULE_BYTES, 0)
    rows = np.zeros((len(granules), GRANULE_BYTES), np.uint8)
    rows[live] = granules[live]
    if window and live.any():
        exponents = _exponents(granules)
        lowest = _lowest(exponents)
        codes = np.minimum(exponents - lowest[:, None], WIDTH)
        escaped = codes == WIDTH
        escapes = escaped.sum(axis=1)
        taken = live & (escapes <= ESCAPES_MAX)
        heads[taken, 0] = WINDOW
        heads[taken, 1] = lowest[taken]
        heads[taken, 2] = escapes[taken] & 0xFF
        heads[taken, 3] = escapes[taken] >> 8
        widths[taken] = ELEMENTS + ELEMENTS // 2 + escapes[taken]
        rows[taken, :ELEMENTS] = _rest(granules)[taken]
        rows[taken, ELEMENTS : ELEMENTS * 3 // 2] = (codes[:, 0::2] | codes[:, 1::2] << 4)[taken]
        places = np.arange(ELEMENTS)[None, :] < np.where(taken, escapes, 0)[:, None]
        rows[:, ELEMENTS * 3 // 2 :][places[:, : GRANULE_BYTES - ELEMENTS * 3 // 2]] = exponents[
            escaped & taken[:, None]
        ]
    return heads.reshape(-1), rows[np.arange(GRANULE_BYTES)[None, :] < widths[:, None]]


def _exponents(elements: Octets) -> Octets:
    """Of bf16 elements along the last axis."""
    return np.asarray(elements[..., 1::2] << 1 | elements[..., 0::2] >> 7, np.uint8)


def _rest(elements: Octets) -> Octets:
    """Sign (bit 7) and mantissa of bf16 elements along the last axis."""
    return np.asarray(elements[..., 0::2] & 0x7F | elements[..., 1::2] & 0x80, np.uint8)


def _lowest(exponents: Octets) -> Octets:
    """The lowest exponent of each row's window: where 15 in a row hold most of every 16th element's."""
    sample = exponents[:, ::SAMPLE_EVERY].astype(np.int64)
    seen = np.zeros((len(exponents), 256), np.int64)
    np.add.at(seen, (np.arange(len(exponents))[:, None], sample), 1)
    before = np.concatenate([np.zeros((len(exponents), 1), np.int64), seen.cumsum(axis=1)], axis=1)
    inside = before[:, WIDTH:] - before[:, :-WIDTH]
    return np.asarray(inside.argmax(axis=1), np.uint8)


def _taken(kind: int, lowest: int, escapes: int, size: int) -> int | None:
    """What a granule's body takes; None where its header is none."""
    if kind == WINDOW:
        fits = size == GRANULE_BYTES and escapes <= ESCAPES_MAX
        return ELEMENTS + ELEMENTS // 2 + escapes if fits else None
    if kind > RAW or lowest or escapes:
        return None
    return size * kind


def _decode_window(body: Octets, lowest: int, out: Octets) -> bool:
    rest, packed, escaped = body[:ELEMENTS], body[ELEMENTS : ELEMENTS * 3 // 2], body[ELEMENTS * 3 // 2 :]
    codes = np.empty(ELEMENTS, np.uint8)
    codes[0::2], codes[1::2] = packed & 15, packed >> 4
    outside = codes == WIDTH
    if np.count_nonzero(outside) != escaped.size:
        return False
    exponents = codes + np.uint8(lowest)
    exponents[outside] = escaped
    out[0::2] = rest & 0x7F | exponents << 7
    out[1::2] = rest & 0x80 | exponents >> 1
    return True
