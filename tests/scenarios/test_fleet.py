"""The life of a fleet: it starts whole, mends itself, and leaves no process behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import worldline
from worldline.errors import BadValue, StateLost, UnknownHost, WorldlineError
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.schema.contract import Contract
from worldline.service.client import Client

TINY = "worldline.testing.tiny:TinyWorld"
WAIT_S = 60


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def until(holds):
    """Waits; the test's own limit ends it."""
    while not holds():
        time.sleep(0.02)


@pytest.fixture
def pair():
    with worldline.local_fleet(hosts=2, worlds=[TINY]) as fleet:
        yield fleet


def test_ten_lines_of_python_are_enough(pair):
    session = pair.open(TINY, seed=7, host="a")
    session.step("left")
    receipt = session.move("b", mode="precopy", transport="tcp").receipt
    assert receipt.source_root == receipt.target_root
    assert session.step("right")[0].host == "b"
    assert session.close().status == "closed"


def test_a_host_that_is_killed_takes_its_sessions_and_comes_back_empty(pair):
    session, other = pair.open(TINY, host="a"), pair.open(TINY, host="b")
    session.step(1, 2)
    other.step(1)
    pid = pair.fleet.pid("a")
    pair.fleet.kill("a")
    until(lambda: session.describe().status == "lost")
    until(lambda: pair.fleet.pid("a") not in {None, pid})
    pair.fleet.wait_alive("a")
    for verb in (lambda: session.step(0), lambda: session.move("b"), session.park):
        with pytest.raises(StateLost):
            verb()
    assert other.step(2)[0].block == 2
    assert pair.open(TINY, host="a").step(0)[0].block == 1
    assert session.close().status == "closed"


def test_a_target_that_is_killed_in_a_move_leaves_the_source_playing_and_can_be_moved_to_later():
    with worldline.local_fleet(hosts=2, faults=True, worlds=[TINY]) as fleet:
        session = fleet.open(TINY, seed=7, host="a", contract=Contract(pause_bound_s=20.0, completion_deadline_s=60.0))
        session.step(1)
        pid = fleet.fleet.pid("b")
        with pytest.raises(WorldlineError) as refused:
            session.move("b", fault="kill-target")
        assert refused.value.code in {"HOST_GONE", "LINK_CUT"}
        assert session.step(2)[0].host == "a"
        until(lambda: fleet.fleet.pid("b") not in {None, pid})
        fleet.fleet.wait_alive("b")
        assert session.move("b").receipt is not None
        assert session.step(3)[0].block == 3


def test_a_gateway_that_is_killed_comes_back_at_its_address_and_the_sessions_have_played_on(pair):
    session = pair.open(TINY, seed=7)
    session.step(1, 2)
    pid = pair.fleet.pid("gateway")
    pair.fleet.kill("gateway")
    until(lambda: pair.fleet.pid("gateway") not in {None, pid})

    def answers():
        try:
            return pair.describe(session.id).status == "running"
        except WorldlineError:
            return False

    until(answers)
    assert [block.block for block in session.step(3, 4)] == [3, 4]


def test_hosts_can_join_and_leave(pair):
    with pytest.raises(BadValue):
        pair.fleet.start_host("a")
    pair.fleet.start_host("late")
    session = pair.open(TINY, host="a")
    assert session.move("late").receipt is not None
    pid = pair.fleet.pid("late")
    pair.fleet.stop_host("late")
    assert not lives(pid)
    with pytest.raises(UnknownHost):
        pair.fleet.stop_host("late")
    until(lambda: session.describe().status == "lost")


def test_a_record_outlives_its_fleet_and_parked_sessions_resume(tmp_path):
    plan = FleetPlan(hosts=("a",), run_dir=tmp_path / "run", worlds=(TINY,))
    with Fleet.start(plan) as fleet, Client(fleet.url) as client:
        parked, running = client.open(TINY, seed=7), client.open(TINY, seed=8)
        parked.step(1, 2)
        parked.park()
    with Fleet.start(plan) as fleet, Client(fleet.url) as client:
        assert client.session(running.id).describe().status == "lost"
        again = client.session(parked.id)
        again.resume()
        assert again.step(3)[0].block == 3


def test_a_supervisor_that_is_killed_leaves_no_process_behind(tmp_path):
    code = f"""
import sys, time
from pathlib import Path
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
fleet = Fleet.start(FleetPlan(hosts=("a",), run_dir=Path({str(tmp_path / "run")!r})))
print(*(fleet.pid(name) for name in ("a", "controller", "gateway")), flush=True)
time.sleep(600)
"""
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with supervisor:
        pids = [int(pid) for pid in supervisor.stdout.readline().split()]
        assert len(pids) == 3
        assert all(lives(pid) for pid in pids)
        os.kill(supervisor.pid, signal.SIGKILL)
        supervisor.wait()
    until(lambda: not any(lives(pid) for pid in pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_start_that_is_interrupted_ends_at_once_and_leaves_no_process_behind(tmp_path, number):
    run_dir = str(tmp_path / "run")
    words = [sys.executable, "-c", "import sys; from worldline.cli import main; sys.exit(main())", "up"]
    with subprocess.Popen([*words, "--dir", run_dir, "--port", "0"], stderr=subprocess.PIPE, text=True) as starting:
        until(lambda: members_of(run_dir))
        starting.send_signal(number)
        assert starting.wait(WAIT_S) == 130
        assert "Traceback" not in starting.stderr.read()
    assert members_of(run_dir) == []


def members_of(run_dir):
    """Processes that were started with this directory, but for their supervisor."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(path.read_bytes())
    return [line for line in found if run_dir.encode() in line and b"fleet_child" in line]


def test_a_member_that_can_not_start_is_told_with_its_last_words(tmp_path):
    with pytest.raises(WorldlineError) as refused:
        Fleet.start(FleetPlan(hosts=("a",), run_dir=tmp_path / "run", memory_bytes=-1, restarts=False))
    assert "memory" in str(refused.value.facts)


def test_a_port_in_use_is_said_at_once_and_nothing_is_left_running(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadValue, match=f"port {port} of 127.0.0.1 can't be used"):
            Fleet.start(FleetPlan(hosts=("a",), run_dir=tmp_path / "run", port=port))


def test_two_fleets_do_not_share_a_folder(tmp_path):
    plan = FleetPlan(hosts=("a",), run_dir=tmp_path / "run")
    with Fleet.start(plan) as fleet, Client(fleet.url) as client:
        with pytest.raises(BadValue, match="another fleet runs in"):
            Fleet.start(plan)
        assert [host.alive for host in client.hosts()] == [True]
    Fleet.start(plan).close()


def test_a_plan_that_makes_no_sense_is_refused():
    for wrong in (
        {"hosts": ()},
        {"hosts": ("a", "a")},
        {"hosts": ("A b",)},
        {"cpu_capabilities": {"z": "avx2"}},
        {"cpu_capabilities": {"a": "avx3"}},
    ):
        with pytest.raises(BadValue):
            FleetPlan(**wrong)
