"""The key proof on a fresh non-blocking socket, on both sides (octets in `worldline.wire.handshake`)."""

from __future__ import annotations

import asyncio
import secrets
import socket

from worldline.errors import LinkCut, Unauthenticated
from worldline.transport.protocol import KEY_BYTES
from worldline.wire.handshake import (
    CHALLENGE_BYTES,
    GREETING_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    VERDICT,
    Role,
    build_greeting,
    parse_greeting,
    proof_holds,
    prove,
)


def check_key(key: bytes) -> bytes:
    """A key of the wrong length is a mistake of the caller, never a peer's."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key is {KEY_BYTES} bytes, not {len(key)}")
    return key


async def prove_to_target(sock: socket.socket, key: bytes) -> None:
    """Source side. On success both have proved the key. Raises `Unauthenticated` when the target has not, `LinkCut`."""
    loop = asyncio.get_running_loop()
    nonce = secrets.token_bytes(NONCE_BYTES)
    await loop.sock_sendall(sock, build_greeting(nonce))
    challenge = await receive_exactly(sock, CHALLENGE_BYTES)
    target_nonce, proof = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
    if not proof_holds(proof, key, Role.TARGET, nonce, target_nonce):
        raise Unauthenticated("who listens there does not hold the key of this attempt")
    await loop.sock_sendall(sock, prove(key, Role.SOURCE, nonce, target_nonce))
    if await receive_exactly(sock, len(VERDICT)) != VERDICT:
        raise LinkCut("the target took no link")


async def admit_source(sock: socket.socket, key: bytes) -> None:
    """Target side. Raises `Unauthenticated`, `Malformed`, `VersionUnknown`, `LinkCut`: a peer to turn away."""
    loop = asyncio.get_running_loop()
    source_nonce = parse_greeting(await receive_exactly(sock, GREETING_BYTES))
    nonce = secrets.token_bytes(NONCE_BYTES)
    await loop.sock_sendall(sock, nonce + prove(key, Role.TARGET, source_nonce, nonce))
    proof = await receive_exactly(sock, PROOF_BYTES)
    if not proof_holds(proof, key, Role.SOURCE, source_nonce, nonce):
        raise Unauthenticated("a peer does not hold the key of this attempt")
    await loop.sock_sendall(sock, VERDICT)


async def receive_exactly(sock: socket.socket, nbytes: int) -> bytes:
    """`nbytes` and not one more, so that what follows is untouched. Raises `LinkCut` at the end of the stream."""
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < nbytes:
        piece = await loop.sock_recv(sock, nbytes - len(data))
        if not piece:
            raise LinkCut("the peer closed the connection while keys were proved")
        data += piece
    return data
