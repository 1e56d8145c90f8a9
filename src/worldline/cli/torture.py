"""`worldline torture`: what happens when everything goes wrong."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import print_json, progress
from worldline.testing.torture import BAD, Torture
from worldline.testing.torture import torture as torture_by_number

BROKEN = 1


def torture(
    *,
    histories: int = 500,
    crashes: int = 30,
    seed: int = 1,
    jobs: int = 1,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Breaks fleets in every way that is known, and counts what must not happen.

    Simulated histories first: the real machines on a clock of their own, with lost, late and damaged messages, full
    disks and processes that end anywhere. Then crash runs: real processes, killed or stopped in the middle of a move,
    a park or a resume. Exit code 0 means that no world was lost without its host, none had two owners, no byte was
    wrong, nothing hung and nothing was left behind. Each bad one is printed with the command that replays it.

    Parameters
    ----------
    histories: int
        Simulated ones, of the seeds SEED, SEED + 1 ...
    crashes: int
        Runs of real processes.
    seed: int
        Of the first of each.
    jobs: int
        Processes that simulate.
    json: bool
        Print one JSON object.
    """
    result = torture_by_number(histories, crashes, seed, jobs, progress)
    if json:
        print_json(result)
    else:
        print(_text(result))
    return 0 if result.good else BROKEN


def _text(result: Torture) -> str:
    lines = [
        f"{result.histories} histories in {result.histories_s} s, {result.crashes} crash runs in {result.crashes_s} s",
        f"{result.moves} moves, {result.faults_planted} faults planted",
        ", ".join(f"{count} {getattr(result, count)}" for count in BAD),
        f"died with their hosts {result.died_with_host}, images damaged by the disk {result.damaged_images}",
    ]
    lines += [f"again: {replay}" for replay in result.replays]
    return "\n".join(lines)
