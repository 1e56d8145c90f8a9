"""A handed-over arena after the commit: nobody else has a say in it, and who wrote it all the same is found out."""

import os
from pathlib import Path
from random import Random

import pytest

from worldline.clock import SystemClock
from worldline.errors import Corrupt
from worldline.migration.leaves import Leaves
from worldline.runtime.host_engine import Engine, Proven
from worldline.runtime.host_handover import HandedOver
from worldline.runtime.host_readings import leaves_at_rest
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.snapshot.memory import arena_capacity
from worldline.verify.lanes import Lanes
from worldline.worlds.load import LoadWorld

OPTIONS = {"scale": 0.01, "layers": 2, "horizon_frames": 12, "vae": False}


@pytest.fixture
def lanes():
    lanes = Lanes(1)
    yield lanes
    lanes.close()


class HandOver:
    """A session of a few blocks whose arena is another's now, and what was proven of it."""

    def __init__(self, lanes, watched_early):
        world = LoadWorld(OPTIONS)
        self.source = Engine.open(
            world, 3, Arena.create(arena_capacity(world.state_bytes_max), "before"), SystemClock(), lanes
        )
        self.source.step(1, 1, witness=False)
        cut = self.source.cut()
        self.proven = Proven(cut.manifest, Leaves(cut.manifest), cut.digests, cut.root)
        self.source.arena.withdraw()
        self.target = Engine.install(world, self.proven, HandedOver.take(self.source.arena), SystemClock(), lanes)
        if watched_early:
            self.target.arena.make_ready(self.source.arena.occupied(), watched=True)
        self.target.arena.own()
        self.at_rest = sorted(leaves_at_rest(cut.manifest))

    def write_late(self, number):
        """Through a mapping of its own, which no fence reaches."""
        extent = tuple(self.proven.manifest.leaves())[number]
        with Arena.attach(self.source.arena.fd, self.source.arena.capacity, writable=True) as other:
            other.bytes_at(extent)[extent.nbytes // 2] ^= 1

    def close(self):
        self.target.close()
        self.source.close()


@pytest.fixture(params=[False, True], ids=["watched after", "watched before"])
def over(lanes, request):
    over = HandOver(lanes, request.param)
    yield over
    over.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_late_write_anywhere_in_what_was_read_early_ends_the_session_before_a_block_is_shown(over, seed):
    over.write_late(Random(seed).choice(over.at_rest))
    over.target.read_again(over.proven, over.at_rest)
    with pytest.raises(Corrupt, match="somebody else"):
        over.target.step(2, 1, witness=False)
    with pytest.raises(Corrupt, match="somebody else"):
        over.target.cut()


def test_a_late_write_is_found_where_the_session_is_captured_before_its_first_block(over):
    over.write_late(over.at_rest[0])
    over.target.read_again(over.proven, over.at_rest)
    with pytest.raises(Corrupt, match="somebody else"):
        over.target.cut()


def test_what_the_first_block_writes_itself_is_nobody_elses_and_the_session_is_its_twin(over, lanes):
    over.target.read_again(over.proven, range(len(over.proven.digests)))
    world = LoadWorld(OPTIONS)
    twin = Engine.open(world, 3, Arena.create(arena_capacity(world.state_bytes_max), "twin"), SystemClock(), lanes)
    twin.step(1, 1, witness=False)
    for number in (2, 3):
        made, same = (engine.step(number, 2, witness=True) for engine in (over.target, twin))
        assert made.root == same.root
    twin.close()


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("order", ["ready, owned", "owned, ready", "owned"])
def test_an_owner_has_one_mapping_whether_what_it_needs_was_ready_in_time_or_not(order, watched):
    with Arena.create(1 << 20, "one-mapping") as arena:
        arena.bytes_at(Extent(0, 1))[0] = 7
        inode = os.fstat(arena.fd).st_ino
        taken = HandedOver.take(arena)
        arena.withdraw()
        for step in order.split(", "):
            if step == "ready":
                taken.make_ready([Extent(0, 4096)], watched)
            else:
                taken.own()
        assert taken.bytes_at(Extent(0, 1))[0] == 7
        arena.close()
        assert len(_shared_mappings(inode)) == 1
        taken.close()
        assert not _shared_mappings(inode)


def _shared_mappings(inode):
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    return [line for line in lines if line[4] == str(inode) and line[1] == "rw-s"]
