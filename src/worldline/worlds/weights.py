"""Weights that a session's options name: files of one folder, chosen by whoever runs the host.

A world's options come from clients, and a client's words are never a path of the host's file system.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from worldline.errors import BadValue

FOLDER: Final = "WORLDLINE_WEIGHTS"
"""The environment variable that names the folder."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


def find_weights(name: str) -> Path:
    """The file or folder `name` in the host's folder of weights. Raises `BadValue` for anything else, links out
    included.
    """
    folder = os.environ.get(FOLDER)
    if folder is None:
        raise BadValue(f"this host offers no weights of its own: {FOLDER} names no folder", weights=name[:100])
    home = Path(folder).resolve()
    if _NAME.match(name) is None:
        raise BadValue(f"weights are named by a file of the host's folder, not by {name[:100]!r}", weights=name[:100])
    found = (home / name).resolve()
    if found.parent != home or not (found.is_file() or found.is_dir()):
        raise BadValue(f"the host's folder of weights has no {name!r}", weights=name)
    return found
