"""Install torch into the environment of the interpreter that runs this, without gigabytes of CUDA where no GPU is.

pip takes whichever build of torch its indexes offer. On x86-64 that may be a CUDA build with gigabytes of libraries;
an index of CPU builds, or a wheel that pip finds locally, gives a build of a few hundred megabytes. On aarch64 the
ordinary index carries CPU builds for some releases and CUDA builds for others, and the newest CPU build is found below.
So pip is asked first what it would take, without taking it, and the plan is judged:

    torch in range is already installed      -> nothing to do
    the plan holds no CUDA package           -> install it
    it does, and there is a GPU              -> install it
    it does, and WORLDLINE_ALLOW_CUDA=1      -> install it
    it does                                  -> look for an older release with a CPU build; with none, refuse

Only the standard library is used: this runs before anything else is installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SERIES = tuple(f"2.{minor}" for minor in range(13, 5, -1))  # newest first; the range of the extra `torch`
CANDIDATES = ("torch==2.13.0", *(f"torch=={series}.*" for series in SERIES[1:]))
EXIT_OK, EXIT_PIP_FAILED, EXIT_REFUSED = 0, 1, 3

CUDA_PACKAGE = re.compile(r"^(nvidia-|cuda-|triton$|pytorch-triton)")
CUDA_LOCAL_VERSION = re.compile(r"\+cu\d+")


@dataclass(frozen=True)
class Package:
    """One line of a pip plan."""

    name: str
    version: str

    @property
    def is_cuda(self) -> bool:
        name = re.sub(r"[-_.]+", "-", self.name).lower()
        return bool(CUDA_PACKAGE.match(name) or (name == "torch" and CUDA_LOCAL_VERSION.search(self.version)))


Plan = tuple[Package, ...]


@dataclass(frozen=True)
class Install:
    """Take exactly this release."""

    requirement: str


@dataclass(frozen=True)
class Refuse:
    """Take nothing; `reasons` holds a line for each candidate that was asked about."""

    reasons: tuple[str, ...]


def in_range(version: str) -> bool:
    """Whether a release of torch is one that the extra `torch` allows."""
    return any(version == series or version.startswith(f"{series}.") for series in SERIES)


def plan_of_report(report: str) -> Plan:
    """The packages named by the JSON that `pip install --report` writes."""
    entries = json.loads(report)["install"]
    return tuple(Package(entry["metadata"]["name"], entry["metadata"]["version"]) for entry in entries)


def decide(ask: Callable[[str], Plan | None], *, cuda_welcome: bool) -> Install | Refuse:
    """The first candidate whose plan may be taken.

    `ask` gives the plan for a requirement, or None where pip finds no release for it. Pure apart from `ask`, which is
    not called again once a candidate is accepted.
    """
    reasons = []
    for requirement in CANDIDATES:
        plan = ask(requirement)
        torch = next((package for package in plan or () if package.name.lower() == "torch"), None)
        if plan is None or torch is None:
            reasons.append(f"{requirement}: not offered, or at odds with the pins")
            continue
        cuda = [package.name for package in plan if package.is_cuda]
        if not cuda or cuda_welcome:
            return Install(f"torch=={torch.version}")
        reasons.append(f"{requirement}: a CUDA build ({len(cuda)} packages such as {cuda[0]})")
    return Refuse(tuple(reasons))


def gpu_present() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def installed_version() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def pip(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *arguments]


def ask_pip(requirement: str, constraints: Sequence[str]) -> Plan | None:
    """What pip would take for `requirement`; nothing is installed, and only metadata is read."""
    print(f"install_torch: asking pip about {requirement}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        arguments = ["--dry-run", "--ignore-installed", "--quiet", "--quiet", "--report", str(report), *constraints]
        asked = subprocess.run(pip(*arguments, requirement), capture_output=True, text=True, check=False)
        if asked.returncode != 0:
            if "No matching distribution" not in asked.stderr and "conflict" not in asked.stderr:
                print(asked.stderr, file=sys.stderr)
            return None
        return plan_of_report(report.read_text())


def refusal(refuse: Refuse) -> str:
    asked = "\n".join(f"  {reason}" for reason in refuse.reasons)
    return (
        f"install_torch: no CPU build of torch for Python {platform.python_version()} on {platform.machine()},"
        f" and no GPU is present.\n{asked}\n"
        "A CUDA build would download gigabytes that this machine cannot use, so nothing was installed.\n"
        "Go on by one of:\n"
        "  PIP_EXTRA_INDEX_URL=<an index with CPU builds of torch> make ...   (the PyTorch project runs one)\n"
        "  PIP_FIND_LINKS=<a folder with a CPU wheel of torch> make ...\n"
        "  WORLDLINE_ALLOW_CUDA=1 make ...                                    (takes the CUDA build all the same)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-c", "--constraint", action="append", default=[], help="constraints file handed to pip")
    constraints = [word for path in parser.parse_args().constraint for word in ("-c", path)]

    version = installed_version()
    if version is not None and in_range(version):
        print(f"install_torch: torch {version} is there", file=sys.stderr)
        return EXIT_OK

    allowed = os.environ.get("WORLDLINE_ALLOW_CUDA") == "1"
    verdict = decide(lambda requirement: ask_pip(requirement, constraints), cuda_welcome=allowed or gpu_present())
    if isinstance(verdict, Refuse):
        print(refusal(verdict), file=sys.stderr)
        return EXIT_REFUSED
    print(f"install_torch: installing {verdict.requirement}", file=sys.stderr, flush=True)
    installed = subprocess.run(pip(*constraints, verdict.requirement), check=False)
    return EXIT_OK if installed.returncode == 0 else EXIT_PIP_FAILED


if __name__ == "__main__":
    sys.exit(main())
