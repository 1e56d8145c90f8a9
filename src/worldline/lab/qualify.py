"""Qualifies a pair of plans for tier T1: how far apart the same session's pictures drift on two kernel plans.

Two plans compute other bits from equal state, so a move between them keeps the state exact but not the future. How
much that shows is measured beforehand: one session is opened on each of two hosts with equal seed and actions, and
the frames are compared. The first block is left out, since it shows the start and not the drift (paper, section 6.1).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from statistics import median

import msgspec
import numpy as np

from worldline.errors import BadValue
from worldline.lab.psnr import psnr_db
from worldline.schema.plan import Qualification
from worldline.service.client import Client, SessionHandle
from worldline.service.verbs import StepBlock
from worldline.worlds.protocol import OptionValue

BLOCKS = 60
BLOCKS_LEFT_OUT = 1


def qualify(  # noqa: PLR0913 - options given by name
    client: Client,
    world: str,
    hosts: tuple[str, str],
    say: Callable[[str], None],
    *,
    blocks: int = BLOCKS,
    seed: int = 0,
    options: Mapping[str, OptionValue] | None = None,
) -> Qualification:
    """Measures the ordered pair of plans of `hosts` (source, target) and records it with the controller.

    Both sessions are closed afterwards, whatever happens. Raises `BadValue` for a world without pictures.
    """
    if blocks <= BLOCKS_LEFT_OUT:
        raise BadValue(f"a qualification takes more than {BLOCKS_LEFT_OUT} block, not {blocks}")
    sessions = []
    try:
        for host in hosts:
            sessions.append(client.open(world, seed=seed, options=options, host=host))  # noqa: PERF401 - closed below
        found = _measure(world, sessions[0], sessions[1], blocks, random.Random(seed), say)
    finally:
        for session in sessions:
            session.close()
    client.record_qualification(found)
    return found


def _measure(
    world: str,
    source: SessionHandle,
    target: SessionHandle,
    blocks: int,
    draw: random.Random,
    say: Callable[[str], None],
) -> Qualification:
    facts = source.describe()
    if facts.readout.kind != "image":
        raise BadValue(f"world {world} shows no pictures, and tier T1 is a bound on pictures")
    decibels: list[float] = []
    first_differing: int | None = None
    for number in range(1, blocks + 1):
        action = draw.randrange(len(facts.actions))
        (ours,) = source.step(action, frames="raw")
        (theirs,) = target.step(action, frames="raw")
        if first_differing is None and ours.digest != theirs.digest:
            first_differing = number
        if number > BLOCKS_LEFT_OUT:
            decibels += [psnr_db(a, b) for a, b in zip(_pictures(ours), _pictures(theirs), strict=True)]
        if number % 10 == 0:
            say(f"{number} of {blocks} blocks, worst frame {min(decibels):.1f} dB")
    plans = [session.describe().plan for session in (source, target)]
    fields = {
        "source_plan": plans[0],
        "target_plan": plans[1],
        "world": world,
        "blocks": blocks,
        "psnr_db_median": round(median(decibels), 3),
        "psnr_db_worst": round(min(decibels), 3),
        "first_differing_block": first_differing,
    }
    name = hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()[:16]
    return msgspec.convert({"id": f"q-{name}", **fields}, Qualification)


def _pictures(block: StepBlock) -> list[np.ndarray]:
    """The raw frames of a block, [height, width, 3] each."""
    shape = (block.height, block.width, 3)
    return [np.frombuffer(frame, np.uint8).reshape(shape) for frame in block.frames]
