"""Leaves: within segments, in canonical order, covering every byte once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worldline.schema.inventory import Free, Kind
from worldline.schema.layout import Layout, Manifest, Placement, Segment


def _manifest(sizes: list[int], leaf_bytes: int) -> Manifest:
    segments = tuple(Segment(f"s{i}", size, Kind.CACHE, Free()) for i, size in enumerate(sizes))
    places = tuple(Placement(offset=i << 40, capacity=size, resident=False) for i, size in enumerate(sizes))
    return Manifest(Layout(segments, (), leaf_bytes), places, block=0)


@given(st.lists(st.integers(0, 5_000_000), max_size=8), st.sampled_from([65_536, 262_144, 1_048_576]))
def test_leaves_cover_every_byte_of_every_segment_once(sizes: list[int], leaf_bytes: int) -> None:
    manifest = _manifest(sizes, leaf_bytes)
    leaves = list(manifest.leaves())
    assert len(leaves) == manifest.layout.leaf_count
    assert sum(leaf.nbytes for leaf in leaves) == manifest.layout.nbytes
    expected = [0] * len(sizes)
    for leaf in leaves:
        segment = leaf.offset >> 40
        assert leaf.offset - (segment << 40) == expected[segment]
        assert 0 < leaf.nbytes <= leaf_bytes
        expected[segment] += leaf.nbytes
    assert expected == sizes
