"""The command line: one file a command, over the library.

Every command takes `--json`: one object on standard output, progress and errors on standard error. The exit code is the
error's class (`worldline.errors`); 0 means that what was asked for is true.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    from worldline.cli.app import run

    return run([*(sys.argv[1:] if argv is None else argv)])  # the module `list` hides the builtin here
