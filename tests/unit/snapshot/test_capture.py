"""Every byte of a state is captured as it is, once, and nothing that is not state leaks into it."""

import functools
import operator
import weakref

import numpy as np
import pytest
import torch

from unit.snapshot.kit import canonical, identical, moved, raw, session
from worldline.errors import LayoutRefused, NoCapacity
from worldline.schema.inventory import Append, Free, Kind, Ring, Roll, Rule, Static, rules_under
from worldline.schema.layout import LEAF_BYTES_MAX, Extent
from worldline.snapshot.gather import LARGE_STATE_BYTES, LEAF_BYTES, Gatherer
from worldline.snapshot.memory import ArenaMemory
from worldline.snapshot.rebuild import rebuild
from worldline.snapshot.tree import Partial

BASE = torch.arange(240, dtype=torch.float32).reshape(12, 20)


def patterned(dtype, count=32):
    item = torch.empty(0, dtype=dtype).itemsize
    octets = torch.arange(count * item, dtype=torch.int64).mul(37).remainder(251).to(torch.uint8)
    return (octets.remainder(2) if dtype == torch.bool else octets).view(dtype)


DTYPES = [
    ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"],
    ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"],
    ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"],
]

STRIDED = {
    "transposed": lambda: BASE.clone().t(),
    "every second column": lambda: BASE.clone()[:, ::2],
    "every second row": lambda: BASE.clone()[1::2],
    "an inner block": lambda: BASE.clone()[3:7, 5:9],
    "repeated, stride 0": lambda: torch.tensor([1.0, -0.0]).expand(5, 2),
    "repeated and transposed": lambda: BASE.clone()[:, ::3].unsqueeze(1).expand(12, 4, 7).permute(2, 1, 0),
    "a storage offset": lambda: BASE.clone().reshape(-1)[7:20],
    "overlapping windows": lambda: torch.arange(10.0).unfold(0, 4, 1),
    "overlapping windows with gaps": lambda: torch.arange(64.0).as_strided((3, 2, 2), (20, 4, 4)),
    "no elements": lambda: torch.zeros(0, 5),
    "no elements, odd strides": lambda: torch.zeros(6, 6)[2:2, ::3],
    "no dimensions": lambda: torch.tensor(-0.0),
    "a wild stride of a single row": lambda: torch.arange(5.0).as_strided((1, 5), (10**9, 1)),
    "a parameter": lambda: torch.nn.Parameter(BASE.clone()),
    "part of a graph": lambda: torch.nn.Parameter(BASE.clone()) * 2,
    "complex, every second": lambda: torch.complex(*torch.arange(16.0).double().reshape(2, 8))[::2],
    "from numpy, odd address": lambda: torch.from_numpy(np.zeros(33, np.uint8)[1:]),
}


@pytest.mark.parametrize("dtype", functools.reduce(operator.iadd, DTYPES, []))
def test_every_dtype_comes_back_bit_for_bit(dtype):
    tensor = patterned(getattr(torch, dtype))
    tree = {"whole": tensor, "second": patterned(getattr(torch, dtype))[::2]}
    with session() as here:
        manifest = here.capture(tree)
        with moved(here.arena, manifest) as there:
            assert identical(there.tree["whole"], tensor)
            assert identical(there.tree["second"], tree["second"])


@pytest.mark.parametrize("name", STRIDED)
def test_strided_tensors_come_back_with_their_strides(name):
    tensor = STRIDED[name]()
    with session() as here:
        manifest = here.capture({"x": tensor})
        with moved(here.arena, manifest) as there:
            assert identical(there.tree["x"], tensor)


@pytest.mark.parametrize("gaps", [False, True])
def test_nan_payloads_and_negative_zero_survive(gaps):
    tensor = torch.tensor([0x7F81, -0x8000, 0x7FC0, 0x0001], dtype=torch.int16).view(torch.bfloat16)
    tensor = torch.stack([tensor, tensor], 1)[:, 0] if gaps else tensor
    with session() as here:
        manifest = here.capture({"x": tensor})
        with moved(here.arena, manifest) as there:
            assert there.tree["x"].view(torch.int16).tolist() == [0x7F81, -0x8000, 0x7FC0, 0x0001]


@pytest.mark.parametrize("resident", [False, True])
def test_key_and_value_views_of_one_buffer_stay_aliases(resident):
    with session() as here:
        buffer = here.memory.zeros("buffer", (4, 2, 8), torch.float32) if resident else torch.zeros(4, 2, 8)
        tree = {"buffer": buffer, "k": buffer[:, 0], "v": buffer[:, 1]}
        manifest = here.capture(tree)
        assert [segment.name for segment in manifest.layout.segments] == ["meta", "buffer"]
        with moved(here.arena, manifest) as there:
            there.tree["k"][2, 3] = 5
            there.tree["v"].fill_(7)
            assert there.tree["buffer"][2, 0, 3] == 5
            assert there.tree["buffer"][:, 1].eq(7).all()


def test_views_that_share_no_byte_are_segments_of_their_own():
    buffer = torch.arange(16.0)
    with session() as here:
        manifest = here.capture({"a": buffer[:8], "b": buffer[8:]})
        assert [segment.nbytes for segment in manifest.layout.segments[1:]] == [32, 32]


def test_interleaved_views_share_a_segment():
    buffer = torch.arange(16.0)
    with session() as here:
        manifest = here.capture({"even": buffer[::2], "odd": buffer[1::2]})
        assert [segment.name for segment in manifest.layout.segments] == ["meta", "even"]
        with moved(here.arena, manifest) as there:
            assert there.tree["odd"].tolist() == buffer[1::2].tolist()


def test_aliases_of_other_dtypes_are_kept():
    buffer = torch.zeros(16, dtype=torch.uint8)
    with session() as here:
        manifest = here.capture({"bytes": buffer[3:], "floats": buffer[4:12].view(torch.float32)})
        with moved(here.arena, manifest) as there:
            there.tree["floats"][0] = -0.0
            assert there.tree["bytes"].tolist()[:6] == [0, 0, 0, 0, 0x80, 0]


def test_two_memories_of_one_array_are_one_segment():
    array = np.zeros(8, np.float32)
    with session() as here:
        manifest = here.capture({"a": torch.from_numpy(array), "b": torch.from_numpy(array)})
        assert len(manifest.layout.segments) == 2


def test_bytes_that_no_tensor_covers_are_zero():
    buffer = torch.full((8,), 0xAB, dtype=torch.uint8)
    with session() as here:
        manifest = here.capture({"a": buffer[::2]})
        assert canonical(here.arena, manifest)["a"] == b"\xab\0\xab\0\xab\0\xab"
        manifest = here.capture({"a": buffer.as_strided((2, 2), (5, 1))})
        assert canonical(here.arena, manifest)["a"] == b"\xab\xab\0\0\0\xab\xab"


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("resident", [False, True])
def test_unwritten_rows_never_leak_into_the_bytes(dim, resident):
    found = []
    for garbage in (0x11, 0xEE):
        with session() as here:
            shape = (4, 5, 6)
            cache = here.memory.zeros("cache", shape, torch.uint8) if resident else torch.zeros(shape).to(torch.uint8)
            cache.fill_(garbage)
            cache.narrow(dim, 0, 3).fill_(0x77)
            manifest = here.capture({"cache": Partial(cache, dim, 3)})
            assert manifest.placements[1].resident == resident
            assert cache.narrow(dim, 0, 3).eq(0x77).all()
            found.append(canonical(here.arena, manifest))
            with moved(here.arena, manifest) as there:
                part = there.tree["cache"]
                assert (part.dim, part.stop) == (dim % 3, 3)
                assert part.tensor.narrow(dim, 3, shape[dim] - 3).eq(0).all()
                assert part.tensor.narrow(dim, 0, 3).eq(0x77).all()
    assert found[0] == found[1]


@pytest.mark.parametrize("dim", [0, 1])
def test_rows_that_are_no_longer_valid_are_zero_where_they_lay_before(dim):
    cache = torch.full((4, 6), 7, dtype=torch.uint8)
    with session() as here:
        here.capture({"c": cache, "pair": [cache[1:2].clone(), 1]})
        manifest = here.capture({"c": Partial(cache, dim, 2), "pair": [cache[1:2].clone(), 1]})
        valid = torch.zeros(4, 6, dtype=torch.uint8)
        valid.narrow(dim, 0, 2).fill_(7)
        assert canonical(here.arena, manifest)["c"] == raw(valid)


def test_bytes_between_two_tensors_of_one_memory_are_zero_where_a_third_lay_before():
    memory = torch.full((12,), 7, dtype=torch.uint8)
    with session() as here:
        here.capture({"a": memory})
        # The whole tensor keeps the segment together; only its first and last rows are state.
        tree = {"a": Partial(memory.reshape(3, 4), 0, 1), "b": memory[8:]}
        assert canonical(here.arena, here.capture(tree))["a"] == bytes([7] * 4 + [0] * 4 + [7] * 4)


@pytest.mark.parametrize("stop", [0, 4])
def test_a_valid_part_may_be_nothing_or_all(stop):
    cache = torch.full((4, 3), 7.0)
    with session() as here:
        manifest = here.capture({"c": Partial(cache, 0, stop)})
        with moved(here.arena, manifest) as there:
            assert there.tree["c"].tensor.sum() == 21 * stop
            assert there.tree["c"].stop == stop


def test_a_part_is_state_where_another_tensor_says_so():
    cache = torch.full((4, 3), 7.0)
    with session() as here:
        manifest = here.capture({"a": Partial(cache, 0, 1), "b": cache[:2]})
        with moved(here.arena, manifest) as there:
            assert there.tree["a"].tensor.sum() == 42


def test_a_gathered_capture_leaves_the_engines_tensor_alone():
    cache = torch.full((4, 3), 7.0)
    with session() as here:
        here.capture({"c": Partial(cache, 0, 1)})
    assert cache.eq(7).all()


def test_a_resident_tensor_stays_where_it_is_and_is_not_copied():
    with session() as here:
        cache = here.memory.zeros("cache", (1000,), torch.float32).fill_(1.5)
        manifest = here.capture({"cache": cache, "half": cache[:500]})
        assert manifest.placements[1].resident
        assert manifest.placements[1].offset == cache.data_ptr() - here.arena.address
        # A write after the capture shows in the segment: the bytes are the engine's own.
        cache[0] = 2.5
        assert canonical(here.arena, manifest)["cache"][:4] == np.float32(2.5).tobytes()


def test_a_resident_view_with_gaps_is_gathered_and_its_neighbours_are_untouched():
    with session() as here:
        cache = here.memory.zeros("cache", (10,), torch.uint8).fill_(9)
        manifest = here.capture({"even": cache[::2]})
        assert not manifest.placements[1].resident
        assert cache.eq(9).all()


def test_memory_from_the_arena_is_zero_aligned_and_of_the_shape_asked_for():
    with session() as here:
        one = here.memory.zeros("one", (3, 5), torch.bfloat16)
        two = here.memory.zeros("two", [2, 3, 4], torch.int64)
        assert (one.shape, one.dtype, one.stride()) == ((3, 5), torch.bfloat16, (5, 1))
        assert (two.stride(), two.is_contiguous(), one.data_ptr() % 4096) == ((12, 4, 1), True, 0)
        assert not one.any()
        assert here.memory.zeros("none", (0, 4), torch.float32).shape == (0, 4)
        assert here.memory.zeros("scalar", (), torch.float32).shape == ()
        assert here.memory.used_bytes_max == 3 * 4096


def test_a_full_arena_refuses_with_facts_and_goes_on():
    with session(capacity=64 * 1024) as here:
        with pytest.raises(NoCapacity) as caught:
            here.memory.zeros("cache", (1 << 20,), torch.float32)
        assert caught.value.facts["nbytes"] == 4 << 20
        with pytest.raises(NoCapacity):
            here.capture({"x": torch.zeros(1 << 20)})
        small = torch.arange(5.0)
        manifest = here.capture({"x": small})
        with moved(here.arena, manifest) as there:
            assert identical(there.tree["x"], small)


def test_no_tensor_is_made_over_an_arena_that_may_only_be_read():
    with session() as here:
        attached = type(here.arena).attach(here.arena.fd, here.arena.capacity, writable=False)
        with attached, pytest.raises(ValueError, match="write"):
            ArenaMemory(attached)


def test_rebound_reallocated_and_grown_tensors_keep_their_place():
    with session() as here:
        placements = set()
        for block in range(6):
            tensor = torch.full((1000 + 10 * block,), float(block))
            manifest = here.capture({"a": tensor, "b": torch.zeros(5000)}, block=block)
            placements.add(manifest.placements[1:])
            assert canonical(here.arena, manifest)["a"] == tensor.numpy().tobytes()
            assert manifest.block == block
        assert len(placements) == 1


def test_a_tensor_that_outgrows_its_place_gets_another_and_the_old_one_is_zeroed():
    with session() as here:
        first = here.capture({"a": torch.ones(1000), "b": torch.ones(1)}).placements[1]
        second = here.capture({"a": torch.ones(100_000), "b": torch.ones(1)}).placements[1]
        assert second.offset != first.offset
        assert not any(here.arena.bytes_at(Extent(first.offset, first.capacity)))


def test_entries_that_come_and_go_give_their_place_back_zeroed():
    with session(capacity=1 << 20) as here:
        for block in range(100):
            manifest = here.capture({f"entry{block}": torch.ones(10_000)})
        place = manifest.placements[1]
        here.capture({})
        assert not any(here.arena.bytes_at(Extent(place.offset, place.capacity)))


def test_growing_state_does_not_use_the_arena_up():
    with session(capacity=8 << 20) as here:
        for rows in range(1, 400):
            here.capture({"a": torch.zeros(rows * 1000), "b": torch.zeros(rows * 500)})


def test_a_list_changes_from_none_to_text_to_tensor():
    entries = [None, "Rep", torch.arange(3.0), torch.arange(9.0).reshape(3, 3), None]
    with session() as here:
        for entry in entries:
            manifest = here.capture({"features": [entry, 7]})
            with moved(here.arena, manifest) as there:
                found = there.tree["features"]
                assert found[1] == 7
                if isinstance(entry, torch.Tensor):
                    assert identical(found[0], entry)
                else:
                    assert found[0] == entry


def test_lists_stay_lists_and_tuples_tuples_and_odd_keys_are_themselves():
    tree = {"a": [1, (2, [None, True, (), []])], "$t": {"$t": "$t"}, "": {"$p": [1, 2, 3]}, "$": "ä\ud800"}
    tree["big"] = [2**64, -(2**200), 2**63, -1, 0, False]
    with session() as here:
        manifest = here.capture(tree)
        with moved(here.arena, manifest) as there:
            assert there.tree == tree
            assert repr(sorted(there.tree.items())) == repr(sorted(tree.items()))


def test_a_generators_sequence_goes_on_and_a_restore_consumes_nothing():
    generator = torch.Generator().manual_seed(11)
    torch.randn(7, generator=generator)
    with session() as here:
        manifest = here.capture({"g": generator, "again": [generator]})
        assert [view.dtype for view in manifest.layout.views] == ["rng"]
        before = torch.get_rng_state()
        with moved(here.arena, manifest) as there:
            assert torch.equal(torch.get_rng_state(), before)
            other = there.tree["g"]
            assert other is there.tree["again"][0]
            assert torch.equal(other.get_state(), generator.get_state())
            assert torch.equal(torch.randn(9, generator=other), torch.randn(9, generator=generator))


def test_derived_entries_are_left_out():
    tree = {"keep": torch.ones(1), "rope": torch.ones(2), "list": [torch.ones(3), 5], "deep": {"mask": {"m": 1}}}
    rules = [Rule("rope", Kind.DERIVED), Rule("list/0", Kind.DERIVED), Rule("deep/mask", Kind.DERIVED)]
    with session() as here:
        manifest = here.capture(tree, rules)
        assert [segment.name for segment in manifest.layout.segments] == ["meta", "keep"]
        with moved(here.arena, manifest) as there:
            assert there.tree["list"] == [None, 5]
            assert there.tree["deep"] == {}
            assert "rope" not in there.tree


def test_rules_give_segments_their_kind_and_write_rule():
    rules = rules_under(
        "world",
        [
            Rule("kv/*", Kind.CACHE, Roll(1, 3)),
            Rule("*noise", Kind.HORIZON, Static()),
            Rule("ring", Kind.CACHE, Ring(0, 1)),
        ],
    )
    shared = torch.zeros(4)
    tree = {
        "world": {
            "kv": {"0": torch.ones(1)},
            "noise": torch.ones(2),
            "other": torch.ones(3),
            "ring": shared,
            "s": shared,
        }
    }
    with session() as here:
        segments = {segment.name: segment for segment in here.capture(tree, rules).layout.segments}
    assert (segments["world/kv/0"].kind, segments["world/kv/0"].write) == (Kind.CACHE, Roll(1, 3))
    assert (segments["world/noise"].kind, segments["world/noise"].write) == (Kind.HORIZON, Static())
    assert (segments["world/other"].kind, segments["world/other"].write) == (Kind.AUX, Free())
    # Two tensors of one memory whose rules differ: the memory may be rewritten anywhere.
    assert segments["world/ring"].write == Free()


def test_other_rules_at_a_later_boundary_count():
    with session() as here:
        assert here.capture({"a": torch.ones(1)}).layout.segments[1].write == Free()
        again = here.capture({"a": torch.ones(1)}, [Rule("a", Kind.CACHE, Append(0))])
        assert again.layout.segments[1].write == Append(0)


class Odd(list):
    pass


class OddText(str):
    __slots__ = ()


def cyclic():
    tree = {}
    tree["self"] = tree
    return tree


def cross_aligned():
    memory = np.zeros(64, np.uint8)
    return {"a": torch.from_numpy(memory[1:33].view(np.float32)), "b": torch.from_numpy(memory[0:32].view(np.float32))}


REFUSED = [
    (lambda: {"a": {"scale": 0.5}}, "a/scale"),
    (lambda: {"a": np.zeros(3)}, "ndarray"),
    (lambda: {"a": np.int64(3)}, "int64"),
    (lambda: {"a": {1: torch.zeros(1)}}, "no string"),
    (lambda: {"a": Odd()}, "Odd"),
    (lambda: {"a": OddText("x")}, "OddText"),
    (lambda: {"a": torch.Size([1])}, "Size"),
    (lambda: {"a": object()}, "object"),
    (lambda: [torch.zeros(1)], "dict at the top"),
    (cyclic, "nested"),
    (lambda: {"a": torch.zeros(2, dtype=torch.complex64).conj()}, "conjugate"),
    (lambda: {"a": torch.zeros(2, dtype=torch.complex64).conj().imag}, "conjugate"),
    (lambda: {"a": torch.zeros(2, 2).to_sparse()}, "layout"),
    (lambda: {"a": torch.zeros(2, device="meta")}, "meta"),
    (lambda: {"a": torch.empty(2, dtype=torch.bits8)}, "dtype"),
    (lambda: {"a/b": torch.zeros(1), "a": {"b": torch.zeros(1)}}, "one name"),
    (lambda: {"meta": torch.zeros(1)}, "one name"),
    (lambda: {"": torch.zeros(1)}, "name"),
    (lambda: {"x" * 2000: torch.zeros(1)}, "name"),
    (lambda: {"\ud800": torch.zeros(1)}, "Unicode"),
    (lambda: {"a": Partial(torch.zeros(2), 1, 1)}, "valid rows"),
    (lambda: {"a": Partial(torch.zeros(2), 0, 3)}, "valid rows"),
    (lambda: {"a": Partial(torch.zeros(2), 0, -1)}, "valid rows"),
    (lambda: {"a": Partial(torch.tensor(1.0), 0, 0)}, "valid rows"),
    (lambda: {"a": Partial([1], 0, 0)}, "not of a tensor"),
    (cross_aligned, "aligned"),
]


@pytest.mark.parametrize(("make", "word"), REFUSED, ids=[f"{i} {word}" for i, (_, word) in enumerate(REFUSED)])
def test_what_can_not_be_described_exactly_is_refused_and_named(make, word):
    with session() as here:
        with pytest.raises(LayoutRefused, match=word):
            here.capture(make())
        here.capture({"fine": torch.zeros(1)})


def test_storage_that_was_given_back_is_refused():
    tensor = torch.zeros(8)
    tensor.untyped_storage().resize_(0)
    with session() as here, pytest.raises(LayoutRefused, match="no memory"):
        here.capture({"a": tensor})


def test_layout_and_bytes_do_not_depend_on_where_things_lie():
    def tree(memory=None):
        kept = torch.zeros(3, 4) if memory is None else memory.zeros("x", (3, 4), torch.float32)
        return {"x": kept.fill_(4), "y": torch.arange(6.0)}

    with session() as one, session() as two:
        two.memory.zeros("padding", (12345,), torch.uint8)
        two.capture({"unrelated": torch.zeros(999), "y": torch.zeros(1)})
        first, second = one.capture(tree()), two.capture(tree(two.memory))
        assert first.layout == second.layout
        assert first.placements != second.placements
        assert canonical(one.arena, first) == canonical(two.arena, second)


def test_a_capture_holds_on_to_no_tensor():
    tensor = torch.zeros(100)
    alive = weakref.ref(tensor)
    with session() as here:
        here.capture({"a": tensor})
        del tensor
        assert alive() is None


def test_a_segment_is_cut_into_leaves_of_which_the_last_is_shorter():
    with session() as here:
        manifest = here.capture({"a": torch.zeros(100_000)})
        assert [leaf.nbytes for leaf in manifest.leaves()][1:] == [LEAF_BYTES, 400_000 - LEAF_BYTES]


def test_a_state_that_begins_large_has_the_largest_leaves_and_keeps_them_when_it_shrinks():
    with session(LARGE_STATE_BYTES + 2 * LEAF_BYTES_MAX) as large:
        cache = large.memory.zeros("c", (LARGE_STATE_BYTES,), torch.uint8)
        assert large.capture({"c": cache}).layout.leaf_bytes == LEAF_BYTES_MAX
        assert large.capture({"c": cache[:9].clone()}).layout.leaf_bytes == LEAF_BYTES_MAX


def test_a_rebuilt_state_is_captured_with_the_layout_that_it_came_with():
    tree = {"c": torch.arange(99)}
    with session() as here:
        manifest = here.capture(tree)
        rebuilt = rebuild(manifest, here.arena)
        assert rebuilt.gatherer.capture(rebuilt.tree, (), 1).layout is manifest.layout


def test_tensors_that_stay_where_they_are_are_captured_as_they_are_now():
    tree = {"g": torch.Generator().manual_seed(1), "t": torch.zeros(300), "p": Partial(torch.ones(4, 2), 0, 3), "n": 9}
    with session() as made, session() as fresh:
        made.capture(tree)
        changes = (
            lambda: torch.rand(3, generator=tree["g"]),
            lambda: tree["t"].fill_(-0.0),
            lambda: tree.update(n=10),
            lambda: tree.update(p=Partial(tree["p"].tensor, 0, 2)),
            lambda: tree.update(t=torch.full((300,), 5.0)),
            lambda: tree.update(t=tree["t"].view(20, 15)),
            lambda: tree.update(a=tree["t"][3:]),
            lambda: tree.pop("g"),
        )
        for block, change in enumerate(changes):
            change()
            manifest, expected = made.capture(tree, block=block), fresh.capture(tree, block=block)
            assert manifest.layout == expected.layout
            assert canonical(made.arena, manifest) == canonical(fresh.arena, expected)
            fresh.gatherer = Gatherer(ArenaMemory(fresh.arena))


def test_a_capture_after_one_that_was_refused_is_of_its_own_tree():
    good = {"a": torch.arange(100), "b": torch.zeros(7)}
    memory = torch.zeros(64, dtype=torch.uint8)
    bad = {"a": memory[0:8].view(torch.float64), "b": memory[1:9].clone(), "c": object()}
    apart = {
        "x": memory[:32].view(torch.int32),
        "y": torch.frombuffer(memory.numpy().data, dtype=torch.int16, offset=1, count=8),
    }
    with session() as made:
        first = canonical(made.arena, made.capture(good))
        for refused in (bad, apart):
            with pytest.raises(LayoutRefused):
                made.capture(refused)
            assert canonical(made.arena, made.capture(good)) == first
