"""The machine under a measurement: what must be equal for two numbers to be compared."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from blake3 import blake3

from worldline.kernel import backend as kernel_backend
from worldline.schema.canonical import canonical_json

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
GPUS = Path("/proc/driver/nvidia/gpus")
GIT_WAIT_S = 10.0
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Facts that a run can't change. None is *not known here*, never *none*."""

    cpu: str
    architecture: str
    cores: int
    """Those that this process may use."""
    memory_bytes: int
    kernel: str
    python: str
    torch: str | None
    governor: str | None
    accelerators: tuple[str, ...]
    commit: str | None
    """Of this program, with `+` where tracked files differ from it."""
    backend: str | None = None
    """What digests, copies and codes: a kernel in C, or `python`. Records from before it was noted have none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "accelerators", tuple(self.accelerators))  # JSON has lists only

    @property
    def digest(self) -> str:
        return blake3(canonical_json(asdict(self))).digest(DIGEST_BYTES).hex()


def fingerprint() -> Fingerprint:
    """Of the machine and the program that this runs on."""
    return Fingerprint(
        cpu=_cpu(),
        architecture=platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        python=platform.python_version(),
        torch=_version("torch"),
        governor=_text(GOVERNOR),
        accelerators=_accelerators(),
        commit=_commit(Path(__file__).resolve()),
        backend=kernel_backend().name,
    )


def _cpu() -> str:
    found = re.search(r"^(?:model name|Model|CPU part)\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return platform.processor() or "unknown" if found is None else found[1].strip()


def _accelerators() -> tuple[str, ...]:
    told = [_text(path) or "" for path in sorted(GPUS.glob("*/information"))]
    return tuple(found[1].strip() for text in told if (found := re.search(r"^Model:\s*(.+)$", text, re.MULTILINE)))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _commit(module: Path) -> str | None:
    """Of the checkout that has `module`; None where it is installed, or lies in a checkout of something else."""
    if _git(module.parent, "ls-files", "--error-unmatch", module.name) is None:
        return None
    commit = _git(module.parent, "rev-parse", "HEAD")
    changed = _git(module.parent, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None else commit + ("+" if changed != "" else "")


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_WAIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
