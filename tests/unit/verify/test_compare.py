"""The first difference between two states is named: dtype, shape, strides, then raw bytes."""

from dataclasses import replace

import pytest

from unit.verify.kit import TREE, state
from worldline.schema.layout import Extent
from worldline.verify.compare import State, first_difference


def pair(**changes):
    left, right = state(), state(**changes)
    return State(left[1], left[0]), State(right[1], right[0])


def test_equal_states_do_not_differ_wherever_they_lie():
    assert first_difference(*pair(offset=4096 * 3, block=77)) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("dtype", "float16"), ("shape", (129, 128, 2)), ("strides", (256, 1, 2)), ("path", "kk"), ("offset_bytes", 2)],
)
def test_a_tensor_that_is_described_otherwise_is_named(field, value):
    left, right = pair()
    layout = right.manifest.layout
    views = (replace(layout.views[0], **{field: value}), *layout.views[1:])
    right = State(replace(right.manifest, layout=replace(layout, views=views)), right.memory)
    found = first_difference(left, right)
    assert (found.path, found.what, found.right) == ("k", field, str(value))


def test_a_missing_tensor_is_named():
    left, right = pair()
    layout = right.manifest.layout
    right = State(replace(right.manifest, layout=replace(layout, views=layout.views[:2])), right.memory)
    assert first_difference(left, right).path == "x/0"


def test_the_first_differing_element_is_shown_in_bits():
    left, right = pair()
    place = right.manifest.placements[1].offset
    right.memory.bytes_at(Extent(place + 700, 2))[:] = b"\x81\x7f"
    left.memory.bytes_at(Extent(place + 700, 2))[:] = b"\xc0\x7f"
    found = first_difference(left, right)
    assert (found.path, found.left, found.right, found.offset_bytes) == ("k", "c07f", "817f", 700)
    assert "at byte 700" in str(found)


def test_negative_zero_is_not_zero():
    left, right = pair()
    place = right.manifest.placements[1].offset
    for memory, octet in ((left.memory, 0), (right.memory, 0x80)):
        memory.bytes_at(Extent(place, 2))[:] = bytes([0, octet])
    assert first_difference(left, right).path == "k"


def test_another_tree_is_shown():
    found = first_difference(*pair(tree=TREE | {"block": 4444}))
    assert (found.path, found.what) == ("meta", "the tree")
    assert "4444" in found.right


def test_a_larger_memory_behind_the_same_tensors_differs():
    left, right = pair()
    layout = right.manifest.layout
    segments = (*layout.segments[:2], replace(layout.segments[2], nbytes=80))
    right = State(replace(right.manifest, layout=replace(layout, segments=segments)), right.memory)
    assert first_difference(left, right).what == "the size of its memory"


def test_other_leaves_differ():
    left, right = pair()
    right = State(replace(right.manifest, layout=replace(right.manifest.layout, leaf_bytes=128 * 1024)), right.memory)
    assert first_difference(left, right).what == "the leaf size"
