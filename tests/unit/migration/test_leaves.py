"""Leaves by their place, and what is known of them when places change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worldline.migration.leaves import Ground, Leaves
from worldline.schema.inventory import Free, Kind
from worldline.schema.layout import Extent, Layout, Manifest, Placement, Segment


def manifest(*places: tuple[int, int], leaf_bytes: int = 10, block: int = 1) -> Manifest:
    """Segments of (offset, nbytes)."""
    segments = tuple(Segment(f"s{n}", nbytes, Kind.CACHE, Free()) for n, (_, nbytes) in enumerate(places))
    placements = tuple(Placement(offset, nbytes, resident=True) for offset, nbytes in places)
    return Manifest(Layout(segments, (), leaf_bytes), placements, block)


@given(st.integers(0, 80), st.integers(1, 80))
def test_touched_leaves_are_those_that_share_a_byte(offset: int, nbytes: int) -> None:
    leaves = Leaves(manifest((40, 25), (0, 15), (20, 0)))
    stretch = set(range(offset, offset + nbytes))
    expected = [
        n for n, leaf in enumerate(leaves.extents) if stretch & set(range(leaf.offset, leaf.offset + leaf.nbytes))
    ]
    assert sorted(leaves.touched(Extent(offset, nbytes))) == expected


def test_leaves_that_did_not_move_are_not_laid_out_again() -> None:
    leaves = Leaves(manifest((0, 25)))
    assert Leaves.at(manifest((0, 25), block=2), leaves) is leaves
    assert Leaves.at(manifest((0, 25), leaf_bytes=5), leaves) is not leaves
    assert Leaves.at(manifest((5, 25)), leaves) is not leaves
    assert Leaves.at(manifest((0, 26)), leaves) is not leaves


def test_what_is_known_of_a_leaf_stays_with_its_place_and_goes_with_it() -> None:
    ground = Ground(manifest((0, 20), (40, 5)))
    (ticket_extents,) = [ground.lend([0, 1, 2], 7)]
    ground.settle(7, tuple((extent, b"%d" % extent.offset) for extent in ticket_extents))
    moved = Ground(manifest((0, 20), (50, 5)), ground)
    assert moved.digests == [b"0", b"10", None]
    back = Ground(manifest((0, 20), (40, 5)), moved)
    assert back.digests == [b"0", b"10", None]


def test_a_lane_at_work_over_a_change_of_places_still_counts_for_a_leaf_that_stayed() -> None:
    ground = Ground(manifest((0, 10), (40, 5)))
    extents = ground.lend([0, 1], 7)
    moved = Ground(manifest((0, 10), (50, 5)), ground)
    assert moved.waiting == 1
    moved.settle(7, tuple((extent, b"d") for extent in extents))
    assert (moved.digests, moved.waiting) == ([b"d", None], 0)
    assert moved.missing() == [1]


def test_what_was_read_before_the_last_manifest_is_early_until_it_is_read_again() -> None:
    first = Ground(manifest((0, 20), (40, 5)))
    first.settle(7, tuple((extent, b"d") for extent in first.lend([0, 1, 2], 7)))
    assert not first.early
    second = Ground(manifest((0, 20), (40, 5), block=2), first)
    assert second.early == {0, 1, 2}
    second.land(Extent(0, 10))
    second.lend([2], 8)
    assert second.early == {1}
    moved = Ground(manifest((0, 20), (60, 5), block=3), second)
    assert moved.early == {1}
