"""The codec `window` on a device: the bytes that `worldline.codecs` gives, coded before they cross the bus.

One program a granule of 4096 bytes. It writes into a slot of a whole granule; a second launch moves the slots together.
The last, partial granule is raw or zero, and settled on the host. Octets are in docs/wire.md.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from worldline.errors import Malformed

GRANULE_BYTES = 4096
HEADER_BYTES = 4
ELEMENTS = 2048
ESCAPES_MAX = 512
PACKED = ELEMENTS + ELEMENTS // 2

_ELEMENTS: tl.constexpr = tl.constexpr(2048)
_GRANULE: tl.constexpr = tl.constexpr(4096)
_PACKED: tl.constexpr = tl.constexpr(3072)
_ESCAPES_MAX: tl.constexpr = tl.constexpr(512)
_WIDTH: tl.constexpr = tl.constexpr(15)
_SAMPLES: tl.constexpr = tl.constexpr(128)
_SAMPLE_EVERY: tl.constexpr = tl.constexpr(16)
_LOWEST_MAX: tl.constexpr = tl.constexpr(242)


@triton.jit
def encode_granules(elements, heads, slots, widths):
    """Grid: granules. elements: 16-bit; heads: 4 bytes a granule; slots: 4096 bytes a granule; widths: bytes used."""
    granule = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, _ELEMENTS)
    value = tl.load(elements + granule * _ELEMENTS + number).to(tl.int32) & 0xFFFF
    exponent = (value >> 7) & 0xFF
    live = tl.max(value, axis=0) > 0
    # Where 15 exponents in a row hold most of the sample: the first such place.
    sample = tl.load(elements + granule * _ELEMENTS + tl.arange(0, _SAMPLES) * _SAMPLE_EVERY).to(tl.int32) & 0xFFFF
    sample = (sample >> 7) & 0xFF
    place = tl.arange(0, 256)
    slot = slots + granule * _GRANULE
    seen = tl.histogram(sample, 256)
    before = tl.cumsum(seen, axis=0) - seen
    # Registers can't be shifted against one another: the sums go through the slot, which nobody needs yet.
    sums = slot.to(tl.pointer_type(tl.int32))
    tl.store(sums + place, before)
    tl.debug_barrier()
    beyond = tl.load(sums + place + _WIDTH, mask=place < _LOWEST_MAX - 1, other=_SAMPLES)
    tl.debug_barrier()
    lowest = tl.argmax(tl.where(place < _LOWEST_MAX, beyond - before, -1), axis=0)
    code = tl.minimum((exponent - lowest) & 0xFF, _WIDTH)
    escaped = code == _WIDTH
    escapes = tl.sum(escaped.to(tl.int32), axis=0)
    window = live & (escapes <= _ESCAPES_MAX)
    coded = number < tl.where(window, _ELEMENTS, 0)
    rest = (value & 0x7F) | ((value >> 8) & 0x80)
    tl.store(slot + number, rest.to(tl.uint8), mask=coded)
    left, right = tl.split(tl.reshape(code, (_ELEMENTS // 2, 2)))
    pair = tl.arange(0, _ELEMENTS // 2)
    tl.store(slot + _ELEMENTS + pair, (left | (right << 4)).to(tl.uint8), mask=pair < tl.where(window, _ELEMENTS, 0))
    rank = tl.cumsum(escaped.to(tl.int32), axis=0) - 1
    tl.store(slot + _PACKED + rank, exponent.to(tl.uint8), mask=coded & escaped)
    raw = live & (escapes > _ESCAPES_MAX)
    plain = number < tl.where(raw, _ELEMENTS, 0)
    tl.store(slot + 2 * number, (value & 0xFF).to(tl.uint8), mask=plain)
    tl.store(slot + 2 * number + 1, (value >> 8).to(tl.uint8), mask=plain)
    kind = tl.where(window, 2, tl.where(raw, 1, 0))
    head = heads + granule * 4
    tl.store(head, kind.to(tl.uint8))
    tl.store(head + 1, tl.where(window, lowest, 0).to(tl.uint8))
    tl.store(head + 2, tl.where(window, escapes & 0xFF, 0).to(tl.uint8))
    tl.store(head + 3, tl.where(window, escapes >> 8, 0).to(tl.uint8))
    tl.store(widths + granule, tl.where(window, _PACKED + escapes, tl.where(raw, _GRANULE, 0)).to(tl.int64))


@triton.jit
def move_together(slots, widths, places, out):
    """Grid: granules. Each slot's used bytes to their place in the body."""
    granule = tl.program_id(0).to(tl.int64)
    octet = tl.arange(0, _GRANULE)
    used = octet < tl.load(widths + granule)
    value = tl.load(slots + granule * _GRANULE + octet, mask=used)
    tl.store(out + tl.load(places + granule) + octet, value, mask=used)


@triton.jit
def decode_granules(body, kinds, lowests, escapes, places, elements, wrong):
    """Grid: whole granules. `wrong` is set where a granule has not as many escapes as its header says."""
    granule = tl.program_id(0).to(tl.int64)
    kind = tl.load(kinds + granule)
    at = body + tl.load(places + granule)
    number = tl.arange(0, _ELEMENTS)
    window = number < tl.where(kind == 2, _ELEMENTS, 0)
    rest = tl.load(at + number, mask=window, other=0).to(tl.int32)
    packed = tl.load(at + _ELEMENTS + number // 2, mask=window, other=0).to(tl.int32)
    code = (packed >> ((number % 2) * 4)) & 15
    outside = window & (code == _WIDTH)
    rank = tl.cumsum(outside.to(tl.int32), axis=0) - 1
    count = tl.load(escapes + granule)
    known = outside & (rank < count)
    escaped = tl.load(at + _PACKED + rank, mask=known, other=0).to(tl.int32)
    exponent = tl.where(outside, escaped, (code + tl.load(lowests + granule)) & 0xFF)
    value = (rest & 0x7F) | ((rest & 0x80) << 8) | (exponent << 7)
    raw = number < tl.where(kind == 1, _ELEMENTS, 0)
    low = tl.load(at + 2 * number, mask=raw, other=0).to(tl.int32)
    high = tl.load(at + 2 * number + 1, mask=raw, other=0).to(tl.int32)
    value = tl.where(window, value, low | (high << 8))
    tl.store(elements + granule * _ELEMENTS + number, value.to(tl.int16))
    bad = (kind == 2) & (tl.sum(outside.to(tl.int32), axis=0) != count)
    tl.store(wrong + granule, bad.to(tl.uint8))


def encode(memory: torch.Tensor) -> torch.Tensor:
    """The granule code of memory, as `codecs` names it `window`. memory: [n] uint8 on a device; the answer is there."""
    whole = memory.numel() // GRANULE_BYTES
    device = memory.device
    tail = memory[whole * GRANULE_BYTES :]
    heads = torch.zeros(HEADER_BYTES * (whole + bool(tail.numel())), dtype=torch.uint8, device=device)
    slots = torch.empty(whole * GRANULE_BYTES, dtype=torch.uint8, device=device)
    widths = torch.zeros(whole, dtype=torch.int64, device=device)
    if whole:
        encode_granules[(whole,)](memory[: whole * GRANULE_BYTES].view(torch.int16), heads, slots, widths)
    ends = torch.cumsum(widths, 0)
    total = int(ends[-1]) if whole else 0
    tail_live = bool(tail.any()) if tail.numel() else False
    if tail.numel():
        heads[-HEADER_BYTES] = int(tail_live)
    out = torch.empty(heads.numel() + total + tail.numel() * tail_live, dtype=torch.uint8, device=device)
    out[: heads.numel()] = heads
    if whole:
        move_together[(whole,)](slots, widths, ends - widths + heads.numel(), out)
    if tail_live:
        out[heads.numel() + total :] = tail
    return out


def decode_into(encoded: torch.Tensor, into: torch.Tensor) -> None:
    """The bytes that `encode` took. encoded, into: [n] uint8 on one device.

    Raises `Malformed` for what is no granule code of so many bytes; then `into` holds nothing of use.
    """
    whole, tail = divmod(into.numel(), GRANULE_BYTES)
    count = whole + bool(tail)
    if encoded.numel() < HEADER_BYTES * count:
        raise Malformed(f"{encoded.numel()} bytes are no granule code of {into.numel()}")
    heads = encoded[: HEADER_BYTES * count].cpu().numpy().reshape(-1, HEADER_BYTES).astype(np.int64)
    kinds, lowests, escapes = heads[:, 0], heads[:, 1], heads[:, 2] | heads[:, 3] << 8
    sizes = np.full(count, GRANULE_BYTES)
    sizes[whole:] = tail
    window = (kinds == 2) & (sizes == GRANULE_BYTES) & (escapes <= ESCAPES_MAX)
    plain = (kinds <= 1) & (lowests == 0) & (escapes == 0)
    widths = np.where(window, PACKED + escapes, sizes * kinds)
    ends = np.cumsum(widths)
    if not (window | plain).all() or HEADER_BYTES * count + (int(ends[-1]) if count else 0) != encoded.numel():
        raise Malformed(f"{encoded.numel()} bytes are no granule code of {into.numel()}")
    device = into.device
    if whole:
        rows = [torch.from_numpy(np.ascontiguousarray(row[:whole])).to(device) for row in (kinds, lowests, escapes)]
        places = torch.from_numpy((ends - widths)[:whole] + HEADER_BYTES * count).to(device)
        wrong = torch.empty(whole, dtype=torch.uint8, device=device)
        decode_granules[(whole,)](encoded, *rows, places, into[: whole * GRANULE_BYTES].view(torch.int16), wrong)
        if bool(wrong.any()):
            raise Malformed("a granule has not as many escapes as its header says")
    if tail:
        into[whole * GRANULE_BYTES :] = encoded[encoded.numel() - tail :] if kinds[-1] else 0
