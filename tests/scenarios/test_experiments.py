"""Slices of the experiments that run on an emulated fabric: counts of bytes and of timeouts, and never a time."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from worldline.cli import main
from worldline.clock import SystemClock
from worldline.errors import MissingExtra, Unsupported
from worldline.lab.experiments.go_back_n import Receiver, Sender, packets_of, receiving_socket
from worldline.lab.experiments.tcp_blocks import hang_up
from worldline.lab.fabric import Fabric


@pytest.fixture(scope="module", autouse=True)
def needs_a_fabric():
    try:
        Fabric(hosts=1, rate="1Gbit").close()
    except (Unsupported, MissingExtra) as error:
        pytest.skip(error.sentence)


def results(folder, name):
    return json.loads((folder / "data.json").read_text())["results"][name]


def test_a_token_each_sends_what_is_needed_and_all_at_once_sends_it_many_times(tmp_path):
    main(["experiment", "incast", "--flows", "6", "--rounds", "1", "--moves", "1", "--out", str(tmp_path)])
    found = results(tmp_path, "incast")
    assert found["scheduled"] <= 1.05
    assert found["unscheduled"] >= 2.0
    assert found["scheduled_timeouts"] == 0
    assert found["freeze"]["inline"]["sent_over_needed"] > found["freeze"]["control"]["sent_over_needed"]


def test_what_checks_leave_of_the_line_is_reported_by_the_engines_speed(tmp_path):
    main(["experiment", "stall", "--mebibytes", "2", "--rate", "2Gbit", "--out", str(tmp_path)])
    found = results(tmp_path, "stall")
    assert [each["engine"] for each in found["engines"]] == [0.75, 1.0, 2.0, 4.0]
    assert (tmp_path / "figures" / "stall.svg").exists()


def test_whoever_still_sends_is_woken_when_the_run_is_broken_off():
    near, far = socket.socketpair()
    with near, far, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(near.sendall, bytes(64 << 20))
        assert far.recv(1)  # it is under way, and nobody will read the rest
        hang_up(near)
        assert isinstance(sending.exception(), OSError)


def test_a_sender_goes_back_to_what_was_lost_and_every_packet_arrives_once():
    with receiving_socket("127.0.0.1", 1 << 20) as sink, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
        taken = []
        clock = SystemClock()
        forgetful = _Forgetful(sink, lost={3, 20, 21})
        with Receiver(forgetful, clock, taken.append, chunk_bytes=8192):
            sent = Sender(source, sink.getsockname(), clock, None).send(40 * 8192, flow=7)
    assert len(taken) == packets_of(40 * 8192) == 40
    assert sent.times_back >= 1
    assert sent.sent_bytes > sent.needed_bytes


class _Forgetful:
    """A socket that loses some of what it receives, by order."""

    def __init__(self, sock, lost):
        self._sock = sock
        self._lost = lost
        self._count = -1

    def __getattr__(self, name):
        return getattr(self._sock, name)

    def recvfrom(self, nbytes):
        while True:
            got = self._sock.recvfrom(nbytes)
            self._count += 1
            if self._count not in self._lost:
                return got


def test_returns_hot_and_at_first_touch_are_measured_and_cold_ones_kept_apart(tmp_path):
    assert main(["experiment", "prewarm", "--rounds", "5", "--state", "20MB", "--out", str(tmp_path)]) == 0
    found = results(tmp_path, "prewarm")
    assert all(found["times"][each] > 0 for each in ("hot", "first_touch", "cold_reopen", "keeping"))
    rates = [each["reactivations_per_hour"] for each in found["thresholds"]]
    assert rates == sorted(rates, reverse=True)
    assert "Not exact" in (tmp_path / "report.md").read_text()
