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
        link = self._link
        jobs: list[asyncio.Task[list[records.LeafDigest]]] = []
        begun = 0
        async with asyncio.timeout(WAIT_S):
            while isinstance(event := await link.receive(), Landed):
                ended = self._leaves_until(event.extent)
                if self.verifies and ended > begun:
                    jobs.append(asyncio.create_task(self._digest(self.leaves[begun:ended])))
                    begun = ended
        end = records.decode_record(event.data)
        assert isinstance(end, records.RoundEnd), "a round is closed"
        found = [leaf for part in await asyncio.gather(*jobs) for leaf in part]
        await link.send(records.encode(records.Digests(end.round, tuple(found))))

    def _leaves_until(self, landed: Extent) -> int:
        """Leaves that lie before the end of what has landed, which comes in order."""
        end = landed.offset + landed.nbytes
        return len(self.leaves) if end == self.nbytes else end // LEAF_BYTES_MAX

    async def _digest(self, leaves: list[Extent]) -> list[records.LeafDigest]:
        digests = await self.lanes.digests(self.arena, leaves)
        return [records.LeafDigest(leaf, digest) for leaf, digest in zip(leaves, digests, strict=True)]

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
