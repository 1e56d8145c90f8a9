"""An emulated fabric on this machine: namespaces, shaped ports, faults, and a fleet that lives in it."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from worldline.clock import SystemClock
from worldline.errors import BadValue, MissingExtra, Unauthenticated, UnknownHost, Unsupported
from worldline.lab.fabric import CONTROL_TOS, Fabric, tcp_counters
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.service.client import Client
from worldline.transport.certificates import make_certificates
from worldline.transport.private_network import check_private
from worldline.transport.tcp import TcpTransport

WAIT_S = 20
TINY = "worldline.testing.tiny:TinyWorld"


@pytest.fixture(scope="module")
def fabric():
    try:
        laid = Fabric(hosts=3, rate="1Gbit")
    except (Unsupported, MissingExtra) as error:
        pytest.skip(error.sentence)
    with laid:
        yield laid


def connection(fabric, source, target):
    """A connected pair of sockets, one in each host."""

    def listening():
        sock = socket.socket()
        sock.bind((fabric.address(target), 0))
        sock.listen()
        return sock

    with fabric.call(target, listening) as listener:
        place = listener.getsockname()
        near = fabric.call(source, lambda: socket.create_connection(place, WAIT_S))
        far, _ = listener.accept()
    return near, far


def pour(near, far, nbytes):
    """All of `nbytes` from one to the other."""
    got = bytearray(1 << 20)

    def drain():
        left = nbytes
        while left:
            left -= far.recv_into(got, min(left, len(got)))

    reader = threading.Thread(target=drain)
    reader.start()
    near.sendall(bytes(nbytes))
    reader.join(WAIT_S)
    assert not reader.is_alive()


def test_hosts_reach_each_other_and_count_what_passed(fabric):
    near, far = connection(fabric, "a", "b")
    with near, far:
        before = fabric.counters("b")
        pour(near, far, 4 << 20)
        after = fabric.counters("b")
        assert after.sent_bytes - before.sent_bytes > 4 << 20
        assert tcp_counters(near).bytes_sent >= 4 << 20
        assert tcp_counters(far).bytes_received == 4 << 20


def test_control_packets_go_in_a_class_of_their_own(fabric):
    near, far = connection(fabric, "a", "c")
    with near, far:
        near.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, CONTROL_TOS)
        before = fabric.counters("c").control_bytes
        pour(near, far, 100_000)
        assert fabric.counters("c").control_bytes - before > 100_000


def test_a_program_runs_in_a_hosts_network_and_no_other(fabric):
    told = fabric.run("b", ["ip", "-4", "-br", "address"]).stdout.decode()
    assert f"{fabric.address('b')}/24" in told
    assert fabric.address("a") not in told
    assert all(name in ("lo", "eth0") for name in (line.split("@")[0].split()[0] for line in told.splitlines()))


def test_nothing_leads_out_of_a_fabric(fabric):
    with pytest.raises(OSError, match="unreachable"):
        fabric.call("a", lambda: socket.create_connection(("192.0.2.1", 80), 1))


def test_a_host_that_was_cut_off_is_silent_until_it_is_healed(fabric):
    """1. A connection stands. 2. Its host is cut off: what is sent is not acknowledged. 3. Healed, it arrives."""
    near, far = connection(fabric, "a", "b")
    with near, far:
        fabric.cut("b")
        far.settimeout(0.3)
        near.sendall(b"x")
        with pytest.raises(TimeoutError):
            far.recv(1)
        assert tcp_counters(near).bytes_acked < 2
        fabric.heal("b")
        far.settimeout(WAIT_S)
        assert far.recv(1) == b"x"


def test_lost_packets_are_sent_again(fabric):
    """A packet is up to 64 KiB here, and one in twenty is lost: of 2 MiB perhaps none, of forty times that one is."""
    near, far = connection(fabric, "a", "b")
    with near, far:
        fabric.lose("b", 0.05)
        try:
            for _ in range(40):
                pour(near, far, 2 << 20)
                if tcp_counters(near).bytes_retransmitted > 0:
                    break
        finally:
            fabric.heal("b")
        assert tcp_counters(near).bytes_retransmitted > 0


def test_a_host_that_is_not_there_is_named(fabric):
    with pytest.raises(UnknownHost, match="a, b, c"):
        fabric.address("z")


@pytest.mark.parametrize("hosts", [0, ["a", "a"], ["long-name-of-a-host-1", "long-name-of-a-host-2"]])
def test_a_fabric_that_makes_no_sense_is_refused(hosts):
    with pytest.raises(BadValue):
        Fabric(hosts)


OWNER = """
import sys
from worldline.lab.fabric import Fabric
fabric = Fabric(2)
child = fabric.popen("a", ["sh", "-c", "echo $$; readlink /proc/self/ns/net; exec sleep 1000"])
sys.stdin.read()
"""


def test_a_killed_owner_leaves_no_process_and_no_namespace_behind(fabric):
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        pid = int(owner.stdout.readline())
        watch = os.pidfd_open(pid)
        namespace = owner.stdout.readline().decode().strip()
        assert namespace != str(Path("/proc/self/ns/net").readlink())
        owner.send_signal(signal.SIGKILL)
        owner.wait(WAIT_S)
    readable, _, _ = select.select([watch], [], [], WAIT_S)
    os.close(watch)
    assert readable, "the child ended with its owner"
    held = set()
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            held.add(str(entry.readlink()))
    assert namespace not in held


def test_it_needs_no_root_where_user_namespaces_are_allowed(fabric):
    code = "from worldline.lab.fabric import Fabric\nwith Fabric(2, '1Gbit') as f: print(f.address('b'))"
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    if "unshare" in done.stderr and "perm" in done.stderr.lower():
        pytest.skip("this machine allows no user namespaces")
    assert done.stdout.strip() == fabric.address("b"), done.stderr


# ---- links without certificates


def test_a_network_that_no_fabric_laid_is_not_private():
    with pytest.raises((Unauthenticated, MissingExtra)):
        check_private("10.77.0.1")
    with pytest.raises((Unauthenticated, MissingExtra)):
        TcpTransport(None, "10.77.0.1", fabric_private=True)


def test_a_fabrics_network_is_private_until_a_way_out_is_added(fabric):
    fabric.call("c", lambda: check_private(fabric.address("c")))
    fabric.run("c", ["ip", "route", "add", "default", "via", fabric.address("a")])
    try:
        with pytest.raises(Unauthenticated, match="leads out"):
            fabric.call("c", lambda: check_private(fabric.address("c")))
    finally:
        fabric.run("c", ["ip", "route", "del", "default"])
    with pytest.raises(Unauthenticated, match="not this host's"):
        fabric.call("c", lambda: check_private(fabric.address("a")))


def test_without_asking_for_it_a_fabrics_address_needs_certificates(fabric):
    with pytest.raises(Unauthenticated, match="without certificates"):
        fabric.call("c", lambda: TcpTransport(None, fabric.address("c")))


# ---- a fleet in it


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_session_moves_across_the_fabric(fabric, tmp_path, tls):
    folder = None
    if tls:
        folder = tmp_path / "tls"
        make_certificates(folder, fabric.hosts, SystemClock().wall_s())
    plan = fabric.place(FleetPlan(hosts=("a", "b"), worlds=(TINY,), memory_bytes=128 << 20, tls=folder))
    before = fabric.counters("b").sent_bytes
    with Fleet.start(plan) as fleet, Client(fleet.url) as client:
        session = client.open(TINY, host="a")
        session.step("left")
        receipt = session.move("b", transport="tcp").receipt
        assert receipt.source_root == receipt.target_root
        assert session.step("right")[0].host == "b"
    assert fabric.counters("b").sent_bytes > before
