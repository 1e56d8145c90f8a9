"""Named faults in a fleet of real processes: each step of a hand-over, each victim, and what must hold afterwards.

The whole matrix runs over the simulation (`tests/simulation/test_crash_matrix.py`); this is a slice of it over real
processes, signals and sockets.
"""

import asyncio
import contextlib
import time

import pytest

from worldline.errors import HostGone, StateLost, Unavailable, WorldlineError
from worldline.runtime import rpc
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.runtime.messages import Describe, HostFacts
from worldline.runtime.run_dir import host_socket
from worldline.schema.contract import Contract
from worldline.service.client import Client
from worldline.testing.tiny import TinyWorld
from worldline.testing.torture_census import Census
from worldline.worlds.scratch import ScratchMemory

TINY = "worldline.testing.tiny:TinyWorld"
HOSTS = ("a", "b", "c")
CONTRACT = Contract(pause_bound_s=5.0, completion_deadline_s=6.0)
WAIT_S = 60
DONE, REFUSED, RETURNED, LOST = "done", "refused", "returned", "lost"
FATE_OF_EPOCH = {1: REFUSED, 2: DONE, 3: RETURNED}


@pytest.fixture(scope="module")
def fleet():
    with Fleet.start(FleetPlan(hosts=HOSTS, faults=True, worlds=(TINY,), memory_bytes=64 << 20)) as started:
        yield started


@pytest.fixture(scope="module")
def census():
    return Census()


@pytest.fixture
def client(fleet):
    with Client(fleet.url) as connected:
        yield connected


def until(what, holds):
    """Waits until `holds` is truthy, and returns it; no answer is not yet."""
    ends_s = time.monotonic() + WAIT_S
    while True:
        try:
            found = holds()
        except Unavailable:
            found = None
        if found:
            return found
        assert time.monotonic() < ends_s, what
        time.sleep(0.1)


class Walk:
    """A session that is played beside a twin in this process: every block that is shown is the twin's."""

    def __init__(self, client, seed):
        living = until("hosts", lambda: all(host.alive for host in client.hosts()) and client.hosts())
        assert len(living) == len(HOSTS)
        self.session = client.open(TINY, seed=seed, contract=CONTRACT, host="a")
        self._twin = TinyWorld({}).open(seed, ScratchMemory())
        self._number = 0

    def play(self, blocks):
        for _ in range(blocks):
            self._number += 1
            number, action = self._number, self._number % 5
            (block,) = until(f"block {number}", lambda: self.session.step(action, first=number, frames="raw"))  # noqa: B023
            assert (block.block, block.number) == (number, number)
            assert b"".join(block.frames) == self._twin.step(action).tobytes()


async def _ask_all(run_dir):
    """Hosts' own facts, asked one by one and not through the controller."""
    found = []
    for host in HOSTS:
        try:
            peer = await rpc.connect(host_socket(run_dir, host), HostFacts, None, HostGone(host))
        except WorldlineError:
            continue
        found.append(await peer.call(Describe(), HostFacts, WAIT_S))
        await peer.close()
    return found


def holders(fleet, session):
    """Hosts that hold the session, each with its epoch."""
    facts = asyncio.run(_ask_all(fleet.run_dir))
    return [(host.host, held.epoch) for host in facts for held in host.sessions if held.session == session.id]


def assert_one_owner(fleet, session):
    def owned():
        row = session.describe()
        return holders(fleet, session) == [(row.host, row.epoch)]

    until("one host holds the session, the record's", owned)


def assert_nothing_is_kept(fleet, census, session):
    def idle():
        facts = asyncio.run(_ask_all(fleet.run_dir))
        return len(facts) == len(HOSTS) and all(host.memory_used_bytes == 0 for host in facts)

    until("nobody holds it", lambda: holders(fleet, session) == [])
    until("its memory is given back", idle)
    members = {name: pid for name in (*HOSTS, "controller", "gateway") if (pid := fleet.pid(name)) is not None}
    until("descriptors, threads and shared memory are as before", lambda: census.leaks(members) == [])
    census.settle(members)


CELLS = [
    # What happens may depend on how soon it is heard of: where it may, both are honest. A member that ends again and
    # again is started after longer and longer pauses, so victims take turns.
    (None, "tcp", "precopy", {DONE}),
    (None, "shm", "freeze", {DONE}),
    ("kill-source@prepare", "tcp", "precopy", {LOST}),
    ("stop-source@run,2", "tcp", "precopy", {DONE}),
    ("kill-target@prepare", "shm", "freeze", {REFUSED}),
    ("kill-controller@prepare", "tcp", "precopy", {REFUSED}),
    ("stop-source@swap", "tcp", "freeze", {DONE}),
    ("kill-source@run", "shm", "freeze", {LOST}),
    ("stop-target@activate", "shm", "precopy", {DONE}),
    ("kill-target", "tcp", "precopy", {REFUSED}),
    ("kill-controller@swap", "shm", "freeze", {REFUSED}),
    ("lose-answer@run", "tcp", "freeze", {DONE, REFUSED}),
    ("kill-source@run,4", "tcp", "precopy", {LOST, DONE}),
    ("lose-answer@activate", "tcp", "precopy", {DONE}),
    ("kill-target@swap", "tcp", "freeze", {RETURNED}),
    ("kill-controller@activate", "tcp", "precopy", {DONE}),
    ("enospc@swap", "shm", "precopy", {REFUSED}),
    ("kill-source@swap", "tcp", "precopy", {DONE}),
    ("eio@end", "tcp", "precopy", {DONE}),
    ("kill-target@activate", "shm", "precopy", {LOST}),
    ("kill-controller@retire", "shm", "freeze", {DONE}),
    ("store-unreachable", "tcp", "precopy", {DONE}),
    ("kill-target@swap", "shm", "freeze", {RETURNED, LOST}),
    ("kill-source@retire", "tcp", "freeze", {DONE}),
    ("cut", "tcp", "precopy", {REFUSED}),
    ("flip", "shm", "freeze", {REFUSED}),
    ("kill-source@retire", "shm", "precopy", {DONE}),
]


@pytest.mark.parametrize(
    ("fault", "transport", "mode", "fates"), CELLS, ids=["-".join(map(str, cell[:3])) for cell in CELLS]
)
def test_whatever_is_struck_at_whatever_step_one_owner_plays_on_or_the_loss_is_told(
    fleet, client, census, fault, transport, mode, fates
):
    """1 play  2 a move, and in it the blow  3 rest  4 one owner, like its twin, or lost with a reason  5 the next move
    succeeds  6 nothing is kept.
    """
    walk = Walk(client, seed=11)
    session = walk.session
    walk.play(3)
    with contextlib.suppress(WorldlineError):  # what became of it, the record says
        session.move("b", mode=mode, transport=transport, fault=fault)
    row = until("rest", lambda: (found := session.describe()).status != "moving" and found)
    if row.host is not None and row.status != "lost":
        until("the owner lives", lambda: all(host.alive for host in client.hosts()))
        row = session.describe()
    fate = LOST if row.status == "lost" else FATE_OF_EPOCH[row.epoch]
    assert fate in fates, row
    if fate == LOST:
        assert row.why
        with pytest.raises(StateLost):
            session.step(0)
    else:
        assert row.host == ("b" if fate == DONE else "a")
        walk.play(2)
        assert_one_owner(fleet, session)
        until("hosts", lambda: all(host.alive for host in client.hosts()))
        assert session.move("c", mode=mode, transport=transport).receipt is not None
        walk.play(2)
        assert_one_owner(fleet, session)
    session.close()
    assert_nothing_is_kept(fleet, census, session)


def test_a_target_that_is_killed_before_it_plays_leaves_the_session_playing_at_its_source(fleet, client, census):
    """1 play  2 the target is killed once it owns the session  3 the move says so  4 the source plays on, two epochs
    later, like the twin  5 the next move succeeds  6 nothing is kept.
    """
    walk = Walk(client, seed=13)
    session = walk.session
    walk.play(3)
    with pytest.raises(HostGone, match="b ended before it was known to play") as refused:
        session.move("b", transport="tcp", fault="kill-target@activate")
    row, move = session.describe(), client.move(refused.value.facts["move"])
    assert (row.status, row.host, row.epoch, row.cut_block) == ("running", "a", 3, 3)
    assert (move.outcome, move.error.code) == ("returned", "HOST_GONE")
    assert row.why == move.error.sentence
    assert any("RETURNED: a owns epoch 3" in line for line in move.story)
    assert not any("ACTIVATED" in line for line in move.story)
    assert client.receipt(row.receipts[-1]).epoch == 2
    walk.play(3)
    assert_one_owner(fleet, session)
    assert session.move("c", transport="tcp").receipt is not None
    assert (session.describe().epoch, session.describe().why) == (4, None)
    walk.play(2)
    assert_one_owner(fleet, session)
    until("hosts", lambda: all(host.alive for host in client.hosts()))
    session.close()
    assert_nothing_is_kept(fleet, census, session)


def test_a_host_that_is_killed_before_it_plays_leaves_a_resumed_session_in_its_image(fleet, client):
    walk = Walk(client, seed=14)
    session = walk.session
    walk.play(2)
    parked = session.park()
    with pytest.raises(HostGone, match="back at its image"):
        session.resume("b", fault="kill-target@activate")
    row = until("rest", lambda: (found := session.describe()).status != "moving" and found)
    assert (row.status, row.host, row.epoch, row.image) == ("parked", None, parked.epoch + 2, parked.image)
    assert session.resume("c").epoch == parked.epoch + 3
    walk.play(2)
    assert_one_owner(fleet, session)
    session.close()


@pytest.mark.parametrize(
    "fault",
    [
        "enospc,3",
        "eio",
        "short-write,2",
        "kill-controller@swap",
        "kill-controller@retire",
        "lose-answer@run",
        "enospc@swap",
    ],
)
def test_a_park_that_is_struck_leaves_the_session_playing_or_a_whole_image(fleet, client, fault):
    walk = Walk(client, seed=12)
    session = walk.session
    walk.play(2)
    with contextlib.suppress(WorldlineError):  # what became of it, the record says
        session.park(fault=fault)
    row = until("rest", lambda: (found := session.describe()).status != "moving" and found)
    assert row.status in {"running", "parked"}
    if row.status == "running":
        walk.play(1)
        until("the next park", session.park)
    session.resume("b")
    walk.play(2)
    assert_one_owner(fleet, session)
    session.close()
