"""A GGUF file as a folder in the format of transformers, made once on a machine and kept.

transformers reads each word of such a file three times over, one by one: 20 s and more at every host's first session,
against two for the folder. The folder is named by the file's digest and by the versions that read it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import blake3

from worldline.errors import BadValue

CACHE = "XDG_CACHE_HOME"


def unpacked(file: Path, unpack: Callable[[Path], None]) -> Path:
    """The folder of a GGUF file. `unpack` fills a new one where there is none yet; what it raises leaves none.

    Raises `BadValue` where the cache's folder can't be written.
    """
    readers = " ".join(f"{package} {version(package)}" for package in ("transformers", "gguf"))
    name = blake3.blake3(readers.encode()).update_mmap(file).hexdigest(length=16)
    home = _home()
    folder = home / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several hosts start at once: one unpacks, and the others wait for it
            if not folder.is_dir():
                with TemporaryDirectory(dir=home, ignore_cleanup_errors=True) as made:
                    unpack(Path(made) / name)
                    (Path(made) / name).rename(folder)
    except OSError as error:
        sentence = f"{file.name} can't be unpacked into {home}: {error.strerror or error}; {CACHE} names another folder"
        raise BadValue(sentence) from error
    return folder


def _home() -> Path:
    cache = os.environ.get(CACHE)
    return (Path(cache) if cache else Path.home() / ".cache") / "worldline" / "weights"
