"""The peer of a hand-over: the same shared memory, and the target copies out of it into an arena of its own.

For the bench alone. As with any link, the source's memory is read until `Landed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from worldline.errors import Malformed
from worldline.kernel import kernel
from worldline.schema.layout import Extent
from worldline.transport.protocol import ArenaBytes, Link
from worldline.transport.rendezvous import Admitted
from worldline.transport.shm import SharedCarrier, ShmTransport
from worldline.transport.stream import StreamLink, check_landing
from worldline.wire.records import Record, Shared


class CopyingCarrier(SharedCarrier):
    """At the target: copies each named extent at the speed of non-temporal stores, where the C kernel is built."""

    def __init__(self, source: ArenaBytes, into: ArenaBytes) -> None:
        super().__init__(into, is_target=True)
        self._source = source
        self._into = into

    def landing(self, record: Record, receive_into: Callable[[memoryview], None]) -> Iterator[Extent]:  # type: ignore[override]
        if not isinstance(record, Shared):
            raise Malformed(f"{type(record).__name__} is not a record for the target of a shm link")
        for extent in record.extents:
            check_landing(extent, self._into.capacity)
            octets = [np.frombuffer(arena.bytes_at(extent), np.uint8) for arena in (self._into, self._source)]
            kernel().copy(*octets)
            yield extent

    async def close(self) -> None:
        self._source.close()


class ShmCopyTransport(ShmTransport):
    """As `shm`, but nothing is handed over."""

    name = "shm-copy"
    hands_over = False

    def target_link(self, peer: Admitted, arena: ArenaBytes | None) -> Link:
        """See `ShmTransport`."""
        assert arena is not None, "bytes are copied into an arena"
        return StreamLink(peer.sock, arena, CopyingCarrier(peer.arena, arena), "shm-copy-target")
