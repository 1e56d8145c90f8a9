"""`worldline open`: a new session."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import Shared, patience, show
from worldline.cli.values import contract_of, session_text
from worldline.worlds.options import options_of


def open_session(
    world: str,
    *,
    seed: int = 0,
    host: str | None = None,
    option: Annotated[tuple[str, ...], Parameter(name=["--option", "-o"], negative="")] = (),
    twin: Annotated[bool, Parameter(negative="")] = False,
    horizon: str | None = None,
    pause_bound: str | None = None,
    completion: str | None = None,
    readout_psnr_db_min: float | None = None,
    shared: Shared | None = None,
) -> int:
    """Opens a world at block 0 and prints the session's id.

    After success a host owns the session at epoch 1. After a failure nothing was opened.

    Parameters
    ----------
    world: str
        Its name; `worldline worlds` lists them.
    seed: int
        Equal seeds and actions give equal worlds.
    host: str
        Where; else the host with the most free memory.
    option: str
        An option of the world, as name=value; may be repeated.
    twin: bool
        Also open an equal session on another host, which never moves, and compare every block.
    horizon: str
        The paper's contract: pause bound and completion deadline both this long, like 400ms.
    pause_bound: str
        The longest pause that a move may cause.
    completion: str
        The longest time from a move's start to its commit.
    readout_psnr_db_min: float
        Makes the contract T1: a move to another plan is allowed if the pair was qualified at least this well.
    """
    shared = shared or Shared()
    contract = contract_of(horizon, pause_bound, completion, readout_psnr_db_min)
    doing = f"opening {world} (a host builds a world's engine for its first session; later ones are quick)"
    with shared.client() as client, patience(doing):
        session = client.open(world, seed=seed, host=host, options=options_of(option), contract=contract, twin=twin)
        facts = session.describe()
    return show(facts, session_text(facts), shared.json)
