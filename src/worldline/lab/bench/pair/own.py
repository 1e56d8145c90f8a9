"""Worldline's own data plane, as a move uses it: one link, chunks of 64 MiB with a tail, digests on lanes."""

from __future__ import annotations

import asyncio
import secrets

import numpy as np

from worldline.errors import Corrupt
from worldline.lab.bench.pair.engine import WAIT_S, Where
from worldline.migration.rounds import Limits, merge
from worldline.schema.layout import LEAF_BYTES_MAX, Extent
from worldline.snapshot.arena import Arena
from worldline.transport.coding import NONE
from worldline.transport.protocol import KEY_BYTES, Landed, Link
from worldline.transport.tcp import TcpTransport
from worldline.verify.lanes import Lanes
from worldline.wire import records


def leaves_of(nbytes: int) -> list[Extent]:
    return [Extent(start, min(LEAF_BYTES_MAX, nbytes - start)) for start in range(0, nbytes, LEAF_BYTES_MAX)]


def filled_arena(nbytes: int, name: str, seed: int | None) -> Arena:
    """Touched; with bytes of chance where a seed is given."""
    arena = Arena.create(nbytes, name)
    arena.touch(Extent(0, nbytes))
    if seed is not None:
        octets = np.frombuffer(arena.bytes_at(Extent(0, nbytes)), np.uint8)
        block = np.random.default_rng(seed).integers(0, 256, 16 * 1024 * 1024 + 1, np.uint8)
        for start in range(0, nbytes, block.nbytes):
            part = octets[start : start + block.nbytes]
            part[:] = block[: part.nbytes]
    return arena


class _Half:
    verifies = True

    def __init__(self, where: Where, seed: int | None) -> None:
        self.nbytes = where.nbytes
        self.leaves = leaves_of(where.nbytes)
        self.arena = filled_arena(where.nbytes, "bench", seed)
        self.lanes = Lanes(1)
        self.transport = TcpTransport(None, where.ip, fabric_private=where.private, codec=NONE)
        self.runner = asyncio.Runner()
        self.round = 0

    def close(self) -> None:
        self.runner.close()
        self.lanes.close()
        self.arena.close()


class _Landed:
    """How far a transfer has come: bytes land in order."""

    def __init__(self) -> None:
        self.end = 0
        self.more = asyncio.Event()

    def until(self, end: int) -> None:
        self.end = end
        self.more.set()


class _Target(_Half):
    def __init__(self, where: Where, verifies: bool) -> None:
        super().__init__(where, None)
        self.verifies = verifies
        key = secrets.token_bytes(KEY_BYTES)
        self._listener = self.runner.run(self.transport.listen(key, self.arena))
        self.address = f"{self._listener.address} {key.hex()}"
        self._link: Link | None = None

    def serve(self) -> None:
        self.runner.run(self._serve())

    async def _serve(self) -> None:
        if self._link is None:
            self._link = await self._listener.accept(WAIT_S)
        link, landed = self._link, _Landed()
        digesting = asyncio.create_task(self._digests(landed))
        async with asyncio.timeout(WAIT_S):
            while isinstance(event := await link.receive(), Landed):
                landed.until(event.extent.offset + event.extent.nbytes)
        end = records.decode_record(event.data)
        assert isinstance(end, records.RoundEnd), "a round is closed"
        found = zip(self.leaves, await digesting, strict=False)  # no digests where nothing is verified
        answer = records.Digests(end.round, tuple(records.LeafDigest(*leaf) for leaf in found))
        await link.send(records.encode(answer))

    async def _digests(self, landed: _Landed) -> list[bytes]:
        """As a move has leaves read: what landed meanwhile is the next reading, and the last one is hurried."""
        found: list[bytes] = []
        while self.verifies and len(found) < len(self.leaves):
            await landed.more.wait()
            landed.more.clear()
            whole = landed.end == self.nbytes
            leaves = self.leaves[len(found) : None if whole else landed.end // LEAF_BYTES_MAX]
            if whole:
                found += await asyncio.to_thread(self.lanes.read, self.arena, leaves)
            else:
                found += await self.lanes.digests(self.arena, leaves)
        return found

    def close(self) -> None:
        if self._link is not None:
            self.runner.run(self._link.fence())
        self.runner.run(self._listener.close())
        super().close()


class _Source(_Half):
    def __init__(self, where: Where, address: str, verifies: bool) -> None:
        super().__init__(where, 1)
        self.verifies = verifies
        self._address = address
        limits = Limits()
        self._chunks = merge(self.leaves, limits.chunk_bytes, limits.tail_bytes_min)
        self._link: Link | None = None

    def send(self) -> None:
        self.runner.run(self._send())

    async def _send(self) -> None:
        if self._link is None:  # the target takes it once it serves
            place, key = self._address.split()
            self._link = await self.transport.connect(place, bytes.fromhex(key), self.arena, WAIT_S)
        link = self._link
        self.round += 1
        digesting = asyncio.create_task(self._own_digests())
        await link.post(self._chunks, WAIT_S)
        await link.send(records.encode(records.RoundEnd(self.round, self.nbytes)))
        async with asyncio.timeout(WAIT_S):
            event = await link.receive()
        assert not isinstance(event, Landed), "nothing lands at a source"
        answer = records.decode_record(event.data)
        assert isinstance(answer, records.Digests), "the target answers with what it found"
        if [leaf.digest for leaf in answer.leaves] != await digesting:
            raise Corrupt("the bytes at the target are not the source's")

    async def _own_digests(self) -> list[bytes]:
        return await self.lanes.digests(self.arena, self.leaves) if self.verifies else []

    def close(self) -> None:
        if self._link is not None:
            self.runner.run(self._link.fence())
        super().close()


class Verified:
    """See `ENGINES`."""

    @staticmethod
    def target(where: Where) -> _Target:
        return _Target(where, verifies=True)

    @staticmethod
    def source(where: Where, address: str) -> _Source:
        return _Source(where, address, verifies=True)


class Unverified:
    """See `ENGINES`."""

    @staticmethod
    def target(where: Where) -> _Target:
        return _Target(where, verifies=False)

    @staticmethod
    def source(where: Where, address: str) -> _Source:
        return _Source(where, address, verifies=False)
