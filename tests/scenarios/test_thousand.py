"""A thousand sessions on four slots: opened, played, moved, refused and closed, and nothing of them is left."""

import asyncio
import threading
from pathlib import Path

import pytest

from scenarios.duet import hall, open_files, spec
from worldline.errors import Corrupt, LinkCut, NoCapacity
from worldline.runtime.messages import CloseSession
from worldline.schema.receipt import Mode
from worldline.testing.tiny import TinyWorld

SLOTS = 4
CYCLES = 1000
WARM = 80
SPARE_BYTES = 48 << 20
"""Allocators keep what was freed."""
WAYS = [
    ("tcp", Mode.FREEZE, None),
    ("shm", Mode.FREEZE, None),
    ("memory", Mode.PRECOPY, None),
    ("tcp", Mode.FREEZE, "flip"),
    ("shm", Mode.PRECOPY, None),
    ("tcp", Mode.PRECOPY, "cut"),
    ("memory", Mode.FREEZE, "truncate"),
    ("shm", Mode.FREEZE, "lie"),
]


async def cycle(stage, slot, number):
    """One session in a slot: there and played, moved or refused, closed."""
    await stage.open(slot, "a", witness=False)
    await stage.play(slot, 1)
    transport, mode, fault = WAYS[number % len(WAYS)]
    if fault is None:
        await stage.move(slot, "b", transport, mode)
        await stage.play(slot, 1)
    else:
        with pytest.raises((Corrupt, LinkCut)):
            await stage.move(slot, "b", transport, mode, fault)
    host, epoch, *_ = stage.owners[slot]
    await stage.call(host, CloseSession(slot, epoch))


async def cycles(stage, count):
    numbers = iter(range(count))

    async def work(slot):
        for number in numbers:
            await cycle(stage, slot, number)

    async with asyncio.TaskGroup() as slots:
        for slot in range(SLOTS):
            slots.create_task(work(f"slot{slot}"))


def held(stage):
    arenas = {line.split(maxsplit=5)[4] for line in mappings() if "memfd:worldline" in line}
    threads = sorted(thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio"))
    used = [host.memory.ledger.used_bytes for host in stage.hosts.values()]
    return open_files(), threads, len(arenas), used, len(asyncio.all_tasks())


def mappings():
    return Path("/proc/self/maps").read_text().splitlines()


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.timeout(600)  # as many moves as all other scenarios together
async def test_a_thousand_sessions_on_four_slots_leave_descriptors_threads_and_memory_as_they_were(tmp_path):
    memory_bytes = SLOTS * TinyWorld({}).state_bytes_max
    async with hall(tmp_path, "a", "b", memory_bytes=memory_bytes) as stage:
        await cycles(stage, WARM)
        before, resident_before = held(stage), resident_bytes()
        await cycles(stage, CYCLES)
        assert held(stage) == before
        assert resident_bytes() < resident_before + SPARE_BYTES
        for slot in range(SLOTS):
            await stage.open(f"last{slot}", "a", spec(seed=slot))
        with pytest.raises(NoCapacity):
            await stage.open("one-more", "a")
