"""`worldline prove`: that moving changes nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import print_json, progress
from worldline.cli.values import mode_of
from worldline.errors import BadValue
from worldline.lab.prove import Challenge, Proof
from worldline.lab.prove import prove as prove_by_experiment
from worldline.units import format_bytes
from worldline.worlds.options import options_of
from worldline.worlds.protocol import OptionValue

NOT_IDENTICAL = 1


def prove(
    *,
    world: str = "reference",
    moves: int = 4,
    blocks: int = 30,
    transport: str = "tcp",
    mode: str = "precopy",
    bytes: str | None = None,
    option: Annotated[tuple[str, ...], Parameter(name=["--option", "-o"], negative="")] = (),
    seed: int = 0,
    sabotage: Annotated[bool, Parameter(negative="")] = False,
    keep: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Moves a playing session between real processes and compares it with a twin that never moved.

    Every block's frames are compared by bytes while both play. Then the process that the last move came from is
    ended, the world goes on, and the whole state of both is compared by bytes. Exit code 0 means that all were equal,
    all receipts hold, and the run's telemetry has no gap.

    Parameters
    ----------
    world: str
        reference, load, lm, or another that is installed.
    moves: int
        How many.
    blocks: int
        At least so many; a long move is played through.
    transport: str
        tcp or shm.
    mode: str
        precopy or freeze.
    bytes: str
        The size of a load world's state, like 256MB.
    option: str
        An option of the world, as name=value; may be repeated.
    seed: int
        Of the world and of the player's actions.
    sabotage: bool
        Flip one random live bit at the end: the proof must fail, and shows that it can.
    keep: Path
        A folder for logs, images and receipts, made where it is not there; else they are removed.
    json: bool
        Print one JSON object.
    """
    challenge = Challenge(
        world=world,
        moves=moves,
        blocks=blocks,
        transport=transport,
        mode=mode_of(mode),
        seed=seed,
        options=_options(world, bytes, option),
        sabotage=sabotage,
    )
    if keep is not None:
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        proof = prove_by_experiment(challenge, keep.resolve(), progress)
    else:
        with tempfile.TemporaryDirectory(prefix="worldline-prove-") as folder:
            proof = prove_by_experiment(challenge, Path(folder), progress)
    if json:
        print_json(proof)
    else:
        print(_text(proof))
    return 0 if proof.identical else NOT_IDENTICAL


def _options(world: str, size: str | None, pairs: tuple[str, ...]) -> dict[str, OptionValue]:
    options = options_of(pairs)
    if size is not None:
        if world != "load":
            raise BadValue(f"--bytes is the size of a load world's state; {world} has its own")
        options["bytes"] = size
    return options


def _text(proof: Proof) -> str:
    machine = proof.telemetry.machine
    lines = [
        _verdict(proof),
        f"world      {proof.world}, state {format_bytes(proof.state_bytes)}",
        f"moves      {proof.moves} by {proof.mode} over {proof.transport}, {format_bytes(proof.bytes_moved)} in all",
        f"blocks     {proof.blocks}, {proof.block_ms_median:.1f} ms each (median between moves)",
        f"pause ms   {_row(proof.pause_ms)}",
        f"gap ms     {_row(proof.gap_ms)}  (last block of one host to first of the next, at the player)",
        f"receipts   {proof.receipts_verified} of {len(proof.receipts)} verified offline by the second reader",
        f"source     {'had ended before the state was compared' if proof.source_exited else 'STILL RUNNING'}",
        f"machine    {proof.telemetry.fingerprint}: {machine.cpu}, {machine.cores} cores, Linux {machine.kernel}",
        f"watched    {proof.telemetry.samples} samples, at most {proof.telemetry.silence_s_max:.1f} s apart",
    ]
    lines += [f"differs    {difference}" for difference in proof.differences]
    if proof.sabotage is not None:
        caught = "caught" if proof.sabotage.caught else "NOT CAUGHT"
        lines.append(f"sabotage   bit {proof.sabotage.bit} (modulo the state's) flipped: {caught}")
    return "\n".join(lines)


def _verdict(proof: Proof) -> str:
    if proof.telemetry.void is not None:
        return f"VOID: {proof.telemetry.void}"
    return "identical: every frame and every byte of state" if proof.identical else "NOT IDENTICAL"


def _row(values: list[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)
