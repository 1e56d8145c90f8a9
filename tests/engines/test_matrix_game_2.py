"""The adapter of Matrix-Game-2 against upstream's own loop, against `load`'s formulae, and with weights in files."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from worldline.errors import BadValue
from worldline.schema.inventory import Realloc, Roll, Static
from worldline.snapshot.walk import Rules
from worldline.worlds.checkouts import find_checkout, load_engine
from worldline.worlds.load_shape import Family, Shape, rewritten_fraction
from worldline.worlds.scratch import ScratchMemory, digest_tree, walk

FAMILIES = ("kv_cache1", "kv_cache_mouse", "kv_cache_keyboard")
TOKENS = {"latent_height": 4, "latent_width": 8}


@pytest.fixture(scope="module")
def engine(needs_checkout):
    """The adapter's modules, which need no checkout to be imported, but torch's extras."""
    needs_checkout("matrix-game-2")
    from worldline.worlds.matrix_game_2 import engine, world

    return SimpleNamespace(engine=engine, World=world.MatrixGame2World)


@pytest.fixture(scope="module")
def wide(engine):
    """The real widths over eight tokens a frame: upstream's loop has the widths in its text."""
    return engine.World({"size": "widths", "steps": 3, "horizon_frames": 12, **TOKENS})


def upstreams_pipeline(engine, world):
    """The batch loop of the checkout, unchanged but for the number of tokens, around the world's own weights."""
    edits = engine.engine._edits(world.shape)
    edits = replace(
        edits,
        values={**edits.values, 44: 4, 80: 8},
        modules={**edits.modules, "utils.visualize": "worldline.worlds.checkouts.unneeded"},
        bare=edits.bare | {"pipeline"},
    )
    loaded = load_engine(find_checkout("matrix-game-2"), ["pipeline.causal_inference"], edits)
    arguments = SimpleNamespace(
        denoising_step_list=[1000, 666, 333], warp_denoising_step=True, num_frame_per_block=3, context_noise=0
    )
    pipeline = loaded["pipeline.causal_inference"].CausalInferencePipeline(
        arguments, generator=world._engine.generator, vae_decoder=lambda latents, *features: (latents, features)
    )
    pipeline.num_transformer_blocks = world.shape.layers
    return pipeline


def test_four_blocks_leave_the_caches_that_upstreams_own_loop_leaves(engine, wide):
    """Upstream draws from the process's generator; here that one is put into the state of the session's."""
    live = wide.open(3, ScratchMemory())
    state = live.state()
    noise, conditions = state["noise"].clone(), {name: tensor.clone() for name, tensor in state["cond"].items()}
    conditions["keyboard_cond"][..., 0] = 1
    pipeline = upstreams_pipeline(engine, wide)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.set_rng_state(state["generator"].get_state())
        pipeline.inference(noise, conditions, return_latents=True)
    for _ in range(4):
        live.step(wide.actions.index("forward"))
    for family in FAMILIES:
        assert digest_tree(live.state()[family]) == digest_tree(getattr(pipeline, family))


def test_caches_have_the_shapes_and_the_rules_by_which_load_lays_them_out(wide):
    live = wide.open(1, ScratchMemory())
    entries = {entry.path: entry for entry in Shape(tokens=8, layers=2, horizon_frames=12, vae=False).entries()}
    rules = Rules(live.rules)
    caches = {path: leaf for path, leaf in walk(live.state()) if path.partition("/")[0] in FAMILIES}
    assert len(caches) == 2 * 3 * 4
    for path, tensor in caches.items():
        assert tuple(tensor.shape) == entries[path].shape
        assert rules.of(path).write == entries[path].write
        assert rules.of(path).kind == entries[path].kind


def test_a_block_at_the_real_widths_rewrites_the_fraction_that_load_computes(engine):
    """Of shapes and rules: nothing is stepped. The first block binds the cross-attention's [1, 257, 12, 128]."""
    live = engine.World({"size": "widths", "horizon_frames": 6}).open(1, ScratchMemory())
    rules = Rules(live.rules)
    written, total = 0, 2 * 2 * 257 * 1536 * 4
    for path, leaf in walk(live.state()):
        if path.partition("/")[0] in FAMILIES and path[-1] in "kv":
            total += leaf.nbytes
            written += leaf.nbytes if isinstance(rules.of(path).write, Roll) else 0
            assert isinstance(rules.of(path).write, Roll | Static)
    by_load = rewritten_fraction(Shape(tokens=880, layers=2).entries(), Family.CACHE)
    assert written / total == pytest.approx(by_load, abs=1e-12)
    assert by_load == pytest.approx(0.7772, abs=5e-5)


def test_the_decoders_features_are_none_and_then_new_tensors_at_every_boundary(engine):
    live = engine.World({"horizon_frames": 12}).open(1, ScratchMemory())
    assert live.state()["feat_cache"] == [None] * 32
    live.step(0)
    first = live.state()["feat_cache"]
    live.step(0)
    second = live.state()["feat_cache"]
    assert all(isinstance(feature, torch.Tensor) for feature in (*first, *second))
    assert not {feature.data_ptr() for feature in first} & {feature.data_ptr() for feature in second}
    assert isinstance(Rules(live.rules).of("feat_cache/3").write, Realloc)


def test_a_session_ends_with_its_horizon_and_refuses_before_anything_has_changed(engine):
    live = engine.World({"horizon_frames": 6, "decoder": False}).open(1, ScratchMemory())
    live.step(1)
    live.step(1)
    before = digest_tree(live.state())
    with pytest.raises(BadValue, match="horizon of 6 frames is spent"):
        live.step(1)
    assert digest_tree(live.state()) == before


def test_weights_of_the_released_names_are_read_from_the_hosts_folder(engine, tmp_path, monkeypatch):
    from safetensors.torch import save_file

    drawn = engine.World({})
    folder = tmp_path / "released"
    folder.mkdir()
    monkeypatch.setenv("WORLDLINE_WEIGHTS", str(tmp_path))
    parts = drawn._engine
    save_file({k: v.contiguous() for k, v in parts.generator.state_dict().items()}, folder / "base_distill.safetensors")
    torch.save(parts.decoder.state_dict(), folder / "Wan2.1_VAE.pth")
    start = {"latent": torch.ones(1, 16, 1, 4, 8), "visual_context": torch.ones(1, 257, 1280)}
    save_file(start, folder / "start.safetensors")
    read = engine.World({"weights": "released"})
    assert read.facts()["weights"] == drawn.facts()["weights"]
    assert (read.open(1, ScratchMemory()).state()["cond"]["cond_concat"][:, :, 0] == 1).all()
    (folder / "start.safetensors").unlink()
    with pytest.raises(BadValue, match="not this engine's"):
        engine.World({"weights": "released"})
