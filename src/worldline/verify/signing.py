"""The key with which a host signs its receipts.

Invariant: the secret half never leaves the file (mode 0600, in the host's own directory) and the process that made or
read it; what others are told is `public`. A host that finds its key unreadable or open to others does not start: it
never signs with another one in silence.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from worldline.errors import BadValue
from worldline.verify.durable import draft_of, flush_directory

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED_BYTES: Final = 32
_SEED = re.compile(r"[0-9a-f]{64}\n\Z")


class SigningKey:
    """An Ed25519 key (RFC 8032). `public` is its public half, 32 bytes in hex."""

    def __init__(self, seed: bytes) -> None:
        # Imported here: who only reads receipts' fields must not wait for OpenSSL.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(seed)
        self.public: str = self._private.public_key().public_bytes_raw().hex()

    @classmethod
    def generate(cls) -> Self:
        """A new key that is kept nowhere."""
        return cls(secrets.token_bytes(SEED_BYTES))

    @classmethod
    def load_or_make(cls, folder: Path, name: str) -> Self:
        """The key in `folder/name.key`, made and made durable if there is none; `folder/name.pub` says its public half.

        Raises `BadValue` for a file that is no key or that others may read, and `OSError`.
        """
        path = folder / f"{name}.key"
        try:
            seed = _read(path)
        except FileNotFoundError:
            seed = secrets.token_bytes(SEED_BYTES)
            _write(path, f"{seed.hex()}\n", 0o600)
            seed = _read(path)  # another process may have been first; then its key is the one that is kept
        key = cls(seed)
        public = folder / f"{name}.pub"
        if not public.exists():
            _write(public, f"{key.public} {name}\n", 0o644)
        return key

    def sign(self, message: bytes) -> str:
        """64 bytes in hex."""
        return self._private.sign(message).hex()


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise BadValue(f"the signing key {path.name} can be read by others: its mode must be 0600", file=path.name)
        text = file.read(2 * SEED_BYTES + 2)
    if _SEED.match(text.decode("ascii", "replace")) is None:
        raise BadValue(f"{path.name} is not a signing key", file=path.name)
    return bytes.fromhex(text.decode("ascii"))


def _write(path: Path, text: str, mode: int) -> None:
    """After it, `path` is whole and durable: this text, or what another process wrote there first."""
    draft = draft_of(path)
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)
    flush_directory(path.parent)
