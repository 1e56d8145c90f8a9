"""A root names layout and bytes, and nothing else; no change of either escapes it."""

import hashlib
import json
import struct
from dataclasses import replace

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128

from unit.verify.kit import LEAF, Octets, state
from worldline.schema.inventory import Free, Kind
from worldline.schema.layout import Extent, Layout, Manifest, Placement, Segment
from worldline.verify.digests import digest_state, layout_digest, leaf_digests, root

MEMORY, MANIFEST = state()
DIGESTED = digest_state(MEMORY, MANIFEST)
LIVE = [
    place.offset + at
    for segment, place in zip(MANIFEST.layout.segments, MANIFEST.placements, strict=True)
    for at in range(segment.nbytes)
]


def changed(layout=None, **changes):
    return replace(layout or MANIFEST.layout, **changes)


def test_the_root_is_what_the_format_says():
    leaves = [xxh3_128(bytes(MEMORY.bytes_at(leaf))).digest() for leaf in MANIFEST.leaves()]
    layout = blake3(
        json.dumps(
            {
                "leaf_bytes": LEAF,
                "segments": [{"name": s.name, "nbytes": s.nbytes} for s in MANIFEST.layout.segments],
                "views": [
                    {
                        "path": v.path,
                        "dtype": v.dtype,
                        "shape": v.shape,
                        "strides": v.strides,
                        "segment": v.segment,
                        "offset_bytes": v.offset_bytes,
                    }
                    for v in MANIFEST.layout.views
                ],
            },
            sort_keys=True,
            separators=(",", ":"),
        ).encode()
    ).digest()
    whole = b"worldline root 1\0" + layout + struct.pack("<Q", 4) + b"".join(leaves)
    assert list(DIGESTED.digests) == leaves
    assert DIGESTED.root == blake3(whole).digest()


def test_a_leaf_digest_is_canonical_xxh3():
    memory = Octets(5)
    assert leaf_digests(memory, [Extent(0, 0)])[0].hex() == "99aa06d3014798d86001c324468d497f"
    assert leaf_digests(memory, []) == []


def test_the_root_does_not_depend_on_where_the_state_lies_or_on_its_block():
    memory, manifest = state(offset=4096 * 7, block=99)
    assert digest_state(memory, manifest).root == DIGESTED.root


def test_kinds_and_write_rules_are_not_part_of_the_layout():
    segments = tuple(replace(segment, kind=Kind.AUX, write=Free()) for segment in MANIFEST.layout.segments)
    assert layout_digest(changed(segments=segments)) == layout_digest(MANIFEST.layout)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", "w"),
        ("dtype", "float16"),
        ("shape", (129, 128, 2)),
        ("strides", (256, 1, 2)),
        ("segment", 2),
        ("offset_bytes", 2),
    ],
)
def test_every_field_of_a_tensor_is_part_of_the_layout(field, value):
    views = (replace(MANIFEST.layout.views[0], **{field: value}), *MANIFEST.layout.views[1:])
    assert layout_digest(changed(views=views)) != layout_digest(MANIFEST.layout)


def test_names_sizes_and_leaf_size_are_part_of_the_layout():
    segments = MANIFEST.layout.segments
    others = [
        changed(segments=(*segments[:2], replace(segments[2], name="y"))),
        changed(segments=(*segments[:2], replace(segments[2], nbytes=71))),
        changed(segments=segments[:2]),
        changed(leaf_bytes=2 * LEAF),
    ]
    assert len({layout_digest(layout) for layout in [MANIFEST.layout, *others]}) == 5


@given(st.sampled_from(LIVE), st.integers(0, 7))
def test_any_single_flipped_bit_changes_the_root(at, bit):
    MEMORY.data[at] ^= 1 << bit
    try:
        assert digest_state(MEMORY, MANIFEST).root != DIGESTED.root
    finally:
        MEMORY.data[at] ^= 1 << bit


@given(st.integers(0, 127), st.integers(0, 127), st.sampled_from([128, 256, 512]))
def test_swapped_rows_change_the_root(one, two, row_bytes):
    place = MANIFEST.placements[1].offset
    memory = Octets()
    memory.data = bytearray(MEMORY.data)
    first, second = (memory.bytes_at(Extent(place + index * row_bytes, row_bytes)) for index in (one, two))
    first[:], second[:] = bytes(second), bytes(first)
    same = memory.data == MEMORY.data
    assert (digest_state(memory, MANIFEST).root == DIGESTED.root) == same


@given(st.lists(st.integers(0, LEAF // 2), min_size=1, max_size=4, unique=True))
def test_flipped_signs_change_the_root(elements):
    memory = Octets()
    memory.data = bytearray(MEMORY.data)
    for element in elements:
        memory.data[MANIFEST.placements[1].offset + 2 * element + 1] ^= 0x80
    assert digest_state(memory, MANIFEST).root != DIGESTED.root


def test_bytes_moved_between_leaves_change_the_root():
    digests = list(DIGESTED.digests)
    layout = layout_digest(MANIFEST.layout)
    assert root(layout, [digests[1], digests[0], *digests[2:]]) != DIGESTED.root
    assert root(layout, digests[:-1]) != DIGESTED.root


def test_a_wrong_sized_digest_is_a_bug():
    with pytest.raises(AssertionError):
        root(b"short", [])
    with pytest.raises(AssertionError):
        root(bytes(32), [hashlib.sha256(b"").digest()])


def test_views_of_no_bytes_have_no_leaves():
    layout = Layout((Segment("meta", 2, Kind.AUX, Free()), Segment("e", 0, Kind.AUX, Free())), (), LEAF)
    manifest = Manifest(layout, (Placement(0, 2, resident=False), Placement(0, 0, resident=False)), 0)
    assert len(digest_state(Octets(10), manifest).digests) == 1
