"""Hosts as processes of their own: a driver plays, the session moves under its hands, and an unmoved twin agrees."""

import asyncio
import contextlib
import subprocess
import sys

import pytest

from scenarios.duet import connected, processes, spec, start, stop
from worldline.errors import HostGone, NoCapacity, PlanMismatch
from worldline.runtime import messages as wire
from worldline.schema.receipt import Mode

HOPS = [("tcp", Mode.FREEZE), ("tcp", Mode.PRECOPY), ("shm", Mode.FREEZE), ("shm", Mode.PRECOPY)]
WORLDS = {
    "tiny": spec(block_period_ms=5.0),
    "load": spec("load", bytes="64MB", block_period_ms=100.0),
    "reference": spec("reference"),
}


@contextlib.asynccontextmanager
async def playing(stage, session):
    """A driver that sends an action for each block it has seen, whatever happens to the session meanwhile."""

    async def drive():
        player = stage.players[session]
        while True:
            stage.act(session, player.sent % 5)
            await player.wait_for(player.sent)

    driver = asyncio.create_task(drive())
    try:
        yield
    finally:
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        await stage.players[session].wait_for(stage.players[session].sent)


async def assert_like_its_twin(stage):
    walk, twin = stage.players["walk"], stage.players["twin"]
    for action in walk.actions[twin.sent :]:
        stage.act("twin", action)
        await twin.wait_for(twin.sent)
    for block, other in zip(walk.blocks, twin.blocks, strict=True):
        ours = (block.block, block.number, block.frame, block.digest, block.root)
        assert ours == (other.block, other.number, other.frame, other.digest, other.root)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two hosts that all tests of this module share, but those that kill: starting torch costs seconds."""
    run_dir = tmp_path_factory.mktemp("pair")
    started = start(run_dir, "a", "b")
    yield run_dir, started
    stop(started)


@pytest.mark.parametrize("world", WORLDS)
async def test_a_session_moves_there_and_back_while_it_is_played_and_equals_its_twin(pair, world):
    async with connected(*pair) as stage:
        await stage.open("twin", "b", WORLDS[world])
        await stage.open("walk", "a", WORLDS[world])
        await stage.play("walk", 2)
        async with playing(stage, "walk"):
            for n, (transport, mode) in enumerate(HOPS):
                receipt, _ = await stage.move("walk", "ba"[n % 2], transport, mode)
                assert receipt.source_root == receipt.target_root
                await stage.players["walk"].wait_for(receipt.block + 2)
        await assert_like_its_twin(stage)
        for session, (host, epoch, *_) in stage.owners.items():
            await stage.call(host, wire.CloseSession(session, epoch))
        assert [(await stage.facts(host)).memory_used_bytes for host in "ab"] == [0, 0]


async def test_a_second_host_of_one_name_is_refused_and_the_first_plays_on(pair):
    run_dir, started = pair
    async with connected(run_dir, started) as stage:
        await stage.open("walk", "a")
        second = await asyncio.to_thread(_run_second, run_dir)
        assert second.returncode == 2
        assert b"another process listens" in second.stderr
        await stage.play("walk", 2)


def _run_second(run_dir):
    command = ["-m", "worldline.runtime.host", "--name", "a", "--dir", str(run_dir / "run"), "--memory", "1GB"]
    return subprocess.run([sys.executable, *command], capture_output=True, timeout=100, check=False)


async def test_a_dead_target_costs_the_move_alone_and_a_dead_source_costs_nothing_after_it(tmp_path):
    """1. The target dies in the middle of the transfer. 2. The source plays on. 3. The next move succeeds. 4. The
    source is killed. 5. The session goes on like its twin.
    """
    async with processes(tmp_path, "a", "b", "c") as stage:
        await stage.open("walk", "a")
        await stage.open("twin", "c")
        async with playing(stage, "walk"):
            with pytest.raises(HostGone):
                await stage.move("walk", "b", "tcp", Mode.FREEZE, "kill-target")
            await asyncio.to_thread(stage.processes["b"].wait, 30)
            await stage.players["walk"].wait_for(len(stage.players["walk"].blocks) + 3)
        await stage.move("walk", "c", "shm", Mode.PRECOPY)
        stage.processes["a"].kill()
        await asyncio.to_thread(stage.processes["a"].wait, 30)
        await stage.play("walk", 3)
        await assert_like_its_twin(stage)


async def test_a_host_ends_in_order_on_sigterm_and_comes_back_as_another_generation(tmp_path):
    memory = ("--memory", "200kB")
    async with processes(tmp_path, "a", arguments=memory) as stage:
        for session in ("walk", "run"):
            await stage.open(session, "a")
        with pytest.raises(NoCapacity):
            await stage.open("fly", "a")
        await stage.play("walk", 2)
        before = await stage.facts("a")
        assert before.memory_bytes == 200_000
        stage.processes["a"].terminate()
        assert await asyncio.to_thread(stage.processes["a"].wait, 30) == 0
        with pytest.raises(HostGone):
            await stage.facts("a")
    assert "ended in order" in (tmp_path / "a.log").read_text()
    assert not (tmp_path / "run" / "host-a.sock").exists()
    async with processes(tmp_path, "a") as stage:
        after = await stage.facts("a")
        assert (after.generation != before.generation, after.sessions) == (True, [])


async def test_a_host_with_default_kernels_refuses_a_session_of_one_with_faster_ones(pair):
    run_dir, started = pair
    async with connected(run_dir, started) as stage, _with_kernels(run_dir, "default") as other:
        stage.peers["c"] = other.peers["c"]
        await stage.open("walk", "a", spec("reference"))
        await stage.play("walk", 1)
        (facts,) = (await stage.facts("a")).sessions
        if dict(facts.plan.facts)["torch.cpu_capability"] == "DEFAULT":
            pytest.skip("this machine has but one set of kernels")
        with pytest.raises(PlanMismatch, match="cpu_capability"):
            await stage.move("walk", "c", "tcp")
        await stage.play("walk", 1)


def _with_kernels(run_dir, capability):
    return processes(run_dir, "c", arguments=("--cpu-capability", capability))
