"""Coverage-guided fuzzing of every parser (`worldline.testing.fuzz`): each target for its share of the time.

    python scripts/fuzz.py --seconds 60 [TARGET ...]

Needs atheris, an optional package that has no build for every Python: without it this says so and ends with code 0.
A finding is written to --findings, and its input is what the target is run with again: `fuzz.py --again FILE TARGET`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

FINDINGS = Path("build/fuzz")
INPUT_BYTES_MAX = 1 << 16
STUCK_S = 20
"""One input may take so long; a slower one is a finding."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="all of them where none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--findings", type=Path, default=FINDINGS)
    parser.add_argument("--again", type=Path, help="run one target on this input, without a fuzzer")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    words, rest = parser.parse_known_args()
    if words.child:
        return _fuzz(words.targets[0], [*words.targets[1:], *rest])
    from worldline.testing.fuzz import TARGETS

    if words.again is not None:
        TARGETS[words.targets[0]].run(words.again.read_bytes())
        print(f"{words.targets[0]} takes {words.again}")
        return 0
    if find_spec("atheris") is None:
        print("skipped: atheris is not installed (pip install atheris)")
        return 0
    names = words.targets or sorted(TARGETS)
    words.findings.mkdir(parents=True, exist_ok=True)
    failed = [name for name in names if not _run(name, max(1, words.seconds // len(names)), words.findings)]
    print(f"findings in {', '.join(failed)}: see {words.findings}" if failed else f"no findings in {', '.join(names)}")
    return 1 if failed else 0


def _run(name: str, seconds: int, findings: Path) -> bool:
    """A process of its own: the fuzzer ends the process it runs in. False where it found something."""
    from worldline.testing.fuzz import TARGETS

    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as corpus:
        for number, seed in enumerate(TARGETS[name].seeds):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        limits = [f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-timeout={STUCK_S}"]
        told = ["-print_final_stats=1", f"-artifact_prefix={findings.resolve()}/{name}-"]
        done = subprocess.run([sys.executable, __file__, "--child", name, corpus, *limits, *told], check=False)
    return done.returncode == 0


def _fuzz(name: str, arguments: list[str]) -> int:
    import atheris

    with atheris.instrument_imports(include=["worldline"]):
        from worldline.testing.fuzz import TARGETS
    atheris.Setup([__file__, *arguments], TARGETS[name].run)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
