"""Every picture the simulator can show and every block that can happen, as tables to draw training clips from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worldline.worlds.reference.simulator import (
    ACTIONS,
    BLOCK_FRAMES,
    HEADING,
    Place,
    Shot,
    render,
    walk,
    walkable_places,
)


@dataclass(frozen=True, slots=True)
class Atlas:
    """`places` are numbered; a picture is an index into `views`."""

    places: tuple[Place, ...]
    views: np.ndarray  # uint8 [pictures, 64, 64] palette indices
    next_place: np.ndarray  # int64 [places, actions]
    block_views: np.ndarray  # int64 [places, actions, 3] pictures a block shows
    rest_view: np.ndarray  # int64 [places] the picture shown before a block


def build_atlas() -> Atlas:
    places = tuple(Place(c, r, facing) for c, r in walkable_places() for facing in HEADING)
    number = {place: i for i, place in enumerate(places)}
    pictures: dict[Shot, int] = {}
    next_place = np.empty((len(places), len(ACTIONS)), np.int64)
    block_views = np.empty((len(places), len(ACTIONS), BLOCK_FRAMES), np.int64)
    for i, place in enumerate(places):
        for action in range(len(ACTIONS)):
            after, shots = walk(place, action)
            next_place[i, action] = number[after]
            block_views[i, action] = [pictures.setdefault(shot, len(pictures)) for shot in shots]
    views = np.stack([render(shot) for shot in pictures])
    return Atlas(places, views, next_place, block_views, block_views[:, 0, -1].copy())


def draw_actions(chance: np.random.Generator, clips: int, blocks: int) -> np.ndarray:
    """int64 [clips, blocks]: held keys and random ones, from a player who often keeps his direction."""
    keep = chance.random((clips, 1)) * 0.9
    actions = chance.integers(0, len(ACTIONS), (clips, blocks))
    for block in range(1, blocks):
        held = chance.random(clips) < keep[:, 0]
        actions[held, block] = actions[held, block - 1]
    return actions


def draw_clips(
    atlas: Atlas, chance: np.random.Generator, clips: int, blocks: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Actions [clips, blocks], pictures [clips, blocks, 3], the picture before each block [clips, blocks]."""
    actions = draw_actions(chance, clips, blocks)
    place = chance.integers(0, len(atlas.places), clips)
    pictures = np.empty((clips, blocks, BLOCK_FRAMES), np.int64)
    before = np.empty((clips, blocks), np.int64)
    for block in range(blocks):
        before[:, block] = atlas.rest_view[place]
        pictures[:, block] = atlas.block_views[place, actions[:, block]]
        place = atlas.next_place[place, actions[:, block]]
    return actions, pictures, before
