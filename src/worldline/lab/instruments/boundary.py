"""`lab boundary`: one session continued from the same bytes on two plans.

Two processes compute from one cut with other kernels, threads or precision. Told are the first block and byte at which
their states differ, the first frame, PSNR over time, and whether a contract of tier T1 holds. The first block behind
the cut is left out of the readout: it shows the state that both were given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from worldline.errors import BadValue, Internal, TimedOut
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.instruments.figures import curves
from worldline.lab.instruments.play import actions_of, at_least, in_decibels, world_of
from worldline.lab.psnr import EQUAL_DB, psnr_db
from worldline.lab.report import Column, Listing, Report, Section, Standing, Words
from worldline.runtime.error_record import ErrorRecord
from worldline.worlds.options import options_of

ERROR = "error.json"
"""What a side writes in place of its results, where it could not go on."""
LEFT_OUT = 1
WAIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Computing:
    """How a process computes: variables that libraries read at their start, threads and torch's float32 products."""

    variables: Mapping[str, str]
    threads: int = 1
    precision: str = "highest"


PATHS: Mapping[str, Computing] = {
    "same plan": Computing({}),
    "aten default": Computing({"ATEN_CPU_CAPABILITY": "default"}),
    "aten avx2": Computing({"ATEN_CPU_CAPABILITY": "avx2"}),
    "two threads": Computing({"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}, threads=2),
    "onednn sse41": Computing({"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "bf16 products": Computing({"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}, precision="medium"),
}
"""The plan at hand is the source of every pair; against itself it must come out equal."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """From the plan at hand to another."""

    name: str
    facts_differ: list[str]
    first_block: int
    """The first block behind the cut after which the states differ, from 1; 0: none did."""
    first_entry: str
    first_byte: int | None
    """Within that entry; None where the states differ too late to have been kept, or not at all."""
    first_frame: int
    """From 1, counted from the cut; 0: none differs."""
    psnr_db: list[float]
    """A block, its worst frame; `EQUAL_DB` (100) is equal."""
    psnr_db_median: float
    psnr_db_worst: float
    """Both without the first block."""
    verdict: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """What `--json` prints."""

    world: str
    option: list[str]
    cut: int
    blocks: int
    bound_db: float
    crossings: list[Crossing]
    same_is_equal: bool
    """The plan at hand against itself: equal in every byte, so what the others show is theirs."""


def measure(  # noqa: PLR0913 - options given by name
    trial: Trial,
    *,
    world: str = "reference",
    option: tuple[str, ...] = (),
    path: tuple[str, ...] = (),
    cut: int = 8,
    blocks: int = 60,
    bound_db: float = 35.0,
    seed: int = 0,
) -> Boundary:
    """Continues a session on other plans, and tells where and how far it goes another way.

    Parameters
    ----------
    trial: Trial
        The run.
    world: str
        Any world that shows pictures.
    option: str
        An option of the world, as name=value; may be repeated.
    path: str
        A plan to cross to, by name; may be repeated. Without it all.
    cut: int
        The block after which the session is cut.
    blocks: int
        Behind it.
    bound_db: float
        What a contract of tier T1 asks of the pictures.
    seed: int
        Of the world and of the player's actions.
    """
    unknown = sorted(set(path) - set(PATHS))
    if unknown:
        raise BadValue(f"there is no plan {unknown[0]!r}; there are {', '.join(PATHS)}")
    in_decibels("bound_db", bound_db)
    built = world_of(world, option)
    if built.readout.kind != "image":
        raise BadValue(f"world {world} shows no pictures, and tier T1 is a bound on pictures")
    actions = actions_of(built, seed, at_least("cut", cut, 1) + at_least("blocks", blocks, LEFT_OUT + 1))
    request = {"world": world, "options": options_of(option), "seed": seed, "actions": actions, "cut": cut}
    crossings = []
    with TemporaryDirectory(dir=trial.folder, prefix="sides-") as made:
        folder = Path(made)
        source = _continue(folder, "source", PATHS["same plan"], request)
        for name in dict.fromkeys(("same plan", *(path or PATHS))):
            target = _continue(folder, name.replace(" ", "-"), PATHS[name], request)
            crossings.append(_compare(name, source, target, bound_db))
            trial.telemetry.check()
            trial.say(f"{name}: {crossings[-1].verdict}")
    same = crossings[0]
    return Boundary(
        world, list(option), cut, blocks, bound_db, crossings, not same.first_block and not same.first_frame
    )


@dataclass(frozen=True, slots=True)
class _Side:
    frames: np.ndarray
    facts: dict[str, str]
    blocks: list[dict[str, str]]
    early: dict[str, np.ndarray]


def _continue(folder: Path, name: str, path: Computing, request: dict[str, Any]) -> _Side:
    own = folder / f"side-{name}"
    own.mkdir()
    asked = request | {"folder": str(own), "cut_file": str(folder / "cut.npz")}
    asked |= {"threads": path.threads, "precision": path.precision}
    (own / "request.json").write_text(json.dumps(asked))
    command = [sys.executable, "-m", "worldline.lab.instruments.boundary_child", str(own / "request.json")]
    environment = os.environ | dict(path.variables)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=WAIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimedOut(f"the side {name!r} did not end within {WAIT_S:g} s", side=name) from None
    if done.returncode:
        said = own / ERROR
        if said.exists():
            raise msgspec.json.decode(said.read_bytes(), type=ErrorRecord).to_error(side=name)
        raise Internal(f"the side {name!r} ended: {done.stderr[-600:]}", side=name)
    told = json.loads((own / "digests.json").read_text())
    with np.load(own / "early.npz") as early:
        kept = {member: early[member] for member in early.files}
    return _Side(np.load(own / "frames.npy"), told["facts"], told["blocks"], kept)


def _compare(name: str, source: _Side, target: _Side, bound_db: float) -> Crossing:
    facts = sorted(key for key in source.facts | target.facts if source.facts.get(key) != target.facts.get(key))
    block, entry, byte = _first_byte(source, target)
    frames = [one for blocks in zip(source.frames, target.frames, strict=True) for one in zip(*blocks, strict=True)]
    first = next((at for at, (one, other) in enumerate(frames, 1) if not np.array_equal(one, other)), 0)
    decibels = [
        round(min(psnr_db(one, other) for one, other in zip(ours, theirs, strict=True)), 3)
        for ours, theirs in zip(source.frames, target.frames, strict=True)
    ]
    shown = decibels[LEFT_OUT:]
    below = next((at for at, db in enumerate(shown, LEFT_OUT + 1) if db < bound_db), 0)
    equal = not block and not first
    verdict = "T0 holds: equal bytes" if equal else f"T1 fails at block {below}" if below else "T1 holds"
    return Crossing(name, facts, block, entry, byte, first, decibels, median(shown), min(shown), verdict)


def _first_byte(source: _Side, target: _Side) -> tuple[int, str, int | None]:
    for block, (ours, theirs) in enumerate(zip(source.blocks, target.blocks, strict=True)):
        entry = next((path for path in ours | theirs if ours.get(path) != theirs.get(path)), None)
        if entry is not None:
            member = f"{block}:{entry.replace('/', '|')}"
            one, other = source.early.get(member), target.early.get(member)
            if one is None or other is None or one.shape != other.shape:
                return block + 1, entry, None
            return block + 1, entry, int(np.flatnonzero(one != other)[0])
    return 0, "", None


def text(found: Boundary) -> str:
    """A line a plan."""
    lines = [f"{found.world}, cut after block {found.cut}, {found.blocks} blocks on, against the plan at hand"]
    for each in found.crossings:
        where = f"block {each.first_block}, {each.first_entry}, byte {each.first_byte}" if each.first_block else "none"
        decibels = (
            "equal" if each.psnr_db_worst >= EQUAL_DB else f"{each.psnr_db_median:.1f}/{each.psnr_db_worst:.1f} dB"
        )
        lines.append(
            f"{each.name:<14} differs first: {where}; frame {each.first_frame or 'none'}; {decibels}; {each.verdict}"
        )
    return "\n".join(lines)


def report(found: Boundary) -> Report:
    """A row a plan, and PSNR over blocks."""
    run, measured = "boundary", Standing.MEASURED
    columns = tuple(
        Column(title, key, measured)
        for title, key in (
            ("plan", "name"), ("first block", "first_block"), ("entry", "first_entry"), ("byte", "first_byte"),
            ("first frame", "first_frame"), ("median, dB", "psnr_db_median"), ("worst, dB", "psnr_db_worst"),
            ("verdict", "verdict"),
        )
    )  # fmt: skip
    said = (
        f"World {{{run}/world}}, cut after block {{{run}/cut}}, {{{run}/blocks}} blocks; bound {{{run}/bound_db}} dB."
    )
    lines = curves(("over-time", "Pictures of two plans"), f"{run}/crossings", "psnr_db",
                   "PSNR, dB; 100: equal (measured)", f"{run}/bound_db")  # fmt: skip
    parts = (Words(said), Listing("Plans", f"{run}/crossings", columns), lines)
    return Report(run, "One session on two plans", (Section("From the same bytes", parts),))


BOUNDARY = Experiment(measure, report, text, lambda found: found.same_is_equal)
