"""What went wrong in code that is not ours, told in one line: a world's module, its engine, a checkout."""

from __future__ import annotations

import traceback
from pathlib import Path

TEXT_MAX = 300

FAULTS = (Exception, SystemExit)
"""What such code may raise: research code also asks for the process's end. An interruption is the user's, not its."""


def told(error: BaseException) -> str:
    """`ValueError: no such layer (engine.py, line 12)`: the place is where it was raised."""
    said = " ".join(str(error).split())[:TEXT_MAX]
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    raised = traceback.extract_tb(error.__traceback__)
    if not raised or isinstance(error, SyntaxError):  # a SyntaxError names its own place
        return text
    return f"{text} ({Path(raised[-1].filename).name}, line {raised[-1].lineno})"
