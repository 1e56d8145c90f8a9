"""A tree's text is canonical, collides with no key of the engine's and is read strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline.errors import LayoutRefused, Malformed
from worldline.snapshot.checks import META_BYTES_MAX
from worldline.snapshot.tree import DEPTH_MAX, DerivedNode, Ref, TupleNode, decode_tree, encode_tree

KEYS = st.text(max_size=6) | st.sampled_from(["$", "$t", "$$t", "$p", "$u", "$i", "$d", "$g", "a/b", "\ud800"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=8)
    | st.builds(Ref, st.integers(0, 9), st.booleans())
    | st.builds(Ref, st.integers(0, 9), st.just(False), st.tuples(st.integers(0, 3), st.integers(0, 9)))
    | st.just(DerivedNode())
)
NODES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.builds(TupleNode, st.lists(inner, max_size=4))
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)


def same(left, right):
    """Equality that tells True from 1."""
    return repr(left) == repr(right) or (left == right and encode_tree(left) == encode_tree(right))


@given(NODES)
def test_a_tree_comes_back_as_what_it_was(node):
    assert same(decode_tree(encode_tree(node)), node)


@pytest.mark.parametrize(
    "number", [2**64, -(2**63) - 1, 10**6000, -(10**6000)], ids=["2^64", "-2^63-1", "huge", "-huge"]
)
def test_an_int_of_any_size_comes_back(number):
    assert decode_tree(encode_tree({"n": number})) == {"n": number}


def test_the_order_of_insertion_does_not_matter():
    assert encode_tree({"b": 1, "a": {"d": 2, "c": 3}}) == encode_tree({"a": {"c": 3, "d": 2}, "b": 1})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a":1} ',
        b'{"a": 1}',
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1.0}',
        b'{"a":NaN}',
        b'{"a":1e3}',
        b'{"$t":-1}',
        b'{"$t":true}',
        b'{"$t":"1"}',
        b'{"$t":1,"$u":[]}',
        b'{"$t":1,"a":2}',
        b'{"$z":1}',
        b'{"$":1}',
        b'{"$p":[1,2]}',
        b'{"$p":[1,-2,3]}',
        b'{"$i":"5"}',
        b'{"$i":"0x10000000000000000"}',
        b'{"$i":"zz"}',
        b'{"$d":1}',
        b'{"$u":{}}',
        b'{"a":"\xc3\xa4"}',
        b'{"a":"\\u0061"}',
        b"[" * (DEPTH_MAX + 2) + b"]" * (DEPTH_MAX + 2),
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_text_that_no_writer_writes_is_malformed(text):
    with pytest.raises(Malformed):
        decode_tree(text)


def test_a_tree_of_too_many_bytes_is_refused_on_both_sides():
    with pytest.raises(LayoutRefused):
        encode_tree({"text": "x" * META_BYTES_MAX})
    with pytest.raises(Malformed):
        decode_tree(b'"' + b"x" * META_BYTES_MAX + b'"')
