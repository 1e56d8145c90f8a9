"""A link between two real processes, of which one is stopped or killed in the middle."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from worldline.errors import LinkCut, TimedOut
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.testing.transports import MIB, STUCK_S, WAIT_S, a_key, content, ending, fill, landed, tiles
from worldline.transport.registry import open_transport

CAPACITY = 16 * MIB
SOURCE = """
import asyncio, sys
from worldline.errors import WorldlineError
from worldline.snapshot.arena import Arena
from worldline.testing.transports import fill, tiles
from worldline.transport.registry import open_transport

async def main(name, address, key, capacity, forever):
    arena = Arena.create(capacity, "source")
    fill(arena, 1)
    link = await open_transport(name).connect(address, bytes.fromhex(key), arena, 20)
    await link.post(tiles(1 << 20, capacity), 20)
    while forever:
        await link.post(tiles(1 << 16, capacity), 20)
    await link.fence()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] == "forever"))
"""
TARGET = """
import asyncio, sys
from worldline.snapshot.arena import Arena
from worldline.transport.registry import open_transport

async def main(name, key, capacity):
    transport = open_transport(name)
    own = None if transport.hands_over else Arena.create(capacity, "target")
    listener = await transport.listen(bytes.fromhex(key), own)
    print(listener.address, flush=True)
    link = await listener.accept(20)
    while True:
        await link.receive()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture(params=["shm", "tcp"])
def transport(request):
    return open_transport(request.param)


class Other:
    """Another process, killed at the end whatever happens."""

    def __init__(self, code, *arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


async def from_source(transport, forever):
    """The target's link to a source in another process, and that process."""
    key = a_key()
    own = None if transport.hands_over else Arena.create(CAPACITY, "target")
    listener = await transport.listen(key, own)
    other = Other(SOURCE, transport.name, listener.address, key.hex(), CAPACITY, forever)
    return await listener.accept(WAIT_S), other


async def test_a_state_arrives_from_another_process_and_stays_when_that_has_exited(transport):
    link, other = await from_source(transport, "once")
    with other as source, Arena.create(CAPACITY, "expected") as expected:
        fill(expected, 1)
        await landed(link, CAPACITY)
        assert isinstance(await ending(link), LinkCut)
        assert await asyncio.to_thread(source.wait, WAIT_S) == 0
        assert content(link.arena) == content(expected)
        await link.fence()
        link.arena.close()


async def test_a_source_that_is_killed_in_the_middle_cuts_the_link_and_leaves_the_target_alive(transport):
    link, other = await from_source(transport, "forever")
    with other as source:
        await landed(link, CAPACITY + MIB)
        os.kill(source.pid, signal.SIGKILL)
        assert isinstance(await ending(link), LinkCut)
        assert len(content(link.arena)) == CAPACITY, "memory of a dead source can still be read"
        await link.fence()
        link.arena.close()


async def to_target(transport, arena):
    """The source's link to a target in another process, and that process."""
    key = a_key()
    other = Other(TARGET, transport.name, key.hex(), CAPACITY)
    address = (await asyncio.to_thread(other.process.stdout.readline)).strip()
    return await transport.connect(address, key, arena, WAIT_S), other


async def test_a_target_that_is_killed_cuts_the_link_and_leaves_the_source_as_it_was(transport):
    with Arena.create(CAPACITY, "source") as arena:
        fill(arena, 1)
        before = content(arena)
        link, other = await to_target(transport, arena)
        with other as target:
            await link.post(tiles(MIB, CAPACITY), WAIT_S)
            os.kill(target.pid, signal.SIGKILL)
            with pytest.raises(LinkCut):
                while True:
                    await link.post(tiles(MIB, CAPACITY), WAIT_S)
            assert isinstance(await ending(link), LinkCut)
        await link.fence()
        assert content(arena) == before


async def test_a_stopped_target_costs_the_source_its_deadline_and_no_more(transport):
    with Arena.create(CAPACITY, "source") as arena:
        link, other = await to_target(transport, arena)
        with other as target:
            await link.post([Extent(0, MIB)], WAIT_S)
            os.kill(target.pid, signal.SIGSTOP)
            with pytest.raises(TimedOut):
                while True:
                    await link.post(tiles(512, CAPACITY), STUCK_S)
            await link.fence()
