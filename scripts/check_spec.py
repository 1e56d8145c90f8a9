#!/usr/bin/env python3
"""Checks spec/handover.pml with spin, exhaustively: what must hold, and that each broken shape is seen to fail.

`check_spec.py` runs every case, `check_spec.py NAME...` some of them. Needs spin and gcc, one core and 2 GB at most.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).parents[1] / "spec" / "handover.pml"
TOOLS = ("spin", "gcc")
INSTALL = "scripts/ensure_spin.sh installs spin and gcc (Debian: apt-get install spin gcc libc6-dev)"
MEMORY_MB = 2000
DEPTH_MAX = 10_000
WAIT_S = 110.0

_VIOLATED = re.compile(r"assertion violated \(*(\w+)\|\|")
_NUMBERS = {
    "states": re.compile(r"^\s*(\d+) states, stored", re.MULTILINE),
    "depth": re.compile(r"depth reached (\d+)"),
    "memory": re.compile(r"^\s*([\d.]+)\s+total actual memory usage", re.MULTILINE),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One model and what spin must say of it: `violates` None, it holds; else the property that must fail."""

    name: str
    defines: tuple[str, ...]
    violates: str | None = None
    liveness: bool = False

    @property
    def compiler(self) -> tuple[str, ...]:
        """A broken shape is searched by breadth, so that its counterexample is a shortest one."""
        if self.liveness:
            return ("-O2", "-DNOFAIR", "-DNOREDUCE")
        if self.violates is None:
            return ("-O2", "-DSAFETY", "-DNOREDUCE")
        return ("-O0", "-DSAFETY", "-DBFS")  # to optimise takes longer than to find it


def _broken(shape: str, violates: str, *more: str) -> Case:
    return Case(shape.lower().replace("_", "-"), (shape, "N=1", "CRASHES=0", *more), violates)


CASES: tuple[Case, ...] = (
    Case("copied", ("REST", "N=2", "CRASHES=1")),
    Case("handed-over", ("HANDED", "REST", "N=2", "CRASHES=1")),
    Case("copied-finally", ("LIVENESS", "N=1", "CRASHES=1"), liveness=True),
    Case("handed-over-finally", ("HANDED", "LIVENESS", "N=1", "CRASHES=1"), liveness=True),
    # The three shapes that were rejected.
    _broken("RESUME_ON_SILENCE", "never_two"),
    _broken("NEVER_RESUME", "comes_to_rest", "REST"),
    Case("never-resume-finally", ("NEVER_RESUME", "LIVENESS", "N=1", "CRASHES=0"), "finally_one", liveness=True),
    _broken("LEASE", "never_two"),
    # What else the protocol can't do without.
    _broken("OWN_TROUBLE", "never_two"),
    _broken("FORGETFUL", "comes_to_rest", "REST"),
    _broken("UNORDERED_READ", "thawed_after_commit"),
    _broken("DIGEST_SKIPPED", "only_verified"),
    _broken("NUMBER_FORGOTTEN", "exactly_once"),
    _broken("LOST_UNFENCED", "lets_go", "HANDED"),
    _broken("EXHAUSTED", "honest"),
    # The way back.
    _broken("RETURN_ON_SILENCE", "never_two"),
    _broken("TOLD_EARLY", "never_seen"),
)
ROWS = (
    Case("rows-copied", ("ROWS", "N=1", "CRASHES=1")),
    Case("rows-handed-over", ("HANDED", "ROWS", "N=1", "CRASHES=1")),
)
"""The same models, in which spin tells which statements are never reached."""
WIDE = (
    Case("copied-wide", ("REST", "N=2", "CRASHES=2")),
    Case("handed-over-wide", ("HANDED", "REST", "N=2", "CRASHES=2")),
)
"""Wider bounds, for a person who has changed the protocol: `check_spec.py copied-wide handed-over-wide`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What spin said. `trail`: the counterexample's steps, as lines of the model. `unreached`: lines of the model."""

    case: Case
    violated: str | None
    states: int
    depth: int
    memory_mb: float
    seconds: float
    trail: tuple[str, ...]
    unreached: frozenset[int]

    @property
    def as_expected(self) -> bool:
        return self.violated == self.case.violates

    def line(self) -> str:
        said = "holds" if self.violated is None else f"violates {self.violated}"
        mark = "ok  " if self.as_expected else "FAIL"
        return (
            f"{mark} {self.case.name:<22} {said:<30} {self.states:>9} states  depth {self.depth:>3}  "
            f"{self.memory_mb:>6.0f} MB  {self.seconds:>5.1f} s"
        )


def missing_tools() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def check(case: Case) -> Verdict:
    """Generates, compiles and runs the checker of one case. Raises `RuntimeError` where it comes to no verdict."""
    defines = [f"-D{define}" for define in case.defines]
    with tempfile.TemporaryDirectory(prefix="spec-") as name:
        folder = Path(name)
        (folder / MODEL.name).write_text(MODEL.read_text(encoding="utf-8"), encoding="utf-8")
        _run(["spin", *defines, "-a", MODEL.name], folder)
        _run(["gcc", "-w", f"-DMEMLIM={MEMORY_MB}", *case.compiler, "-o", "pan", "pan.c"], folder)
        began_s = time.monotonic()
        said = _run(["./pan", f"-m{DEPTH_MAX}", *(["-a"] if case.liveness else [])], folder)
        seconds = time.monotonic() - began_s
        violated = _violated(said, case)
        if "Search not completed" in said and violated is None:
            raise RuntimeError(f"{case.name}: the search was not completed\n{said}")
        found = {key: pattern.search(said) for key, pattern in _NUMBERS.items()}
        numbers = {key: float(match[1]) if match else 0.0 for key, match in found.items()}
        return Verdict(
            case=case,
            violated=violated,
            states=int(numbers["states"]),
            depth=int(numbers["depth"]),
            memory_mb=numbers["memory"],
            seconds=seconds,
            trail=() if violated is None else _trail(defines, folder),
            unreached=frozenset(int(line) for line in re.findall(r"\.pml:(\d+), state", said)),
        )


def _violated(said: str, case: Case) -> str | None:
    if "errors: 0" in said:
        return None
    match = _VIOLATED.search(said)
    if match:
        return match[1]
    if case.liveness and ("acceptance cycle" in said or "accept" in said):
        return "finally_one"
    raise RuntimeError(f"{case.name}: spin found something unforeseen\n{said}")


def _trail(defines: Sequence[str], folder: Path) -> tuple[str, ...]:
    said = _run(["spin", *defines, "-t", "-p", MODEL.name], folder)
    source = MODEL.read_text(encoding="utf-8").splitlines()
    steps: list[str] = []
    for match in re.finditer(rf"^\s*\d+:\s+proc\s+\d+ \((\w+):\d+\) {re.escape(MODEL.name)}:(\d+)", said, re.MULTILINE):
        step = f"{match[1]}: {source[int(match[2]) - 1].strip()}"
        if not steps or steps[-1] != step:
            steps.append(step)
    return tuple(steps)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=WAIT_S)
    if done.returncode != 0 and command[0] != "./pan":
        raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def main(names: list[str]) -> int:
    missing = missing_tools()
    if missing:
        print(f"error: {' and '.join(missing)} not found; {INSTALL}", file=sys.stderr)
        return 2
    cases = [case for case in (*CASES, *ROWS, *WIDE) if case.name in names] if names else list(CASES)
    failed = 0
    for case in cases:
        verdict = check(case)
        print(verdict.line(), flush=True)
        if not verdict.as_expected or names:
            print("".join(f"       {step}\n" for step in verdict.trail), end="")
        failed += not verdict.as_expected
    print(f"{len(cases)} cases, {failed} not as expected")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
