"""The optional C kernel. Everything else is in pyproject.toml.

`optional`: where no compiler is, or it fails, the install goes on and `worldline.kernel.backend()` says so.
"""

from pathlib import Path

from setuptools import Extension, setup

HERE = Path("src/worldline/kernel")
FLAGS = ["-O3", "-std=gnu11", "-fvisibility=hidden", "-fno-strict-aliasing"]

setup(
    ext_modules=[
        Extension(
            "worldline.kernel._kernel",
            sources=sorted(str(path) for path in HERE.glob("*.c")),
            depends=[str(HERE / "kernel.h")],
            extra_compile_args=FLAGS,
            optional=True,
        )
    ]
)
