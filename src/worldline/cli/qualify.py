"""`worldline qualify`: a pair of plans, for contracts of tier T1."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import Shared, progress, show
from worldline.lab.qualify import BLOCKS
from worldline.lab.qualify import qualify as measure
from worldline.worlds.options import options_of


def qualify(
    source: str,
    target: str,
    *,
    world: str = "reference",
    blocks: int = BLOCKS,
    seed: int = 0,
    option: Annotated[tuple[str, ...], Parameter(name=["--option", "-o"], negative="")] = (),
    shared: Shared | None = None,
) -> int:
    """Measures how far the same session's pictures drift apart on two hosts of different plans.

    After success the ordered pair of plans is on record, and a T1 contract whose bound the worst frame meets may move
    from one to the other. After a failure nothing is recorded. Both sessions are closed either way.

    Parameters
    ----------
    source: str
        Host whose plan a session would come from.
    target: str
        Host whose plan it would go on under.
    world: str
        A world that shows pictures.
    blocks: int
        How many to compare.
    seed: int
        Of the world and of the actions.
    option: str
        An option of the world, as name=value; may be repeated.
    """
    shared = shared or Shared()
    with shared.client() as client:
        found = measure(client, world, (source, target), progress, blocks=blocks, seed=seed, options=options_of(option))
    differs = "never" if found.first_differing_block is None else f"at block {found.first_differing_block}"
    text = (
        f"qualification {found.id}: {found.world}, {found.blocks} blocks, first frame that differs: {differs}\n"
        f"PSNR median {found.psnr_db_median:.1f} dB, worst {found.psnr_db_worst:.1f} dB"
    )
    return show(found, text, shared.json)
