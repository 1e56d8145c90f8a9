"""A manifest from elsewhere is held against everything before it costs anything; a rebuilt session goes on."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unit.snapshot.kit import canonical, identical, moved, session
from worldline.errors import LayoutRefused, Malformed
from worldline.schema.inventory import Free, Kind, Once, Rule, Static
from worldline.schema.layout import Extent, Placement, Segment
from worldline.snapshot.checks import check_manifest
from worldline.snapshot.rebuild import rebuild
from worldline.snapshot.tree import Partial, encode_tree


def a_tree(memory=None):
    buffer = torch.arange(24.0).reshape(4, 6)
    cache = torch.zeros(8, 3) if memory is None else memory.zeros("cache", (8, 3), torch.float32)
    return {
        "a": buffer,
        "b": buffer[:, ::2],
        "cache": cache.fill_(2),
        "g": torch.Generator().manual_seed(1),
        "p": Partial(torch.zeros(4, 2), 0, 3),
        "none": torch.zeros(0),
    }


def view(manifest, index, **changes):
    views = list(manifest.layout.views)
    views[index] = replace(views[index], **changes)
    return replace(manifest, layout=replace(manifest.layout, views=tuple(views)))


def segment(manifest, index, **changes):
    segments = list(manifest.layout.segments)
    segments[index] = replace(segments[index], **changes)
    return replace(manifest, layout=replace(manifest.layout, segments=tuple(segments)))


def place(manifest, index, **changes):
    placements = list(manifest.placements)
    placements[index] = replace(placements[index], **changes)
    return replace(manifest, placements=tuple(placements))


def layout(manifest, **changes):
    return replace(manifest, layout=replace(manifest.layout, **changes))


# Segments: meta, a, cache, g, none, p. Views: a, b, cache, g, none, p.
WRONG = {
    "no segments": lambda m: replace(layout(m, segments=()), placements=()),
    "too many segments": lambda m: layout(m, segments=m.layout.segments * 20_000),
    "a place too few": lambda m: replace(m, placements=m.placements[:-1]),
    "a negative block": lambda m: replace(m, block=-1),
    "a leaf of 0": lambda m: layout(m, leaf_bytes=0),
    "a leaf too large": lambda m: layout(m, leaf_bytes=1 << 21),
    "a leaf of odd size": lambda m: layout(m, leaf_bytes=65537),
    "no meta": lambda m: segment(m, 0, name="atem"),
    "an empty meta": lambda m: segment(m, 0, nbytes=0),
    "a huge meta": lambda m: segment(m, 0, nbytes=1 << 25),
    "a resident meta": lambda m: place(m, 0, resident=True),
    "a negative size": lambda m: segment(m, 4, nbytes=-1),
    "an impossible size": lambda m: segment(m, 1, nbytes=1 << 60),
    "two segments of one name": lambda m: segment(m, 2, name="a"),
    "a segment with another's name": lambda m: segment(m, 2, name="zzz"),
    "two tensors of one path": lambda m: view(m, 1, path="a"),
    "an empty path": lambda m: view(m, 1, path=""),
    "a path of no text": lambda m: view(m, 1, path="\ud800"),
    "a tensor in the tree's segment": lambda m: view(m, 1, segment=0),
    "a tensor in no segment": lambda m: view(m, 1, segment=6),
    "a tensor in a negative segment": lambda m: view(m, 1, segment=-1),
    "a segment without a tensor": lambda m: replace(
        layout(m, segments=(*m.layout.segments, Segment("z", 4, Kind.AUX, Free()))),
        placements=(*m.placements, Placement(1 << 20, 4096, resident=False)),
    ),
    "segments out of order": lambda m: layout(m, views=(m.layout.views[2], *m.layout.views[:2], *m.layout.views[3:])),
    "an unknown dtype": lambda m: view(m, 0, dtype="float128"),
    "a stride too few": lambda m: view(m, 0, strides=(1,)),
    "too many dimensions": lambda m: view(m, 0, shape=(1,) * 33, strides=(1,) * 33),
    "a negative stride": lambda m: view(m, 0, strides=(-6, 1)),
    "a negative dimension": lambda m: view(m, 0, shape=(-4, 6)),
    "a stride past 64 bits": lambda m: view(m, 0, shape=(1, 6), strides=(2**63, 1)),
    "too many elements": lambda m: view(m, 1, shape=(1 << 50, 1), strides=(0, 1)),
    "reaching past the segment": lambda m: view(m, 0, shape=(5, 6)),
    "reaching past it by stride": lambda m: view(m, 0, strides=(7, 1)),
    "reaching past it by offset": lambda m: view(m, 0, offset_bytes=4),
    "a negative offset": lambda m: view(m, 0, offset_bytes=-4),
    "an odd offset": lambda m: view(m, 1, offset_bytes=2),
    "an offset past an empty segment": lambda m: view(m, 4, offset_bytes=4),
    "a generator of another size": lambda m: view(m, 3, shape=(100,)),
    "a tensor as a generator": lambda m: view(m, 0, dtype="rng"),
    "a generator in half a segment": lambda m: view(m, 3, shape=(5055,)),
    "a place that is too small": lambda m: place(m, 1, capacity=8),
    "a place past the arena": lambda m: place(m, 1, offset=1 << 40),
    "a negative place": lambda m: place(m, 1, offset=-4096),
    "a crooked place": lambda m: place(m, 1, offset=m.placements[1].offset + 8),
    "a crooked resident place": lambda m: place(m, 2, offset=m.placements[2].offset + 2),
    "two in one place": lambda m: place(m, 1, offset=m.placements[3].offset),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_manifest_is_refused_before_anything_is_allocated(name):
    with session() as here:
        manifest = here.capture(a_tree(here.memory))
        before = here.arena.resident_bytes(), canonical(here.arena, manifest)
        with pytest.raises(LayoutRefused):
            rebuild(WRONG[name](manifest), here.arena)
        assert (here.arena.resident_bytes(), canonical(here.arena, manifest)) == before


def test_the_same_manifest_unchanged_is_taken():
    with session() as here:
        manifest = here.capture(a_tree(here.memory))
        check_manifest(manifest, here.arena.capacity)
        assert identical(rebuild(manifest, here.arena).tree["a"], a_tree()["a"])


WRONG_TREES = {
    "not JSON": b"{",
    "a tensor left out": encode_tree({"a": 1}),
    "no tree": b"[]",
}


def refer(**changes):
    from worldline.snapshot.tree import Ref

    whole = {"a": Ref(0), "b": Ref(1), "cache": Ref(2), "g": Ref(3, generator=True), "none": Ref(4), "p": Ref(5)}
    return encode_tree(whole | changes)


def wrong_refs():
    from worldline.snapshot.tree import Ref

    return {
        "a reference past the end": refer(q=Ref(6)),
        "a far reference": refer(p=Ref(10**9)),
        "the same tensor twice": refer(p=Ref(4)),
        "two tensors exchanged": refer(a=Ref(1), b=Ref(0)),
        "a tensor for a generator": refer(g=Ref(3)),
        "a generator for a tensor": refer(p=Ref(5, generator=True)),
        "a part along no dimension": refer(p=Ref(5, valid=(2, 1))),
        "a part too long": refer(p=Ref(5, valid=(0, 5))),
        "a generator before its time": refer(a=Ref(3, generator=True)),
    }


@pytest.mark.parametrize("text", [*WRONG_TREES.values(), *wrong_refs().values()], ids=[*WRONG_TREES, *wrong_refs()])
def test_a_tree_that_does_not_fit_its_tensors_is_malformed(text):
    with session() as here:
        manifest = here.capture(a_tree())
        manifest = segment(manifest, 0, nbytes=len(text))
        here.arena.bytes_at(Extent(manifest.placements[0].offset, len(text)))[:] = text
        with pytest.raises(Malformed):
            rebuild(manifest, here.arena)


def test_bytes_that_are_no_generators_state_are_malformed():
    with session() as here:
        manifest = here.capture(a_tree())
        here.arena.bytes_at(Extent(manifest.placements[3].offset, 5056))[:] = b"\xff" * 5056
        with pytest.raises(Malformed, match="generator"):
            rebuild(manifest, here.arena)


def test_a_resident_tensor_is_bound_in_place_and_a_gathered_one_is_the_sessions_own():
    with session() as here:
        manifest = here.capture(a_tree(here.memory))
        with moved(here.arena, manifest) as there:
            arena = there.gatherer.arena
            inside = range(arena.address, arena.address + arena.capacity)
            assert there.tree["cache"].data_ptr() - arena.address == manifest.placements[2].offset
            assert there.tree["a"].data_ptr() not in inside
            assert there.tree["a"].data_ptr() == there.tree["b"].data_ptr()


def test_capture_after_a_rebuild_gives_the_same_manifest_and_bytes():
    with session() as here:
        manifest = here.capture(a_tree(here.memory), block=9)
        with moved(here.arena, manifest) as there:
            again = there.gatherer.capture(there.tree, (), 9)
            assert again == manifest
            assert canonical(there.gatherer.arena, again) == canonical(here.arena, manifest)


def test_a_rebuilt_session_allocates_zeros_and_never_over_its_state():
    with session() as here:
        manifest = here.capture(a_tree(here.memory))
        with moved(here.arena, manifest) as there:
            before = canonical(there.gatherer.arena, manifest)
            for index in range(20):
                more = there.memory.zeros(f"more{index}", (3000,), torch.uint8)
                assert not more.any()
                more.fill_(0xFF)
            assert canonical(there.gatherer.arena, manifest) == before


def test_a_session_moves_on_and_on_with_state_that_changes():
    tree = {"a": torch.zeros(10), "list": [None]}
    with session() as here:
        manifest = here.capture(tree)
        with moved(here.arena, manifest) as one:
            one.tree["a"].add_(1)
            one.tree["list"][0] = torch.ones(7)
            second = one.gatherer.capture(one.tree, (), 1)
            with moved(one.gatherer.arena, second) as two:
                assert two.tree["a"].tolist() == [1.0] * 10
                assert two.tree["list"][0].tolist() == [1.0] * 7


def test_sessions_that_come_and_go_leave_memory_and_descriptors_as_they_were():
    def once():
        with session() as here:
            manifest = here.capture(a_tree(here.memory))
            with moved(here.arena, manifest) as there:
                return there.tree["cache"]

    for _ in range(5):
        once()
    gc.collect()
    status = Path("/proc/self/status")
    before = len(list(Path("/proc/self/fd").iterdir())), _resident_kib(status)
    for _ in range(30):
        once()
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before[0]
    assert _resident_kib(status) - before[1] < 8 * 1024


def _resident_kib(status):
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))


RULES = (Rule("kept", Kind.CACHE, Static()), Rule("once", Kind.CACHE, Once()), Rule("*", Kind.AUX, Free()))


def lies_in(arena, tensor):
    return 0 <= tensor.data_ptr() - arena.address < arena.capacity


@pytest.mark.parametrize("name", ["kept", "once"])
def test_a_whole_tensor_that_is_declared_to_keep_its_bytes_is_not_copied_out_of_the_arena(name):
    tree = {name: torch.arange(5000.0).reshape(50, 100), "free": torch.ones(3000)}
    with session() as made:
        manifest = made.capture(tree, RULES)
        with moved(made.arena, manifest) as rebuilt:
            arena = rebuilt.gatherer.arena
            assert lies_in(arena, rebuilt.tree[name])
            assert not lies_in(arena, rebuilt.tree["free"])
            again = rebuilt.gatherer.capture(rebuilt.tree, RULES, 0)
            assert canonical(arena, again) == canonical(made.arena, manifest)
            assert [place.offset for place in again.placements] == [place.offset for place in manifest.placements]
            assert identical(rebuilt.tree[name], tree[name])


@pytest.mark.parametrize("change", ["written in place", "bound anew", "gone"])
def test_a_declaration_that_is_broken_after_a_rebuild_changes_nothing_about_what_is_captured(change):
    tree = {"kept": torch.arange(5000.0), "free": torch.ones(3000)}
    with session() as made, moved(made.arena, made.capture(tree, RULES)) as rebuilt:
        live = dict(rebuilt.tree)
        match change:
            case "written in place":
                live["kept"][7] = -0.0
            case "bound anew":
                live["kept"] = torch.full((6000,), 3.0)
            case "gone":
                live["kept"] = None
        found = rebuilt.gatherer.capture(live, RULES, 1)
        expected = made.capture(
            {name: None if value is None else value.clone() for name, value in live.items()}, RULES, 1
        )
        assert canonical(rebuilt.gatherer.arena, found) == canonical(made.arena, expected)


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(8, 6)[:, ::2], torch.zeros(6, 8).t(), torch.zeros(1).expand(9)],
    ids=["gaps", "turned", "one"],
)
def test_a_kept_tensor_that_is_not_whole_is_the_sessions_own(tensor):
    with session() as made, moved(made.arena, made.capture({"kept": tensor}, RULES)) as rebuilt:
        assert not lies_in(rebuilt.gatherer.arena, rebuilt.tree["kept"])
        again = rebuilt.gatherer.capture(rebuilt.tree, RULES, 0)
        assert canonical(rebuilt.gatherer.arena, again) == canonical(made.arena, made.capture({"kept": tensor}, RULES))
