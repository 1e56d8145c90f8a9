"""A block on the play WebSocket, and what a player sends, octet by octet. The tables are in docs/http.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

from worldline.errors import Malformed
from worldline.runtime.gateway_told import Shown

MAGIC = b"WL"
VERSION = 1
KIND_BLOCK = 1
HEADER_BYTES = 64
LEFT_OUT = 1
"""Flag: newer pictures waited, so this block comes without its own."""
SENT_AGAIN = 2
"""Flag: from before this connection."""
ENCODINGS = {"": 0, "jpeg": 1, "text": 2}

ACTION = 1
ACK = 2

_HEADER = struct.Struct("<2sBBIQQQHHHBBfI16s")
_AFTER_KIND = struct.Struct("<IQQQHHHBBfI16s")
_ACTION = struct.Struct("<BQi")
_ACK = struct.Struct("<BQ")
assert _HEADER.size == HEADER_BYTES


@dataclass(frozen=True, slots=True)
class ActionSent:
    """From a player."""

    number: int
    action: int


@dataclass(frozen=True, slots=True)
class AckSent:
    """From a player: blocks up to this one have been drawn, or will not be."""

    block: int


Sent: TypeAlias = ActionSent | AckSent


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """What `read_block` finds before the payload."""

    epoch: int
    block: int
    number: int
    frame: int
    frames: int
    height: int
    width: int
    encoding: int
    flags: int
    step_ms: float
    host: str


def write_block(shown: Shown, flags: int) -> bytes:
    """The whole message. With `LEFT_OUT` among `flags`, without payload."""
    block = shown.block
    payload = b"" if flags & LEFT_OUT else block.payload
    encoding = ENCODINGS[block.encoding] if payload else 0
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        KIND_BLOCK,
        block.epoch,
        block.block,
        block.number,
        block.frame,
        block.frames,
        block.height,
        block.width,
        encoding,
        flags,
        block.step_ms,
        len(payload),
        shown.host.encode("ascii")[:16],
    )
    return header + payload


def read_block(message: bytes) -> tuple[BlockHeader, bytes]:
    """A client's side of `write_block`. Raises `Malformed`."""
    if len(message) < HEADER_BYTES:
        raise Malformed(f"a message of {len(message)} bytes has no header")
    magic, version, kind = message[:2], message[2], message[3]
    *fields, nbytes, host = _AFTER_KIND.unpack_from(message, 4)
    if (magic, version, kind) != (MAGIC, VERSION, KIND_BLOCK) or len(message) != HEADER_BYTES + nbytes:
        raise Malformed("the message is no block")
    host = host.rstrip(b"\0")
    if not host.isascii():
        raise Malformed("the block's host is no name")
    return BlockHeader(*fields, host.decode("ascii")), message[HEADER_BYTES:]  # type: ignore[call-arg]


def write_action(number: int, action: int) -> bytes:
    return _ACTION.pack(ACTION, number, action)


def write_ack(block: int) -> bytes:
    return _ACK.pack(ACK, block)


def read_sent(message: bytes) -> Sent:
    """What a player sent. Raises `Malformed`."""
    if len(message) == _ACTION.size and message[0] == ACTION:
        _, number, action = _ACTION.unpack(message)
        return ActionSent(number, action)
    if len(message) == _ACK.size and message[0] == ACK:
        return AckSent(_ACK.unpack(message)[1])
    kind = message[0] if message else None
    raise Malformed(f"{len(message)} bytes of kind {kind} are neither an action nor an ack", nbytes=len(message))
