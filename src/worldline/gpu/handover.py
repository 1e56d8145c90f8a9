"""A card's memory handed over between two processes of one machine, by CUDA IPC: opened, not copied.

The source keeps the memory alive until it is told that the target owns it; the target digests it where it lies before
anything else. The handle that travels is checked against what it may be before CUDA sees it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import IO, Self

import msgspec
import torch

from worldline.errors import Malformed
from worldline.gpu.digests import leaf_digests
from worldline.schema.layout import Extent

HANDLE_BYTES_MAX = 128
FRAME_BYTES_MAX = 64 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class Offer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a target needs to open the memory. `handle` and `counter` are CUDA's and torch's own octets."""

    device: int
    handle: bytes
    storage_bytes: int
    storage_offset_bytes: int
    counter: bytes
    counter_offset: int
    event: bytes
    event_needed: bool

    @classmethod
    def of(cls, memory: torch.Tensor) -> Self:
        """memory: [n] uint8 on a card, alone in its storage. It must outlive every target that opened it."""
        return cls(*memory.untyped_storage()._share_cuda_())

    def open(self) -> torch.Tensor:
        """[n] uint8 over the same memory, in this process. Raises `Malformed` for what is no offer."""
        if not (0 < len(self.handle) <= HANDLE_BYTES_MAX and self.storage_bytes > 0 <= self.storage_offset_bytes):
            raise Malformed("this is no offer of a card's memory")
        storage = torch.UntypedStorage._new_shared_cuda(
            self.device,
            self.handle,
            self.storage_bytes,
            self.storage_offset_bytes,
            self.counter,
            self.counter_offset,
            self.event,
            self.event_needed,
        )
        memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return memory.set_(storage, 0, (self.storage_bytes,), (1,))


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An offer, and the leaves (offset, bytes) whose digests are wanted."""

    offer: Offer
    leaves: list[tuple[int, int]]


def read_question(octets: bytes) -> Question:
    """Raises `Malformed`."""
    try:
        return msgspec.json.decode(octets, type=Question)
    except msgspec.DecodeError as error:
        raise Malformed(f"this is no question about a card's memory: {error}") from error


def ask(to: IO[bytes], offer: Offer, leaves: Sequence[Extent]) -> None:
    """Sends an offer and the leaves whose digests are wanted."""
    body = msgspec.json.encode(Question(offer, [(leaf.offset, leaf.nbytes) for leaf in leaves]))
    to.write(_LENGTH.pack(len(body)) + body)
    to.flush()


def told(answers: IO[bytes], count: int) -> bytes:
    """The digests of `count` leaves, 16 bytes each."""
    octets = answers.read(16 * count)
    if len(octets) != 16 * count:
        raise Malformed("the other process ended before it had answered")
    return octets


def answer() -> None:
    """The other process: digests what it is offered, where it lies, until its input ends."""
    opened: dict[str, torch.Tensor] = {}
    while len(head := sys.stdin.buffer.read(_LENGTH.size)) == _LENGTH.size:
        (size,) = _LENGTH.unpack(head)
        if size > FRAME_BYTES_MAX:
            raise Malformed(f"a question of {size} bytes")
        asked = read_question(sys.stdin.buffer.read(size))
        memory = opened.setdefault(asked.offer.handle.hex(), asked.offer.open())
        leaves = [Extent(offset, nbytes) for offset, nbytes in asked.leaves]
        sys.stdout.buffer.write(b"".join(leaf_digests(memory, leaves)))
        sys.stdout.buffer.flush()
