"""XXH3-128 of many leaves at once, in Triton: eight lanes a leaf, bit for bit what `worldline.kernel` computes.

After the published XXH3 specification, seed 0, default secret, for inputs over 240 bytes; shorter leaves (the last one
of a segment may be) are copied to the host and digested there. A leaf begins at a multiple of 8 bytes.

Triton knows no unaligned 64-bit load, so the last stripe, which ends with the leaf wherever that is, is put together
from two aligned words. Those may lie up to 7 bytes beyond the leaf, never beyond a memory of whole 8-byte words.
"""

from __future__ import annotations

import triton
import triton.language as tl

SHORT_BYTES_MAX = 240
LANES = 8
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

P32_1: tl.constexpr = tl.constexpr(0x9E3779B1)
P64_1: tl.constexpr = tl.constexpr(0x9E3779B185EBCA87)
P64_2: tl.constexpr = tl.constexpr(0xC2B2AE3D27D4EB4F)
MIX: tl.constexpr = tl.constexpr(0x165667919E3779F9)
STRIPES: tl.constexpr = tl.constexpr(16)
"""Of a block, 64 bytes each; after a block the accumulators are scrambled."""
BLOCK_BYTES: tl.constexpr = tl.constexpr(1024)
SCRAMBLE: tl.constexpr = tl.constexpr(16)
LAST: tl.constexpr = tl.constexpr(24)
LOW: tl.constexpr = tl.constexpr(32)
HIGH: tl.constexpr = tl.constexpr(40)
START: tl.constexpr = tl.constexpr(48)
"""Where in `table` each step's words begin; the stripes' own begin at 0."""

_START = (
    0xC2B2AE3D,
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x85EBCA77,
    0x27D4EB2F165667C5,
    0x9E3779B1,
)


def table() -> list[int]:
    """The words that the kernel adds to its input, in the order in which it wants them, as signed 64-bit numbers."""

    def words(first: int, count: int) -> list[int]:
        return [int.from_bytes(SECRET[at : at + 8], "little") for at in range(first, first + 8 * count, 8)]

    unsigned = words(0, 24) + words(121, 8) + words(11, 8) + words(117, 8) + list(_START)
    return [word - (1 << 64) if word >> 63 else word for word in unsigned]


@triton.jit
def _mixed(value, key):
    """A keyed word's two halves, multiplied."""
    keyed = value ^ key
    return (keyed & 0xFFFFFFFF) * (keyed >> 32)


@triton.jit
def _word(words, at, mask):
    """The 8 bytes at byte `at` of `words`, wherever they begin."""
    shift = ((at % 8) * 8).to(tl.uint64)
    low = tl.load(words + at // 8, mask=mask, other=0)
    high = tl.load(words + at // 8 + 1, mask=mask & (shift > 0), other=0)
    return tl.where(shift > 0, (low >> shift) | (high << ((64 - shift) % 64)), low)


@triton.jit
def _finished(acc, table, first: tl.constexpr, start, LEAVES: tl.constexpr):
    """One half of the digest: the lanes in pairs, multiplied and folded, and the sum stirred."""
    lanes = tl.arange(0, 8)[None, :]
    pairs = tl.reshape(acc ^ tl.load(table + first + lanes), (LEAVES, 4, 2))
    left, right = tl.split(pairs)
    x = start + tl.sum((left * right) ^ tl.umulhi(left, right), axis=1)
    x = x ^ (x >> 37)
    x = x * MIX
    return x ^ (x >> 32)


@triton.jit
def digest_leaves(words, offsets, sizes, table, out, count, LEAVES: tl.constexpr):
    """`words`: the memory as 64-bit words; `offsets` and `sizes` in bytes; `out[leaf]` is the high half, then the low.

    Grid: one program for `LEAVES` leaves. A leaf of at most 240 bytes is left alone.
    """
    leaf = tl.program_id(0) * LEAVES + tl.arange(0, LEAVES)
    size = tl.load(sizes + leaf, mask=leaf < count, other=0)
    here = (size > 240)[:, None]
    base = tl.load(offsets + leaf, mask=leaf < count, other=0)[:, None]
    lanes = tl.arange(0, 8)[None, :]
    acc = tl.load(table + START + lanes) + tl.zeros((LEAVES, 8), tl.uint64)
    blocks = tl.where(size > 240, (size - 1) // BLOCK_BYTES, 0)
    for block in range(tl.max(blocks, axis=0)):
        inside = here & (block < blocks[:, None])
        at = base // 8 + block * (BLOCK_BYTES // 8)
        for stripe in range(STRIPES):
            value = tl.load(words + at + stripe * 8 + lanes, mask=inside, other=0)
            swapped = tl.load(words + at + stripe * 8 + (lanes ^ 1), mask=inside, other=0)
            step = swapped + _mixed(value, tl.load(table + stripe + lanes))
            acc = tl.where(inside, acc + step, acc)
        scrambled = (acc ^ (acc >> 47) ^ tl.load(table + SCRAMBLE + lanes)) * P32_1
        acc = tl.where(inside, scrambled, acc)
    stripes = (tl.where(size > 240, size - 1, 0) - blocks * BLOCK_BYTES)[:, None] // 64
    at = base // 8 + blocks[:, None] * (BLOCK_BYTES // 8)
    for stripe in range(STRIPES):
        inside = here & (stripe < stripes)
        value = tl.load(words + at + stripe * 8 + lanes, mask=inside, other=0)
        swapped = tl.load(words + at + stripe * 8 + (lanes ^ 1), mask=inside, other=0)
        step = swapped + _mixed(value, tl.load(table + stripe + lanes))
        acc = tl.where(inside, acc + step, acc)
    end = base + size[:, None] - 64
    value = _word(words, end + lanes * 8, here)
    acc += _word(words, end + (lanes ^ 1) * 8, here) + _mixed(value, tl.load(table + LAST + lanes))
    length = size.to(tl.uint64)
    low = _finished(acc, table, LOW, length * P64_1, LEAVES)
    high = _finished(acc, table, HIGH, ~(length * P64_2), LEAVES)
    tl.store(out + leaf * 2, high, mask=(leaf < count) & (size > 240))
    tl.store(out + leaf * 2 + 1, low, mask=(leaf < count) & (size > 240))
