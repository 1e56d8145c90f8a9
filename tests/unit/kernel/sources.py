"""The kernel's source, copied and built as an install does it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import worldline.kernel

ROOT = Path(__file__).parents[3]
PACKAGE = Path(worldline.kernel.__file__).parents[1]
SOURCE = PACKAGE / "kernel"
COMPILER = shutil.which("cc")


def copy_source(folder: Path) -> Path:
    """The part of the package that the kernel needs, as it is before anything is built; where `worldline` is."""
    source = folder / "src"
    (source / "worldline").mkdir(parents=True)
    for name in ("__init__.py", "errors.py"):
        shutil.copy(PACKAGE / name, source / "worldline" / name)
    shutil.copytree(PACKAGE / "kernel", source / "worldline" / "kernel", ignore=shutil.ignore_patterns("*.so", "*.pyc"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return source


def build(folder: Path, compiler: str) -> list[Path]:
    """Builds as an install does, warnings being errors; the library, if it came out."""
    environment = os.environ | {"CC": compiler, "CFLAGS": "-Wall -Wextra -Werror"}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True, timeout=120)
    return list((folder / "src" / "worldline" / "kernel").glob("_kernel*.so"))
