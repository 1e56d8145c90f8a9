"""What is taken from an arena never overlaps, and what is given back is whole again."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline.errors import NoCapacity
from worldline.schema.layout import ALIGN_BYTES, Extent
from worldline.snapshot.space import Space, aligned


def test_a_full_space_says_what_did_not_fit_and_what_is_free():
    space = Space(4 * ALIGN_BYTES)
    space.take(3 * ALIGN_BYTES, "first")
    with pytest.raises(NoCapacity) as caught:
        space.take(2 * ALIGN_BYTES, "second")
    assert caught.value.facts == {
        "what": "second",
        "nbytes": 2 * ALIGN_BYTES,
        "free_bytes": ALIGN_BYTES,
        "capacity": 4 * ALIGN_BYTES,
    }


def test_taken_stretches_that_share_a_page_leave_no_half_page_free():
    space = Space(4 * ALIGN_BYTES, [Extent(ALIGN_BYTES + 100, 50), Extent(ALIGN_BYTES + 200, 50)])
    assert space.free() == [Extent(0, ALIGN_BYTES), Extent(2 * ALIGN_BYTES, 2 * ALIGN_BYTES)]


def test_the_high_water_mark_stays_when_space_is_given_back():
    space = Space(8 * ALIGN_BYTES)
    extent = space.take(5 * ALIGN_BYTES, "x")
    space.release(extent)
    assert space.used_bytes_max == 5 * ALIGN_BYTES


@given(st.lists(st.one_of(st.integers(1, 9000), st.integers(-20, -1)), max_size=60))
def test_taken_parts_never_overlap_and_all_comes_back(script):
    space = Space(32 * ALIGN_BYTES)
    held = []
    for step in script:
        if step > 0:
            try:
                held.append(space.take(step, "x"))
            except NoCapacity:
                assert max((free.nbytes for free in space.free()), default=0) < aligned(step)
        elif held:
            space.release(held.pop(-step % len(held)))
        ordered = sorted(held, key=lambda extent: extent.offset)
        assert all(a.offset + a.nbytes <= b.offset for a, b in itertools.pairwise(ordered))
        assert sum(extent.nbytes for extent in held) + space.free_bytes == 32 * ALIGN_BYTES
    for extent in held:
        space.release(extent)
    assert space.free() == [Extent(0, 32 * ALIGN_BYTES)]
