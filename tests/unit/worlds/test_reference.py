"""The reference world: its simulator, its caches, its exactness, and that it trains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from worldline.errors import BadValue, LayoutRefused
from worldline.worlds.reference import simulator
from worldline.worlds.reference.atlas import build_atlas, draw_clips
from worldline.worlds.reference.measure import block_errors, play, psnr_db, stands_right
from worldline.worlds.reference.model import BLOCK_TOKENS, WorldTransformer
from worldline.worlds.reference.simulator import BACK, FORWARD, HEADING, LEFT, RIGHT, STAY, Place
from worldline.worlds.reference.train import Plan, train
from worldline.worlds.reference.windows import ClipWindow, PassingWindow, RollingCache, RollingWindow, denoise_block
from worldline.worlds.reference.world import ReferenceLive, ReferenceWorld
from worldline.worlds.scratch import ScratchMemory

ACTIONS = [FORWARD, RIGHT, RIGHT, STAY, BACK, LEFT]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def world() -> ReferenceWorld:
    return ReferenceWorld({})


def copied(tree: Any) -> Any:
    """A tree elsewhere: nothing shared with the original."""
    match tree:
        case torch.Tensor():
            return tree.clone()
        case torch.Generator():
            return torch.Generator().set_state(tree.get_state())
        case dict():
            return {name: copied(entry) for name, entry in tree.items()}
        case list():
            return [copied(entry) for entry in tree]
        case _:
            return tree


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict | list):
        for name, entry in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(entry, f"{path}/{name}" if path else str(name))
    else:
        yield path, tree


def as_bytes(tree: Any) -> dict[str, bytes]:
    def one(leaf: Any) -> bytes:
        if isinstance(leaf, torch.Generator):
            leaf = leaf.get_state()
        return leaf.numpy().tobytes() if isinstance(leaf, torch.Tensor) else repr(leaf).encode()

    return {path: one(leaf) for path, leaf in leaves(tree)}


def played(
    world: ReferenceWorld, seed: int = 5, actions: list[int] = ACTIONS
) -> tuple[ReferenceLive, list[np.ndarray]]:
    live = world.open(seed, ScratchMemory())
    return live, [live.step(action) for action in actions]


# ------------------------------------------------------------------------------------------------- the simulator


def test_every_walkable_tile_is_reached_from_every_other() -> None:
    reached, todo = set(), [simulator.walkable_places()[0]]
    while todo:
        tile = todo.pop()
        if tile not in reached:
            reached.add(tile)
            ends = [simulator.walk(Place(*tile), action)[0] for action in HEADING]
            todo += [(place.column, place.row) for place in ends]
    assert reached == set(simulator.walkable_places())


def test_no_two_places_look_alike() -> None:
    atlas = build_atlas()
    at_rest = atlas.views[atlas.rest_view].reshape(len(atlas.places), -1)
    by_tile = at_rest[:: len(HEADING)]
    for i, view in enumerate(by_tile[:-1]):
        assert (by_tile[i + 1 :] != view).mean(1).min() > 0.1


def test_a_block_moves_one_tile_or_only_turns() -> None:
    for tile in simulator.walkable_places():
        for action, (columns, rows) in HEADING.items():
            place, shots = simulator.walk(Place(*tile), action)
            ahead = ((tile[0] + columns) % simulator.MAP_TILES, (tile[1] + rows) % simulator.MAP_TILES)
            free = ahead in set(simulator.walkable_places())
            assert (place.column, place.row) == (ahead if free else tile)
            assert place.facing == action
            assert len({(shot.x_px, shot.y_px) for shot in shots}) == (3 if free else 1)


def test_once_around_the_torus_is_the_same_picture() -> None:
    place, views = simulator.roll_out(Place(9, 6, RIGHT), [RIGHT] * simulator.MAP_TILES)
    assert place == Place(9, 6, RIGHT)
    assert np.array_equal(views[-1], simulator.roll_out(place, [STAY])[1][-1])


def test_training_clips_are_the_simulators() -> None:
    atlas = build_atlas()
    actions, pictures, before = draw_clips(atlas, np.random.default_rng(3), 4, 5)
    for clip in range(4):
        place = next(p for i, p in enumerate(atlas.places) if atlas.rest_view[i] == before[clip, 0])
        _, views = simulator.roll_out(place, actions[clip].tolist())
        assert np.array_equal(atlas.views[pictures[clip].ravel()], views)


# ------------------------------------------------------------------------------------------------- exactness


def test_equal_seeds_and_actions_give_equal_bytes(world: ReferenceWorld) -> None:
    torch.manual_seed(0)
    first, first_frames = played(world)
    torch.manual_seed(1)  # the global generator has no say
    second, second_frames = played(world)
    assert first_frames[0].dtype == np.uint8
    assert first_frames[0].shape == (3, 64, 64, 3)
    assert [frames.tobytes() for frames in first_frames] == [frames.tobytes() for frames in second_frames]
    assert as_bytes(first.state()) == as_bytes(second.state())


def test_two_sessions_taking_turns_do_not_touch_each_other(world: ReferenceWorld) -> None:
    alone, _ = played(world, seed=5)
    one, other = world.open(5, ScratchMemory()), world.open(6, ScratchMemory())
    for action in ACTIONS:
        one.step(action)
        other.step(STAY)
    assert as_bytes(one.state()) == as_bytes(alone.state())


@pytest.mark.parametrize("blocks_before", [0, 1, 4])
def test_a_restored_session_goes_on_byte_for_byte(world: ReferenceWorld, blocks_before: int) -> None:
    live, _ = played(world, actions=ACTIONS[:blocks_before])
    twin = world.restore(copied(live.state()), ScratchMemory())
    for action in ACTIONS:
        assert live.step(action).tobytes() == twin.step(action).tobytes()
    assert as_bytes(live.state()) == as_bytes(twin.state())


def test_restore_binds_the_tensors_it_is_given(world: ReferenceWorld) -> None:
    tree = copied(played(world)[0].state())
    rebuilt: Any = world.restore(tree, ScratchMemory()).state()
    assert rebuilt["kv"][0]["k"] is tree["kv"][0]["k"]
    assert rebuilt["last_frame"] is tree["last_frame"]


def test_restore_refuses_caches_of_another_size(world: ReferenceWorld) -> None:
    tree = copied(played(world)[0].state())
    tree["kv"].pop()
    with pytest.raises(LayoutRefused):
        world.restore(tree, ScratchMemory())


def test_an_unknown_action_changes_nothing(world: ReferenceWorld) -> None:
    live, _ = played(world)
    before = as_bytes(live.state())
    with pytest.raises(BadValue):
        live.step(5)
    assert as_bytes(live.state()) == before


def test_every_entry_left_out_changes_what_follows(world: ReferenceWorld) -> None:
    live, _ = played(world)
    whole = copied(live.state())
    paths = [path for path, _ in leaves(whole)]
    goes_on: dict[str | None, Any] = {}
    for left_out in [None, *paths]:
        tree = copied(whole)
        if left_out is not None:
            *way, name = left_out.split("/")
            holder: Any = tree
            for key in way:
                holder = holder[int(key) if isinstance(holder, list) else key]
            spot = int(name) if isinstance(holder, list) else name
            entry = holder[spot]
            if isinstance(entry, torch.Generator):
                entry.manual_seed(0)
            elif isinstance(entry, torch.Tensor):
                entry.zero_()
            else:
                holder[spot] = 0
        twin = world.restore(tree, ScratchMemory())
        try:
            frames = [twin.step(action).tobytes() for action in (FORWARD, STAY)]
        except AssertionError:  # end indices that do not fit the frame count are noticed at once
            continue
        goes_on[left_out] = (frames, as_bytes(twin.state()))
    unnoticed = {path for path in paths if goes_on.get(path) == goes_on[None]}
    assert unnoticed == set()


# ------------------------------------------------------------------------------------------------- caches


def test_a_full_cache_rolls_by_one_block(world: ReferenceWorld) -> None:
    live, _ = played(world)
    before: Any = copied(live.state())
    live.step(RIGHT)
    after: Any = live.state()
    for family, rows in (("kv", BLOCK_TOKENS), ("action_kv", 3)):
        for old, new in zip(before[family], after[family], strict=True):
            for side in ("k", "v"):
                assert torch.equal(new[side][:, :rows], old[side][:, rows:])
                assert not torch.equal(new[side][:, rows:], old[side][:, rows:])
            assert int(new["global_end_index"]) == int(old["global_end_index"]) + rows
            assert int(new["local_end_index"]) == int(old["local_end_index"]) == 2 * rows


def test_the_caches_stay_where_they_were_allocated_and_the_features_do_not(world: ReferenceWorld) -> None:
    live, _ = played(world)
    before: Any = live.state()
    kept = [before["kv"][0]["k"].data_ptr(), before["action_kv"][0]["v"].data_ptr(), before["last_frame"].data_ptr()]
    features = before["decoder_features"]
    live.step(LEFT)
    after: Any = live.state()
    now = [after["kv"][0]["k"].data_ptr(), after["action_kv"][0]["v"].data_ptr(), after["last_frame"].data_ptr()]
    assert now == kept
    assert all(new is not old for new, old in zip(after["decoder_features"], features, strict=True))


def test_the_state_fits_its_bound_and_never_grows(world: ReferenceWorld) -> None:
    live, _ = played(world)

    def size() -> int:
        return sum(len(leaf) for leaf in as_bytes(live.state()).values())

    early = size()
    for _ in range(8):
        live.step(RIGHT)
    assert size() <= early + 8 < world.state_bytes_max  # only the counters' digits


def test_training_and_serving_windows_agree() -> None:
    torch.manual_seed(4)
    transformer = WorldTransformer().requires_grad_(False)
    shape, blocks = transformer.shape, 3
    clean = torch.randn(1, blocks, 3, 16, 8, 8)
    noisy, last = torch.randn(blocks, 3, 16, 8, 8), torch.randn(blocks, 16, 8, 8)
    action = torch.tensor([1, 4, 2])
    level = torch.full((blocks,), 0.5)

    def cache(rows: int, heads: int, width: int) -> RollingCache:
        zero = torch.zeros(1, dtype=torch.int64)
        return RollingCache(torch.zeros(1, rows, heads, width), torch.zeros(1, rows, heads, width), zero, zero.clone())

    rolling = RollingWindow(
        [cache(96, shape.heads, shape.head_width) for _ in range(shape.layers)],
        [cache(6, shape.action_heads, shape.action_head_width) for _ in range(shape.action_layers)],
    )
    passing = PassingWindow()
    served: list[torch.Tensor] = []
    rolled: list[torch.Tensor] = []
    for i in range(blocks):
        rolling.block = i
        one = slice(i, i + 1)
        for window, results in ((rolling, served), (passing, rolled)):
            results.append(transformer(noisy[one], last[one], level[one], action[one], window))
            transformer.remember(clean[:, i], last[one], action[one], window)
        passing.pass_on()
    stem, tokens, condition = transformer.embed(
        torch.cat([clean[0, :-1], noisy[1:]]),
        torch.cat([last[:-1], last[1:]]),
        torch.cat([torch.zeros(blocks - 1), level[1:]]),
        torch.cat([action[:-1], action[1:]]),
    )
    both = torch.cat([action[:-1], action[1:]])
    tokens = transformer.think(tokens, condition, both, ClipWindow(1, blocks - 1))
    trained = transformer.read(stem, tokens, condition)[blocks - 1 :]
    assert torch.allclose(torch.cat(served), torch.cat(rolled), atol=1e-4)
    assert torch.allclose(torch.cat(served)[1:], trained, atol=1e-4)


def test_the_sampler_draws_only_from_the_sessions_generator() -> None:
    transformer = WorldTransformer().requires_grad_(False)
    last = torch.zeros(1, 16, 8, 8)
    torch.manual_seed(0)
    untouched = torch.get_rng_state()
    samples = [
        denoise_block(transformer, last, torch.tensor([1]), PassingWindow(), torch.Generator().manual_seed(9))
        for _ in range(2)
    ]
    assert torch.equal(torch.get_rng_state(), untouched)
    assert torch.equal(*samples)


# ------------------------------------------------------------------------------------------------- quality, training


def test_the_shipped_weights_know_where_they_are(world: ReferenceWorld) -> None:
    walks = [play(world, seed, np.array(ACTIONS)) for seed in range(3)]
    assert psnr_db(block_errors(walks)[:, -1].mean()) > 15
    assert stands_right(walks)[:, -1].all()


def test_a_few_training_steps_leave_loadable_weights(weights_folder: Any) -> None:
    out = weights_folder / "own.safetensors"
    train(Plan(codec_steps=2, steps=3, polish_steps=2, clips=2, blocks=3, own_history_from=0.0), out)
    assert out.stat().st_size < 10_000_000
    own = ReferenceWorld({"weights": "own.safetensors"})
    assert own.open(1, ScratchMemory()).step(FORWARD).shape == (3, 64, 64, 3)


def test_weights_of_something_else_are_refused(weights_folder: Any) -> None:
    (weights_folder / "other").write_bytes(b"not safetensors at all")
    os.mkfifo(weights_folder / "pipe")
    with (weights_folder / "endless").open("wb") as endless:
        endless.truncate(1 << 40)
    for weights in [path.name for path in weights_folder.iterdir()]:
        with pytest.raises(BadValue):
            ReferenceWorld({"weights": weights})
