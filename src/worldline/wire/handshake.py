"""How two sides of a link prove to each other that they hold the attempt's key, without sending it. Sans-I/O.

    source -> target   greeting   magic u32, version u8, 3 reserved octets, the source's nonce (32)
    target -> source   challenge  the target's nonce (32), the target's proof (32)
    source -> target   answer     the source's proof (32)
    target -> source   verdict    one octet, 1

A proof is HMAC-SHA256 over a label of its role and both nonces, so neither side's proof can be reflected or replayed.
"""

from __future__ import annotations

import hmac
import struct
from enum import Enum

from worldline.errors import Malformed, VersionUnknown

NONCE_BYTES = 32
PROOF_BYTES = 32
GREETING_BYTES = 40
CHALLENGE_BYTES = NONCE_BYTES + PROOF_BYTES
VERDICT = b"\x01"

_MAGIC = int.from_bytes(b"WLDK", "little")
_VERSION = 1
_GREETING = struct.Struct(f"<IB3s{NONCE_BYTES}s")


class Role(Enum):
    """Who proves; the value is the label that its proof is bound to."""

    SOURCE = b"worldline link 1 source\0"
    TARGET = b"worldline link 1 target\0"


def build_greeting(nonce: bytes) -> bytes:
    """The source's first octets."""
    assert len(nonce) == NONCE_BYTES, "a whole nonce"
    return _GREETING.pack(_MAGIC, _VERSION, b"\0\0\0", nonce)


def parse_greeting(data: bytes) -> bytes:
    """The source's nonce. Raises `Malformed`, `VersionUnknown`."""
    if len(data) != GREETING_BYTES:
        raise Malformed(f"a greeting is {GREETING_BYTES} bytes, not {len(data)}")
    magic, version, reserved, nonce = _GREETING.unpack(data)
    if magic != _MAGIC or version == 0 or reserved != b"\0\0\0":
        raise Malformed("a peer greets in another protocol")
    if version > _VERSION:
        raise VersionUnknown(f"a peer greets in version {version}; this program speaks {_VERSION}", version=version)
    return bytes(nonce)


def prove(key: bytes, role: Role, source_nonce: bytes, target_nonce: bytes) -> bytes:
    """The proof of one role for these two nonces."""
    return hmac.digest(key, role.value + source_nonce + target_nonce, "sha256")


def proof_holds(proof: bytes, key: bytes, role: Role, source_nonce: bytes, target_nonce: bytes) -> bool:
    """Whether the proof is of this key; takes the same time for any wrong one."""
    return hmac.compare_digest(proof, prove(key, role, source_nonce, target_nonce))
