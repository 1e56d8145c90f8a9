"""The key proof on a fresh non-blocking socket, on both sides (octets in `worldline.wire.handshake`)."""

from __future__ import annotations

import asyncio
import hmac
import secrets

from worldline.errors import LinkCut, Unauthenticated
from worldline.transport.protocol import KEY_BYTES
from worldline.transport.tls import AnySocket, TlsSocket
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

_STREAM_LABEL = b"worldline stream 1\0"


def check_key(key: bytes) -> bytes:
    """A key of the wrong length is a mistake of the caller, never a peer's."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key is {KEY_BYTES} bytes, not {len(key)}")
    return key


def stream_key(key: bytes, index: int) -> bytes:
    """The key of stream `index`: who has it can do nothing but be that stream of this link."""
    return hmac.digest(key, _STREAM_LABEL + index.to_bytes(4, "little"), "sha256")


async def prove_to_target(sock: AnySocket, key: bytes) -> None:
    """Source side. On success both have proved the key. Raises `Unauthenticated` when the target has not, `LinkCut`."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    await _send(sock, build_greeting(nonce))
    challenge = await receive_exactly(sock, CHALLENGE_BYTES)
    target_nonce, proof = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
    if not proof_holds(proof, key, Role.TARGET, nonce, target_nonce):
        raise Unauthenticated("who listens there does not hold the key of this attempt")
    await _send(sock, prove(key, Role.SOURCE, nonce, target_nonce))
    if await receive_exactly(sock, len(VERDICT)) != VERDICT:
        raise LinkCut("the target took no link")


async def admit_source(sock: AnySocket, key: bytes) -> None:
    """Target side. Raises `Unauthenticated`, `Malformed`, `VersionUnknown`, `LinkCut`: a peer to turn away."""
    source_nonce = parse_greeting(await receive_exactly(sock, GREETING_BYTES))
    nonce = secrets.token_bytes(NONCE_BYTES)
    await _send(sock, nonce + prove(key, Role.TARGET, source_nonce, nonce))
    proof = await receive_exactly(sock, PROOF_BYTES)
    if not proof_holds(proof, key, Role.SOURCE, source_nonce, nonce):
        raise Unauthenticated("a peer does not hold the key of this attempt")
    await _send(sock, VERDICT)


async def receive_exactly(sock: AnySocket, nbytes: int) -> bytes:
    """`nbytes` and not one more, so that what follows is untouched. Raises `LinkCut` at the end of the stream."""
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < nbytes:
        wanted = nbytes - len(data)
        piece = await (sock.receive(wanted) if isinstance(sock, TlsSocket) else loop.sock_recv(sock, wanted))
        if not piece:
            raise LinkCut("the peer closed the connection while keys were proved")
        data += piece
    return data


async def _send(sock: AnySocket, data: bytes) -> None:
    if isinstance(sock, TlsSocket):
        await sock.send_all(data)
    else:
        await asyncio.get_running_loop().sock_sendall(sock, data)
