"""`worldline bench`: speed as ratios taken in one run, each with the samples behind it and the machine's limit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from worldline.cli.measure_command import command_of
from worldline.cli.output import print_json, progress
from worldline.errors import BadValue
from worldline.lab.bench.frame import BenchResult, Run, find, measure
from worldline.lab.bench.samples import ROUNDS_MIN
from worldline.lab.bench.table import BENCHES

PREFIX = "bench_"
VOID = 1


@Parameter(name="*")
@dataclass(frozen=True)
class Printing:
    """Options of every bench."""

    rounds: int = ROUNDS_MIN
    """How often each arm is measured; 5 or more."""
    out: Path | None = None
    """Also keep the result here as JSON, and the run's telemetry beside it as FILE.telemetry.jsonl."""
    json: Annotated[bool, Parameter(negative="")] = False
    """Print one JSON object."""


def __getattr__(attribute: str) -> Callable[..., int]:
    """The command of bench NAME is `bench_NAME`: the bench's own options, then those of every bench."""
    name = attribute.removeprefix(PREFIX)
    if not attribute.startswith(PREFIX) or name not in BENCHES:
        raise AttributeError(attribute)

    def run(options: dict[str, object], printing: Printing) -> int:
        return _run(name, options, printing)

    return command_of(find(name), Printing(), run)


def _run(name: str, options: dict[str, object], printing: Printing) -> int:
    with tempfile.TemporaryDirectory(prefix=f"worldline-bench-{name}-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        record = Path(folder) / "telemetry.jsonl" if printing.out is None else _fresh(printing.out)
        result = measure(name, find(name), options, Run(work, record, printing.rounds, progress))
    if printing.out is not None:
        printing.out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    if printing.json:
        print_json(result)
    else:
        _show(result)
    return 0 if result.void is None else VOID


def _fresh(out: Path) -> Path:
    """Where the run's record goes. Raises `BadValue` where nothing can be written."""
    record = out.with_name(f"{out.name}.telemetry.jsonl")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        record.unlink(missing_ok=True)
        record.touch()
        record.unlink()
    except OSError as error:
        raise BadValue(f"{out} cannot be written: {error.strerror}") from error
    return record


def _show(result: BenchResult) -> None:
    console = Console(highlight=False)
    console.print(f"{result.name}: {result.ratio:.3f}  {result.ratio_is}")
    table = Table("arm", f"median {result.unit}", "samples, in order")
    for arm, figures in result.samples.items():
        table.add_row(arm, _figure(result.medians[arm]), " ".join(map(_figure, figures)))
    console.print(table)
    if result.peers:
        peers = Table("against", "times as fast")
        for peer in result.peers:
            peers.add_row(peer.name, f"{peer.ratio:.3f}")
        console.print(peers)
    if result.rows:
        rows = Table(*result.rows[0])
        for row in result.rows:
            rows.add_row(*(_figure(cell) if isinstance(cell, float) else str(cell) for cell in row.values()))
        console.print(rows)
    console.print(
        f"memcpy {result.memcpy_median_bytes_per_s / 1e9:.2f} GB/s, spread {result.memcpy_spread:.0%}; "
        f"n = {result.n}; machine {result.fingerprint}"
    )
    for note in result.notes:
        console.print(f"note: {note}")
    if result.void is not None:
        console.print(f"VOID: {result.void}")


def _figure(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.3e}"
