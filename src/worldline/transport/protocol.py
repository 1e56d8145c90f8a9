"""The data plane's interface: how the bytes of one attempt reach the target's arena, and nothing else.

An attempt has one link. The target *listens* with an arena of its own for this attempt (or, where the transport
hands an arena over, with none); the source *connects* with its session's arena and the attempt's one-time key. Four
facts are never confused: LANDED is what `Landed` says (the bytes are in the arena); VERIFIED is the digest lanes'
word, COMMITTED the controller's, SOURCE_RELEASED the source host's.

All transports pass `worldline.testing.transports`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from worldline.schema.layout import Extent
from worldline.wire.framing import CHUNK_PAYLOAD_BYTES_MAX

KEY_BYTES = 32
CHUNK_BYTES = CHUNK_PAYLOAD_BYTES_MAX
"""The largest stretch posted at once."""


class ArenaBytes(Protocol):
    """An arena as transports see it: memory behind a file descriptor."""

    @property
    def fd(self) -> int:
        """The memfd; a transport may pass a duplicate to another process."""
        ...

    @property
    def capacity(self) -> int: ...

    def bytes_at(self, extent: Extent) -> memoryview:
        """The bytes themselves (no copy), format `B`. Raises `ValueError` outside the arena."""
        ...

    def close(self) -> None:
        """Gives this process's part of the memory back. Links never call it on an arena they were given."""
        ...


@dataclass(frozen=True, slots=True)
class RecordIn:
    """A control record from the other side, whole, as given to its `send`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Landed:
    """These bytes of the target's arena were written (or are mapped) and are visible to every thread of this
    process.
    """

    extent: Extent


LinkEvent: TypeAlias = RecordIn | Landed


class Link(Protocol):
    """One side of one attempt. Order is kept: what was posted or sent first is received first, in each direction."""

    @property
    def arena(self) -> ArenaBytes:
        """At the source: the session's arena. At the target: the arena in which bytes land.

        Under `hands_over` that is the source's own, mapped read-only; whoever accepted the link closes it.
        """
        ...

    async def send(self, record: bytes) -> None:
        """Sends one whole record of `worldline.wire`, at most `RECORD_BYTES_MAX`.

        Raises `LinkCut`, or `TimedOut` when nobody reads for half a minute. After an error, or a cancelled `send` or
        `post`, this side sends no more; `receive` goes on.
        """
        ...

    async def post(self, extents: Sequence[Extent], deadline_s: float) -> int:
        """Source only. Makes the arena's bytes at `extents` land at the same offsets of the target's arena.

        An extent lands whole or in parts, from its beginning to its end, before what was posted after it.

        Returns the bytes that crossed the link (0 where the arena itself was handed over) once the system has them;
        they may still lie in the arena alone. Each octet lands as the arena held it at some moment between the call and
        `Landed` (under `hands_over` it is the arena's own): whoever rewrites it sooner goes by digests of what landed.
        Success says nothing about the target.
        Raises `LinkCut`, or `TimedOut` after `deadline_s` from now, after which the link is unusable. Why the other
        side closed may be among the records not yet received.
        """
        ...

    def pace(self, rate_bytes_per_s: float | None) -> None:
        """Source: from here on the link carries no more than that a second (a grant); None: as much as it can.

        May be called while a post runs. What is already with the system is not called back.
        """
        ...

    async def receive(self) -> LinkEvent:
        """The next event. Raises `LinkCut` when the other side is gone and `Malformed` when it broke the format.

        Both come after all that was received before. One task at a time. What is not received is held back at the
        sender.
        """
        ...

    async def fence(self) -> None:
        """After it returns, this link writes nothing to the arena any more, whatever the other side does.
        Idempotent; closes the link.
        """
        ...


class Listener(Protocol):
    """A target waiting for the one source that knows the key."""

    @property
    def address(self) -> str:
        """Where the source connects, as text that travels through the control plane. Loopback only, or a Unix
        socket.
        """
        ...

    async def accept(self, deadline_s: float) -> Link:
        """The link. A peer with a wrong key is turned away and waiting goes on. Raises `TimedOut` after `deadline_s`
        from now.
        """
        ...

    async def close(self) -> None:
        """Stops waiting. Idempotent."""
        ...


class Transport(Protocol):
    """A way of moving bytes between two hosts."""

    name: str
    hands_over: bool
    """True: the target maps the source's arena, read-only, instead of receiving into its own."""

    async def listen(self, key: bytes, arena: ArenaBytes | None) -> Listener:
        """Target side. `arena` is this attempt's own (quarantined until the commit); None where `hands_over`."""
        ...

    async def connect(self, address: str, key: bytes, arena: ArenaBytes, deadline_s: float) -> Link:
        """Source side. Raises `LinkCut`, `TimedOut`, `Unauthenticated`."""
        ...
