"""The residual of a state whose rows moved: carried out at a target, it gives the source's bytes, whatever was held."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.migration.rolls import Present, Version, plan_rows, plan_whole
from worldline.schema.inventory import Append, Free, Kind, Ring, Roll
from worldline.schema.layout import Layout, Manifest, Placement, Segment, View
from worldline.schema.rows import Copy, Runs, Shift
from worldline.snapshot.rows import copy_rows, read_runs, write_runs

LEAF = 64


class Octets:
    def __init__(self, data):
        self.data = bytearray(data)

    def bytes_at(self, extent):
        return memoryview(self.data)[extent.offset : extent.offset + extent.nbytes]


@dataclass
class Case:
    """One segment at `offset` with views over it, before and after some blocks."""

    manifest: Manifest
    before: bytes
    after: bytes
    blocks: int

    def digests(self, data):
        memory = Octets(data)
        return [hashlib.blake2b(memory.bytes_at(leaf), digest_size=16).digest() for leaf in self.manifest.leaves()]


def manifest(rule, views, nbytes, offset=0, block=10):
    layout = Layout((Segment(views[0].path, nbytes, Kind.CACHE, rule),), tuple(views), LEAF)
    return Manifest(layout, (Placement(offset, nbytes, resident=True),), block)


def rolled(data, views, offset, rule, blocks, rng):
    """What an engine does: rows of each view move down, and new ones come."""
    data = bytearray(data)
    for view in views:
        item = {"uint8": 1, "bfloat16": 2, "float32": 4}[view.dtype]
        dtype = {1: np.uint8, 2: np.uint16, 4: np.uint32}[item]
        strides = tuple(stride * item for stride in view.strides)
        rows = np.moveaxis(
            np.ndarray(view.shape, dtype, buffer=data, offset=offset + view.offset_bytes, strides=strides), rule.dim, 0
        )
        for _ in range(blocks):
            new = min(rule.shift, len(rows) - rule.keep)
            kept = rows[rule.keep + rule.shift :].copy()
            rows[rule.keep : rule.keep + len(kept)] = kept
            rows[len(rows) - new :] = rng.integers(0, 250, rows[len(rows) - new :].shape)
    return bytes(data)


def reach(case, reported, held_data):
    """The residual, and the target's bytes after it."""
    return reach_by(case, reported, held_data, {}, {})


def reach_by(case, reported, held_data, rows_then, rows_now):
    """The same, where it was read what rows held."""
    leaves = tuple(case.manifest.leaves())
    present = Present(case.manifest, leaves, case.digests(case.after), reported, rows_now)
    version = Version(case.manifest.block - case.blocks, case.digests(case.before), rows_then)
    residual = plan_rows(present, (version,), 1 << 10)
    target, source = Octets(held_data), Octets(case.after)
    for step in residual.steps:
        match step:
            case Copy():
                copy_rows(target, case.manifest, step)
            case Runs():
                write_runs(target, step, read_runs(source, step))
    for leaf in residual.leaves:
        target.bytes_at(leaf)[:] = source.bytes_at(leaf)
    return residual, bytes(target.data)


def differ(some, others, leaf):
    span = slice(leaf.offset, leaf.offset + leaf.nbytes)
    return some[span] != others[span]


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    dim = draw(st.integers(0, len(shape) - 1))
    size = draw(st.integers(2, 40))
    shape = (*shape[:dim], size, *shape[dim + 1 :])
    rule = Roll(dim, draw(st.integers(1, size)), draw(st.integers(0, size // 2)))
    dtype, item = draw(st.sampled_from([("uint8", 1), ("bfloat16", 2), ("float32", 4)]))
    order = draw(st.permutations(range(len(shape))))
    strides, reach_ = [0] * len(shape), draw(st.sampled_from([1, 1, 2]))
    for place in order:
        strides[place] = reach_
        reach_ *= shape[place]
        reach_ += draw(st.sampled_from([0, 0, 0, 3]))
    pairs = draw(st.booleans())
    span = (sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1) * item
    views = [View("k", dtype, shape, tuple(strides), 0, 0)]
    if pairs:
        views.append(View("v", dtype, shape, tuple(strides), 0, span))
    nbytes = span * len(views) + draw(st.integers(0, 2)) * item
    offset, blocks = draw(st.sampled_from([0, 4096])), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    before = rng.integers(0, 250, offset + nbytes, np.uint8).tobytes()
    after = rolled(before, views, offset, rule, blocks, rng)
    return Case(manifest(rule, views, nbytes, offset), before, after, blocks)


@settings(max_examples=120, deadline=None)
@given(cases(), st.data())
def test_a_residual_carried_out_gives_the_sources_bytes(case, data):
    """Each leaf at the target is the earlier cut's, the present one's or torn, and reported as what it is."""
    then, now = case.digests(case.before), case.digests(case.after)
    held = bytearray(case.before)
    reported = list(then)
    for index, leaf in enumerate(case.manifest.leaves()):
        end = leaf.offset + leaf.nbytes
        match data.draw(st.sampled_from(["earlier", "earlier", "earlier", "present", "torn"])):
            case "present":
                held[leaf.offset : end] = case.after[leaf.offset : end]
                reported[index] = now[index]
            case "torn":
                held[leaf.offset : end] = b"\xff" * leaf.nbytes
                reported[index] = None
    residual, reached = reach(case, reported, held)
    assert reached == case.after
    changed = {index for index, leaf in enumerate(case.manifest.leaves()) if differ(held, reached, leaf)}
    whole_ones = {index for index, leaf in enumerate(case.manifest.leaves()) if leaf in residual.leaves}
    assert changed <= residual.touched | whole_ones
    whole = plan_whole(Present(case.manifest, tuple(case.manifest.leaves()), now, reported))
    assert residual.nbytes <= whole.nbytes


def window(shape, rule, blocks=1, seed=1):
    strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    nbytes = 2 * int(np.prod(shape))
    view = View("k", "bfloat16", shape, strides, 0, 0)
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 250, nbytes, np.uint8).tobytes()
    return Case(manifest(rule, [view], nbytes), before, rolled(before, [view], 0, rule, blocks, rng), blocks)


def test_half_a_window_that_rolled_is_one_copy_and_half_its_bytes():
    case = window((1, 6 * 8, 4, 16), Roll(1, 24))
    residual, reached = reach(case, case.digests(case.before), case.before)
    assert reached == case.after
    assert residual.steps[0] == Copy(0, 1, (Shift(24, 0, 24),))
    assert residual.nbytes == len(case.after) // 2


def test_rows_scattered_over_a_tensor_are_one_copy_and_one_strided_run():
    case = window((11, 6, 4, 16), Roll(1, 3))
    residual, reached = reach(case, case.digests(case.before), case.before)
    assert reached == case.after
    copy, *runs = residual.steps
    assert copy == Copy(0, 1, (Shift(3, 0, 3),))
    assert runs[0] == Runs(3 * 128, 384, 768, 2)  # 1 KiB a step
    assert sum(run.nbytes for run in runs) == residual.nbytes == len(case.after) // 2


def test_two_blocks_behind_a_window_of_four_there_is_still_half_to_copy():
    case = window((48, 32), Roll(0, 12), blocks=2)
    residual, reached = reach(case, case.digests(case.before), case.before)
    assert reached == case.after
    assert residual.nbytes == len(case.after) // 2


def test_what_was_kept_at_the_front_is_neither_copied_nor_sent():
    case = window((64, 32), Roll(0, 16, keep=16))
    residual, reached = reach(case, case.digests(case.before), case.before)
    assert reached == case.after
    assert residual.steps[0] == Copy(0, 0, (Shift(32, 16, 32),))
    assert residual.nbytes == len(case.after) // 4


def test_a_window_that_is_all_new_is_sent_whole():
    case = window((48, 32), Roll(0, 12), blocks=4)
    residual, reached = reach(case, case.digests(case.before), case.before)
    assert reached == case.after
    assert residual.steps == () and residual.nbytes == len(case.after)


def test_a_window_that_still_fills_is_not_taken_to_roll():
    """Its first rows are as they were, so nothing has moved, whatever the rule says of a full one."""
    case = window((48, 32), Roll(0, 12))
    after = case.before[:-2048] + bytes(2048)
    case = Case(case.manifest, case.before, after, 1)
    residual, reached = reach(case, case.digests(case.before), case.before)
    assert reached == case.after
    assert residual.steps == () and residual.nbytes == 2048


@pytest.mark.parametrize("rule", [Free(), Ring(0, 12), Append(0), Roll(7, 12), Roll(0, 0), Roll(0, 3, keep=60)])
def test_where_no_row_can_be_told_dirty_leaves_are_sent_whole(rule):
    case = window((48, 32), Roll(0, 12))
    case = Case(manifest(rule, case.manifest.layout.views, len(case.after)), case.before, case.after, 1)
    residual, reached = reach(case, case.digests(case.before), case.before)
    assert reached == case.after
    assert residual.steps == () and len(residual.leaves) == 48


def test_copies_of_one_record_happen_at_once():
    """Two halves change places: done one after the other, one of them would be lost."""
    data = bytes(range(64)) * 2
    view = View("k", "uint8", (128,), (1,), 0, 0)
    memory = Octets(data)
    copy_rows(memory, manifest(Free(), [view], 128), Copy(0, 0, (Shift(0, 100, 28), Shift(100, 0, 28))))
    assert bytes(memory.data) == data[100:] + data[28:100] + data[:28]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 12))
def test_rows_that_overlap_are_copied_as_if_all_were_read_first(source, to, rows):
    data = np.arange(32 * 6, dtype=np.uint8)
    view = View("k", "uint8", (6, 32), (32, 1), 0, 0)
    memory = Octets(data.tobytes())
    copy_rows(memory, manifest(Free(), [view], 192), Copy(0, 1, (Shift(source, to, rows),)))
    expected = data.reshape(6, 32).copy()
    expected[:, to : to + rows] = data.reshape(6, 32)[:, source : source + rows].copy()
    assert bytes(memory.data) == expected.tobytes()
