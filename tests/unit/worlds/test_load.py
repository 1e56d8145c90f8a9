import numpy as np
import pytest
import torch

from worldline.errors import BadValue
from worldline.schema.inventory import Roll
from worldline.testing.write_rules import kept
from worldline.worlds.load import LoadWorld
from worldline.worlds.load_shape import (
    TIME_CONVOLUTIONS,
    WINDOW_FRAMES,
    Family,
    Shape,
    rewritten_fraction,
    shape_of_size,
    state_bytes,
)
from worldline.worlds.scratch import ScratchMemory, walk

PAGE_BYTES = 4096
SMALL = {"bytes": "1.5MB", "layers": 2, "horizon_frames": 12}


@pytest.fixture
def live():
    return LoadWorld(SMALL).open(1, ScratchMemory())


def tensors(live):
    return {path: kept(leaf) for path, leaf in walk(live.state()) if isinstance(leaf, torch.Tensor)}


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def measured_fraction(before, after, shape, *families):
    """Share of bytes on 4 KiB pages that differ; each tensor starts a page."""
    total = dirty = 0
    for entry in shape.entries():
        if entry.family in families:
            differ = raw(before[entry.path]) != raw(after[entry.path])
            for start in range(0, len(differ), PAGE_BYTES):
                page = differ[start : start + PAGE_BYTES]
                total += len(page)
                dirty += len(page) * bool(page.any())
    return dirty / total


def test_at_scale_1_the_sizes_are_the_real_ones():
    entries = list(Shape().entries())
    assert state_bytes(entries, Family.CACHE) == 1_670_123_520
    assert state_bytes(entries, Family.DECODER) == 1_065_349_120
    assert state_bytes(e for e in entries if e.path.startswith("kv_cache1/") and e.path[-1] in "kv") == 973_209_600
    assert state_bytes(e for e in entries if e.path.startswith("kv_cache_mouse/") and e.path[-1] in "kv") == 648_806_400
    assert state_bytes(e for e in entries if "index" in e.path) == 1_440


def test_at_scale_1_the_rewritten_fractions_are_the_papers():
    entries = list(Shape().entries())
    assert round(rewritten_fraction(entries, Family.CACHE), 4) == 0.7772
    assert round(rewritten_fraction(entries, Family.CACHE, Family.DECODER), 3) == 0.864


def test_a_templates_entry_has_the_shape_of_the_real_engine():
    shapes = {entry.path: (entry.shape, entry.dtype) for entry in Shape().entries()}
    assert shapes["kv_cache1/29/v"] == ((1, 5280, 12, 128), "bfloat16")
    assert shapes["kv_cache_mouse/0/k"] == ((880, 6, 16, 64), "bfloat16")
    assert shapes["kv_cache_keyboard/0/k"] == ((1, 6, 16, 64), "bfloat16")
    assert shapes["crossattn_cache/7/k"] == ((1, 257, 12, 128), "bfloat16")
    assert shapes["kv_cache1/0/global_end_index"] == ((1,), "int64")
    assert shapes["noise"] == ((1, 16, 150, 44, 80), "bfloat16")
    assert shapes["feat_cache/31"] == ((1, 96, 2, 352, 640), "float16")


@pytest.mark.parametrize("target", [1_500_000, 64_000_000, 256_000_000, 1_000_000_000, 2_774_170_524])
def test_a_size_in_bytes_chooses_the_nearest_scale(target):
    shape = shape_of_size(target, 30, 150, True) if target > 4_000_000 else shape_of_size(target, 2, 150, True)
    size = state_bytes(shape.entries())
    step = state_bytes(Shape(shape.tokens + 1, shape.layers).entries()) - size
    assert abs(size - target) <= step


def test_a_size_too_small_for_any_session_is_refused():
    with pytest.raises(BadValue, match="smallest"):
        LoadWorld({"bytes": "100kB"})


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 0.0},
        {"layers": 3},
        {"layers": 10**9},
        {"bytes": "1e30MB"},
        {"compute_share": 1.5},
        {"horizon_frames": 3},
        {"horizon_frames": 2**62},
    ],
    ids=str,
)
def test_an_impossible_option_is_refused(options):
    with pytest.raises(BadValue):
        LoadWorld(options)


def test_what_a_block_rewrites_is_what_the_shapes_say():
    world = LoadWorld({"bytes": "16MB", "horizon_frames": 12})
    live = world.open(1, ScratchMemory())
    for _ in range(2):
        live.step(1)
    before = tensors(live)
    live.step(2)
    after = tensors(live)
    for families in ((Family.CACHE,), (Family.CACHE, Family.DECODER)):
        expected = rewritten_fraction(world.shape.entries(), *families)
        assert measured_fraction(before, after, world.shape, *families) == pytest.approx(expected, abs=1e-9)


def test_a_full_window_rolls_bit_for_bit(live):
    for _ in range(2):
        live.step(1)
    before = tensors(live)
    live.step(3)
    after = tensors(live)
    rolling = [rule for rule in live.rules if isinstance(rule.write, Roll)]
    assert rolling
    for rule in rolling:
        old, new, half = before[rule.pattern], after[rule.pattern], rule.write.shift
        assert torch.equal(new[:, :half].view(torch.int16), old[:, half:].view(torch.int16))
        assert not torch.equal(new[:, half:].view(torch.int16), old[:, half:].view(torch.int16))


def test_layers_without_actions_keep_their_zeros(live):
    for _ in range(3):
        live.step(1)
    state = tensors(live)
    assert not state["kv_cache_mouse/1/k"].any()
    assert state["kv_cache_mouse/0/k"].any()


def test_no_page_of_new_rows_is_like_another():
    live = LoadWorld({"bytes": "16MB", "horizon_frames": 12}).open(1, ScratchMemory())
    for _ in range(3):
        live.step(1)
    pages = [
        raw(leaf)[start : start + PAGE_BYTES].tobytes()
        for path, leaf in tensors(live).items()
        if path.startswith(("kv_cache1", "feat_cache")) and leaf.nbytes >= PAGE_BYTES
        for start in range(0, leaf.nbytes - PAGE_BYTES + 1, PAGE_BYTES)
    ]
    assert len(set(pages)) == len(pages)


def test_the_decoders_entries_are_none_then_a_word_then_tensors(live):
    kinds = [[type(live.state()["feat_cache"][i]) for i in TIME_CONVOLUTIONS]]
    for _ in range(2):
        live.step(0)
        kinds.append([type(live.state()["feat_cache"][i]) for i in TIME_CONVOLUTIONS])
    assert kinds == [[type(None)] * 2, [str] * 2, [torch.Tensor] * 2]


def test_the_decoders_entries_are_new_tensors_every_block(live):
    for _ in range(2):
        live.step(0)
    before = list(live.state()["feat_cache"])
    live.step(0)
    after = live.state()["feat_cache"]
    assert all(old is not new and old.data_ptr() != new.data_ptr() for old, new in zip(before, after, strict=True))


def test_cross_attention_is_bound_anew_once(live):
    seen = []
    for _ in range(3):
        seen.append((live.state()["crossattn_cache"][0]["k"], live.state()["crossattn_cache"][0]["is_init"]))
        live.step(0)
    assert [ready for _, ready in seen] == [False, True, True]
    assert seen[0][0] is not seen[1][0]
    assert seen[1][0] is seen[2][0]


def test_a_flipped_bit_anywhere_shows_in_the_next_picture():
    world = LoadWorld(SMALL)
    chance = np.random.default_rng(0)
    sound = world.open(1, ScratchMemory())
    for _ in range(2):
        sound.step(1)
    paths = sorted(tensors(sound))
    picture = sound.step(4).tobytes()
    for path in [*chance.choice(paths, 20, replace=False), "thought", "kv_cache_mouse/1/v"]:
        live = world.open(1, ScratchMemory())
        for _ in range(2):
            live.step(1)
        leaf = dict(walk(live.state()))[str(path)]
        bit = int(chance.integers(leaf.nbytes * 8))
        leaf.reshape(-1).view(torch.uint8)[bit // 8] ^= 1 << bit % 8
        assert live.step(4).tobytes() != picture, path


def test_a_session_outlives_its_horizon(live):
    pictures = {live.step(block % 5).tobytes() for block in range(12)}
    assert len(pictures) == 12


def test_pace_changes_no_bit():
    quick = LoadWorld(SMALL).open(1, ScratchMemory())
    paced = LoadWorld(SMALL | {"block_period_ms": 20.0, "compute_share": 0.5}).open(1, ScratchMemory())
    assert [quick.step(1).tobytes() for _ in range(3)] == [paced.step(1).tobytes() for _ in range(3)]


def test_the_picture_shows_the_window_of_actions(live):
    for action in (1, 3):
        picture = live.step(action)
    old, new = picture[-1, :60, :40].mean((0, 1)), picture[-1, :60, 56:].mean((0, 1))
    assert old.argmax() == 1  # forward is green
    assert new.argmax() == 2  # left is blue
    assert picture.shape == (3, 96, 96, 3)
    assert WINDOW_FRAMES * 16 == 96
