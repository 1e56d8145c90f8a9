"""For any tree of any strided tensors: capture, rebuild elsewhere, capture again, and nothing has changed."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.snapshot.kit import canonical, identical, moved, session
from worldline.snapshot.tree import Partial
from worldline.verify.digests import digest_state

DTYPES = [torch.uint8, torch.bool, torch.int16, torch.bfloat16, torch.float32, torch.int64, torch.complex128]
BUFFER_BYTES = 4096


@st.composite
def tensors(draw):
    """How to make a tensor: which of four buffers (or memory of its own), dtype, shape, strides, offset, valid part."""
    dtype = draw(st.sampled_from(DTYPES))
    item = torch.empty(0, dtype=dtype).itemsize
    elements = BUFFER_BYTES // item
    shape, strides, reach = [], [], 0
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.integers(0, 6))
        room = (elements - 1 - reach) // max(size - 1, 1)
        stride = draw(st.integers(0, max(min(room, 40), 0)))
        shape.append(size)
        strides.append(stride)
        reach += max(size - 1, 0) * stride
    offset = draw(st.integers(0, elements - 1 - reach))
    partial = None
    if shape and draw(st.booleans()):
        dim = draw(st.integers(0, len(shape) - 1))
        partial = (dim, draw(st.integers(0, shape[dim])))
    return draw(st.integers(0, 4)), dtype, tuple(shape), tuple(strides), offset, partial


LEAVES = tensors() | st.integers() | st.text(max_size=4) | st.none() | st.booleans() | st.just("generator")
TREES = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=3).filter(lambda key: "/" not in key),
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc$"), inner)),
    max_size=5,
).filter(lambda tree: "meta" not in tree)


def build(tree, buffers):
    """The tree with its tensors made; tuples are tensors' recipes."""
    if isinstance(tree, dict):
        return {key: build(item, buffers) for key, item in tree.items()}
    if isinstance(tree, list):
        return [build(item, buffers) for item in tree]
    if tree == "generator":
        return torch.Generator().manual_seed(5)
    if not isinstance(tree, tuple):
        return tree
    buffer, dtype, shape, strides, offset, partial = tree
    memory = buffers[buffer] if buffer < len(buffers) else buffers[0].clone()
    tensor = torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), 0, (), ())
    item = tensor.itemsize
    start = memory.storage_offset() // item + offset
    tensor = torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), start, shape, strides)
    return tensor if partial is None else Partial(tensor, *partial)


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, list):
        return [leaf for item in tree for leaf in leaves(item)]
    return [tree]


def check_same(left, right):
    for mine, theirs in zip(leaves(left), leaves(right), strict=True):
        if isinstance(mine, torch.Tensor):
            assert identical(mine, theirs)
        elif isinstance(mine, Partial):
            assert (mine.dim, mine.stop) == (theirs.dim, theirs.stop)
            assert identical(mine.tensor.narrow(mine.dim, 0, mine.stop), theirs.tensor.narrow(mine.dim, 0, mine.stop))
        elif isinstance(mine, torch.Generator):
            assert torch.equal(mine.get_state(), theirs.get_state())
        else:
            assert (type(mine), mine) == (type(theirs), theirs)


@settings(max_examples=150, deadline=None)
@given(TREES, st.integers(0, 255))
def test_capture_rebuild_capture_changes_nothing(recipe, seed):
    pattern = torch.arange(BUFFER_BYTES).mul(seed * 2 + 1).remainder(256).to(torch.uint8)
    with session(capacity=4 << 20) as here:
        resident = [here.memory.zeros(f"resident{index}", (BUFFER_BYTES,), torch.uint8) for index in range(2)]
        buffers = [pattern.clone(), pattern.flip(0), *(memory.copy_(pattern) for memory in resident)]
        tree = build(recipe, buffers)
        manifest = here.capture(tree, block=3)
        digested = digest_state(here.arena, manifest)
        with moved(here.arena, manifest) as there:
            check_same(tree, there.tree)
            again = there.gatherer.capture(there.tree, (), 3)
            assert again.layout == manifest.layout
            assert canonical(there.gatherer.arena, again) == canonical(here.arena, manifest)
            assert digest_state(there.gatherer.arena, again).root == digested.root
            with moved(there.gatherer.arena, again) as last:
                check_same(tree, last.tree)
