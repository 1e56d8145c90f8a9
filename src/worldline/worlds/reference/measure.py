"""How good the reference world is: `python -m worldline.worlds.reference.measure [--docs docs]`.

Sessions of the world as it is served are played beside the simulator with the same actions. Writes the table between
the marks in docs/reference-world.md and the pictures docs/images/reference-*.png; needs Pillow for those.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from worldline.clock import SystemClock
from worldline.worlds.reference.atlas import draw_actions
from worldline.worlds.reference.simulator import (
    ACTIONS,
    BLOCK_FRAMES,
    FORWARD,
    HEADING,
    MAP_TILES,
    RIGHT,
    Place,
    colours,
    map_picture,
    render,
    roll_out,
    walk,
    walkable_places,
)
from worldline.worlds.reference.world import ReferenceWorld, opening_place
from worldline.worlds.scratch import ScratchMemory

HORIZONS = (1, 4, 16, 32, 64)
STRIP_BLOCKS = (0, 1, 2, 4, 8, 16, 24, 32, 48, 64)
PSNR_DB_MAX = 99.0  # stands for "equal": 20 log10 of an error of a thousandth of a grey level
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True, slots=True)
class Walk:
    """One session beside the simulator."""

    seed: int
    actions: np.ndarray  # int64 [blocks]
    world: np.ndarray  # uint8 [blocks, 3, 64, 64, 3]
    truth: np.ndarray  # uint8 [blocks, 3, 64, 64, 3]
    places: tuple[Place, ...]  # where the simulator stands after each block


def play(world: ReferenceWorld, seed: int, actions: np.ndarray) -> Walk:
    live = world.open(seed, ScratchMemory())
    shown = np.stack([live.step(int(action)) for action in actions])
    place = opening_place(seed)
    truth = colours(roll_out(place, actions)[1]).reshape(shown.shape)
    places = []
    for action in actions:
        place, _ = walk(place, int(action))
        places.append(place)
    return Walk(seed, actions, shown, truth, tuple(places))


def psnr_db(error: np.ndarray | float) -> np.ndarray:
    """Peak signal-to-noise ratio of mean squared errors of 8-bit values; `PSNR_DB_MAX` at most."""
    db: np.ndarray = np.minimum(10 * np.log10(255.0**2 / np.maximum(error, 1e-12)), PSNR_DB_MAX)
    return db


def block_errors(walks: Sequence[Walk]) -> np.ndarray:
    """Mean squared error of each block, [walks, blocks]."""
    return np.array([((w.world.astype(np.float32) - w.truth) ** 2).mean((1, 2, 3, 4)) for w in walks])


def stands_right(walks: Sequence[Walk]) -> np.ndarray:
    """Whether the picture nearest to a block's last frame is the true tile's and facing's, bool [walks, blocks]."""
    places = [Place(c, r, facing) for c, r in walkable_places() for facing in HEADING]
    pictures = colours(np.stack([render(walk(place, 0)[1][-1]) for place in places])).reshape(len(places), -1)
    table = torch.from_numpy(pictures).float()
    lengths = table.square().sum(1)
    right = []
    for w in walks:
        shown = torch.from_numpy(w.world[:, -1].reshape(len(w.actions), -1)).float()
        nearest = (lengths - 2 * shown @ table.T).argmin(1)
        right.append([places[int(i)] == place for i, place in zip(nearest, w.places, strict=True)])
    return np.array(right)


def laps(world: ReferenceWorld) -> list[tuple[str, bool, float]]:
    """Once around the torus along clear streets: name, whether it ends in the right place, PSNR there."""
    results = []
    for name, action in (("east along the road", RIGHT), ("north along the road", FORWARD)):
        seeds = [s for s in range(2000) if _is_street(opening_place(s), action)][:4]
        for seed in seeds:
            walked = play(world, seed, np.full(MAP_TILES, action))
            error = ((walked.world[-1, -1].astype(np.float32) - walked.truth[-1, -1]) ** 2).mean()
            results.append((f"{name}, seed {seed}", bool(stands_right([walked])[0, -1]), float(psnr_db(error))))
    return results


def _is_street(place: Place, action: int) -> bool:
    """Whether a lap from here in this direction meets nothing that blocks."""
    start = (place.column, place.row)
    for _ in range(MAP_TILES):
        before = (place.column, place.row)
        place, _ = walk(place, action)
        if (place.column, place.row) == before:
            return False
    return (place.column, place.row) == start


def blocks_per_s(world: ReferenceWorld, blocks: int = 60) -> float:
    """Steps a second of one session, with the threads torch has now."""
    live = world.open(0, ScratchMemory())
    for action in range(5):
        live.step(action)
    started = SystemClock().monotonic_s()
    for block in range(blocks):
        live.step(block % 5)
    return blocks / (SystemClock().monotonic_s() - started)


def table(walks: Sequence[Walk]) -> str:
    """Markdown; a row a horizon."""
    errors, right = block_errors(walks), stands_right(walks)
    equal = np.array([(w.world == w.truth).all(-1).mean((1, 2, 3)) for w in walks])
    lines = [
        "| blocks | frames | PSNR of mean error | median session's | worst session's | pixels equal | right place |",
        "|---|---|---|---|---|---|---|",
    ]
    for blocks in (h for h in HORIZONS if h <= errors.shape[1]):
        e, db = errors[:, blocks - 1], psnr_db(errors[:, blocks - 1])
        cells = [f"{psnr_db(e.mean()):.1f} dB", _db(np.median(db)), _db(db.min()), f"{equal[:, blocks - 1].mean():.2%}"]
        cells.append(f"{right[:, blocks - 1].sum()} of {len(walks)}")
        lines.append(f"| {blocks} | {blocks * BLOCK_FRAMES} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _db(value: float) -> str:
    return "equal" if value >= PSNR_DB_MAX else f"{value:.1f} dB"


def save_strips(walks: Sequence[Walk], path: Path) -> None:
    """For each walk a row of the simulator's pictures above a row of the world's, at `STRIP_BLOCKS`."""
    from PIL import Image

    rows = []
    for w in walks:
        opening = colours(roll_out(opening_place(w.seed), [0])[1])[-1]
        for frames in (w.truth, w.world):
            cells = [opening if b == 0 else frames[b - 1, -1] for b in STRIP_BLOCKS if b <= len(w.actions)]
            rows.append(
                np.concatenate([np.pad(c, ((1, 1), (1, 1), (0, 0)), constant_values=255) for c in cells], axis=1)
            )
        rows.append(np.full((6, rows[-1].shape[1], 3), 255, np.uint8))
    picture = Image.fromarray(np.concatenate(rows[:-1]))
    picture.resize((picture.width * 2, picture.height * 2), Image.Resampling.NEAREST).save(path, optimize=True)


def save_map(path: Path) -> None:
    """The simulator's whole torus, which no model is ever shown at once."""
    from PIL import Image

    picture = Image.fromarray(colours(map_picture(0)))
    picture.resize((picture.width * 3, picture.height * 3), Image.Resampling.NEAREST).save(path, optimize=True)


def report(world: ReferenceWorld, seeds: int, blocks: int) -> tuple[str, list[Walk]]:
    """The markdown and the walks it is about: `seeds` with random keys, then as many with keys held for long."""
    chance = np.random.default_rng(2024)
    actions = np.concatenate([chance.integers(0, len(ACTIONS), (seeds, blocks)), _held(chance, seeds, blocks)])
    walks = [play(world, seed, row) for seed, row in enumerate(actions)]
    parts = [
        f"{seeds} sessions of {blocks} blocks with random keys:", table(walks[:seeds]),
        f"{seeds} sessions of {blocks} blocks with keys held for long:", table(walks[seeds:]),
    ]  # fmt: skip
    around = laps(world)
    worst_db = min(db for *_, db in around)
    parts.append(
        f"Once around the torus ({MAP_TILES} blocks, one key held): {sum(r for _, r, _ in around)} of "
        f"{len(around)} laps end in the right place, the picture {worst_db:.1f} dB or better against the simulator's."
    )
    return "\n\n".join(parts), walks


def _held(chance: np.random.Generator, seeds: int, blocks: int) -> np.ndarray:
    actions = draw_actions(chance, seeds, blocks)
    for block in range(1, blocks):
        held = chance.random(seeds) < 0.85
        actions[held, block] = actions[held, block - 1]
    return actions


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--docs", type=Path, help="the docs folder to write into")
    parser.add_argument("--weights", default="")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--blocks", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    world = ReferenceWorld({"weights": args.weights})
    text, walks = report(world, args.seeds, args.blocks)
    text += f"\n\nOne session, one thread: {blocks_per_s(world):.1f} blocks of {BLOCK_FRAMES} frames a second."
    sys.stdout.write(text + "\n")
    if args.docs:
        page, images = args.docs / "reference-world.md", args.docs / "images"
        whole = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page.read_text(), flags=re.DOTALL)
        page.write_text(whole)
        save_map(images / "reference-map.png")
        save_strips([walks[i] for i in (0, 1, args.seeds, args.seeds + 1)], images / "reference-strips.png")


if __name__ == "__main__":
    main()
