"""The kernel in C under AddressSanitizer and UBSan, on buffers of exactly the size they are said to have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from unit.kernel.sources import COMPILER, SOURCE

FLAGS = ["-O1", "-g", "-std=gnu11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCE}"]
TOO_FAR = """
#include <stdlib.h>
#include "kernel.h"
int main(void) { uint8_t out[16], *at = calloc(300, 1); wl_xxh3_128(NULL, at, 301, out); return out[0]; }
"""


def compiled(*words: str, folder: Path) -> int:
    assert COMPILER is not None
    return subprocess.run([COMPILER, *FLAGS, *words], cwd=folder, check=False, timeout=120).returncode


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The kernel, compiled to be watched."""
    if COMPILER is None:
        pytest.skip("no C compiler: the kernel in C can't be built here")
    folder = tmp_path_factory.mktemp("sanitized")
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    if compiled("empty.c", "-o", "empty", folder=folder) != 0:
        pytest.skip("this C compiler has no AddressSanitizer")
    assert compiled("-c", *sorted(map(str, SOURCE.glob("*.c"))), folder=folder) == 0
    return sorted(map(str, folder.glob("*.o")))


def run(program: Path, objects: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    assert compiled(str(program), *objects, "-o", "program", folder=folder) == 0
    return subprocess.run([str(folder / "program")], capture_output=True, text=True, check=False, timeout=100)


def test_nothing_outside_a_buffer_is_read_or_written(objects: list[str], tmp_path: Path) -> None:
    done = run(Path(__file__).with_name("sanitize.c"), objects, tmp_path)
    assert (done.returncode, done.stdout) == (0, "clean\n"), done.stderr[-4000:]


def test_a_byte_read_too_far_is_seen(objects: list[str], tmp_path: Path) -> None:
    program = tmp_path / "too_far.c"
    program.write_text(TOO_FAR)
    assert "ERROR: AddressSanitizer" in run(program, objects, tmp_path).stderr
