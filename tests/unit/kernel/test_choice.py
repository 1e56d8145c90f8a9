"""Which kernel a process uses, and that an install without a compiler is one that says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unit.kernel.sources import build
from worldline.errors import MissingExtra
from worldline.kernel.native import ABI, Native

ASK = "from worldline.kernel import backend; told = backend(); print(told.name, '|', told.reason)"


def ask(source: Path, choice: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(source), "WORLDLINE_KERNEL": choice}
    return subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_python_is_used_where_it_is_asked_for(source: Path) -> None:
    assert ask(source, "python").stdout == "python | WORLDLINE_KERNEL asks for python\n"


def test_without_a_build_python_is_used_and_the_reason_is_told(source: Path) -> None:
    assert ask(source, "auto").stdout.startswith("python | it was not built")


def test_c_that_is_asked_for_and_not_there_is_no_silent_python(source: Path) -> None:
    told = ask(source, "c")
    assert told.returncode != 0
    assert MissingExtra.__name__ in told.stderr


def test_a_library_that_was_built_is_used(source: Path, libraries: list[Path]) -> None:
    shutil.copy(libraries[0], source / "worldline" / "kernel" / "_kernel.so")
    assert ask(source, "auto").stdout.startswith("c-")


def test_a_library_of_something_else_is_not_used(source: Path) -> None:
    (source / "worldline" / "kernel" / "_kernel.so").write_bytes(b"no library")
    assert ask(source, "auto").stdout.startswith("python |")


def test_a_library_of_another_abi_is_not_used(libraries: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldline.kernel.native.ABI", ABI + 1)
    with pytest.raises(OSError, match="install anew"):
        Native(libraries[0])


@pytest.mark.usefixtures("source")
def test_the_build_goes_on_without_a_compiler(tmp_path: Path) -> None:
    assert build(tmp_path, "/bin/false") == []
