"""Every kernel there is: without C, and C on each of its paths, built here from the source beside the module."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from unit.kernel.sources import COMPILER, build, copy_source
from worldline.kernel.native import AVX2, PORTABLE, Native
from worldline.kernel.operations import Kernel
from worldline.kernel.plain import Plain


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Where the package lies before anything is built."""
    return copy_source(tmp_path)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two copies: the level of one is its own."""
    if COMPILER is None:
        pytest.skip("no C compiler: the kernel in C can't be built here")
    folder = tmp_path_factory.mktemp("kernel")
    copy_source(folder)
    (first,) = build(folder, COMPILER)
    second = folder / "second.so"
    shutil.copy(first, second)
    return [first, second]


@pytest.fixture(params=["python", "c-portable", "c"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    if request.param == "python":
        return Plain()
    libraries = request.getfixturevalue("libraries")
    return Native(libraries[0], PORTABLE) if request.param == "c-portable" else Native(libraries[1], AVX2)
