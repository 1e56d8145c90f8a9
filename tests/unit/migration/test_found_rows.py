"""Rows found again by what they hold, in tensors of which nothing is declared."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.migration.test_rolls import Case, Octets, manifest, reach_by
from worldline.kernel import kernel
from worldline.migration.found_rows import moved_by_content
from worldline.migration.grains import NEW
from worldline.schema.inventory import Append, Free, Kind, Ring, Roll
from worldline.schema.layout import Layout, Segment, View
from worldline.snapshot.row_grid import found_by_content, row_grid
from worldline.verify.row_digests import row_digests

ROW = 512


def contiguous(shape, dtype="uint8"):
    return View("k", dtype, shape, tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape))), 0, 0)


def held(view, data):
    """What `verify.row_digests` says of a view, whatever the size of its segment."""
    grid = row_grid(view)
    offsets = grid.offsets()
    octets = np.frombuffer(data, np.uint8)
    digests = kernel().leaf_digests(octets, offsets, np.full(len(offsets), grid.row_bytes, np.int64))
    return np.frombuffer(digests, np.uint64)[::2].reshape(grid.sizes)


def found(view, before, after):
    return moved_by_content(view, held(view, before), held(view, after))


def window(outer, rows, rng):
    return rng.integers(0, 256, (outer, rows, ROW), np.uint8)


@pytest.mark.parametrize("outer", [1, 5])
def test_a_roll_is_found_along_its_dimension(outer):
    rng = np.random.default_rng(1)
    before = window(outer, 6, rng)
    after = np.concatenate((before[:, 2:], window(outer, 2, rng)), axis=1)
    moved = found(contiguous((outer, 6, 16, 32)), before.tobytes(), after.tobytes())
    assert (moved.dim, moved.sources) == (1, (2, 3, 4, 5, NEW, NEW))


def test_a_slot_of_a_ring_is_found_where_every_leaf_is_dirty():
    rng = np.random.default_rng(2)
    before = window(5, 6, rng)
    after = before.copy()
    after[:, 4] = rng.integers(0, 256, (5, ROW), np.uint8)
    moved = found(contiguous((5, 6, ROW)), before.tobytes(), after.tobytes())
    assert (moved.dim, moved.sources) == (1, (0, 1, 2, 3, NEW, 5))


def test_rows_that_all_hold_the_same_stay_where_they_are():
    before, after = np.zeros((8, ROW), np.uint8), np.zeros((8, ROW), np.uint8)
    after[7] = 1
    assert found(contiguous((8, ROW)), before.tobytes(), after.tobytes()).sources == (*range(7), NEW)


def test_rows_that_are_all_new_are_not_found():
    rng = np.random.default_rng(3)
    before, after = window(2, 6, rng), window(2, 6, rng)
    assert found(contiguous((2, 6, ROW)), before.tobytes(), after.tobytes()) is None


def test_a_cut_that_was_not_read_finds_nothing():
    view = contiguous((2, 6, ROW))
    assert moved_by_content(view, None, held(view, bytes(12 * ROW))) is None
    assert moved_by_content(view, np.zeros((3, 3), np.uint64), held(view, bytes(12 * ROW))) is None


@pytest.mark.parametrize(
    "view",
    [
        contiguous((4, 8)),
        contiguous((ROW,)),
        View("k", "uint8", (4, ROW), (0, 1), 0, 0),
        contiguous((0, ROW)),
        View("k", "uint8", (1 << 21, ROW), (ROW, 1), 0, 0),
    ],
    ids=["small rows", "one row", "shared rows", "no rows", "too many"],
)
def test_what_is_not_worth_telling_apart_has_no_rows(view):
    assert row_grid(view) is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_residual_found_by_content_gives_the_sources_bytes(data):
    """Rows of a tensor are moved, kept and made new at random, along either dimension."""
    outer, rows = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    before = window(outer, rows, rng)
    axis = data.draw(st.integers(0, 1))
    size = before.shape[axis]
    sources = data.draw(st.lists(st.integers(-1, size - 1), min_size=size, max_size=size))
    lines = np.moveaxis(before, axis, 0)
    new = rng.integers(0, 256, lines.shape, np.uint8)
    after = np.moveaxis(np.stack([new[r] if s < 0 else lines[s] for r, s in enumerate(sources)]), 0, axis)
    view = contiguous((outer, rows, ROW))
    case = Case(manifest(Free(), [view], before.nbytes), before.tobytes(), np.ascontiguousarray(after).tobytes(), 1)
    then = {"k": held(view, case.before)}
    now = {"k": held(view, case.after)}
    _, reached = reach_by(case, case.digests(case.before), case.before, then, now)
    assert reached == case.after


def test_rows_are_read_where_nothing_is_declared_or_rows_are_scattered():
    big = (64, 32, ROW)
    rules = (Free(), Roll(1, 2), Ring(0, 1), Ring(1, 1), Append(1), Append(9))
    segments = [Segment(f"s{n}", 64 * 32 * ROW, Kind.CACHE, rule) for n, rule in enumerate(rules)]
    segments += [Segment("small", 2 * ROW, Kind.CACHE, Free()), Segment("horizon", 1 << 20, Kind.HORIZON, Free())]
    views = [View(f"s{n}", "uint8", big, (32 * ROW, ROW, 1), n, 0) for n in range(len(rules))]
    views += [View("small", "uint8", (2, ROW), (ROW, 1), 6, 0), View("horizon", "uint8", (2048, ROW), (ROW, 1), 7, 0)]
    layout = Layout(tuple(segments), tuple(views), 65_536)
    assert [layout.views[number].path for number in found_by_content(layout)] == ["s0", "s3", "s4"]


def test_digests_of_rows_take_their_shape_from_the_tensor():
    view = contiguous((4, 512, 32, 16))
    data = np.arange(4 * 512 * ROW, dtype=np.uint32).view(np.uint8)[: 4 * 512 * ROW].tobytes()
    digests = row_digests(Octets(bytes(64) + data), manifest(Free(), [view], len(data), offset=64))
    assert digests["k"].shape == (4, 512)
    assert np.array_equal(digests["k"], held(view, data))
