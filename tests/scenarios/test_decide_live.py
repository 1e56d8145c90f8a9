"""`worldline decide` about a live session: its state, its contract and what its own moves measured."""

from __future__ import annotations

import json

import pytest

from worldline.cli import main
from worldline.schema.contract import Contract

PATIENT = Contract(pause_bound_s=30.0, completion_deadline_s=30.0)


def decided(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict]:
    code = main(["decide", *argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_live_sessions_facts_come_from_its_host_and_rates_from_its_moves(fleet, client, capsys):
    session = client.open("load", host="a", options={"bytes": "4MB"})
    about = ("--session", session.id, "--target", "b", "--url", fleet.url)
    code, answer = decided(capsys, *about)
    assert (code, answer["error"]["code"]) == (2, "BAD_VALUE")  # nobody has measured the wire yet
    _, answer = decided(capsys, *about, "--bandwidth", "1GB/s")
    assert "as host a has it" in answer["facts"]["state"]
    session.move("b")
    receipt = client.receipt(client.describe(session.id).receipts[-1])
    back = ("--session", session.id, "--target", "a", "--url", fleet.url)
    _, answer = decided(capsys, *back)
    assert answer["bandwidth_bytes_per_s"] > 0
    assert "last moves over a link (1)" in answer["facts"]["bandwidth"]
    assert answer["overhead_s"] == receipt.pause_s
    # Nobody acted while it moved, so nobody knows how fast it is rewritten.
    assert (answer["dirty_bytes_per_s"], answer["modes"]["precopy"]["reason"]) == (None, "unknown")
    assert answer["choice"] not in {"precopy", "rolls"}
    code, answer = decided(capsys, *back, "--dirty", "0")
    assert (code, answer["choice"]) == (0, "precopy")
    assert answer["modes"]["precopy"]["pause_s"] >= receipt.pause_s


def test_a_target_that_makes_no_sense_is_refused(fleet, client, capsys):
    session = client.open("load", host="a", options={"bytes": "4MB"})
    for target, name in (("a", "ALREADY_THERE"), ("zz", "UNKNOWN_HOST")):
        _, answer = decided(capsys, "--session", session.id, "--target", target, "--url", fleet.url)
        assert answer["error"]["code"] == name


def test_a_target_that_takes_no_sessions_is_refused(fleet, client, capsys):
    session = client.open("load", host="a", options={"bytes": "4MB"})
    about = ("--session", session.id, "--target", "b", "--bandwidth", "1GB/s", "--url", fleet.url)
    client.cordon("b")
    try:
        assert decided(capsys, *about)[1]["error"]["code"] == "HOST_CORDONED"
    finally:
        client.uncordon("b")


def test_a_session_that_could_not_be_moved_gets_the_answer_of_a_move(fleet, client, capsys):
    session = client.open("load", host="a", options={"bytes": "4MB"}, contract=PATIENT)
    about = ("--session", session.id, "--target", "b", "--bandwidth", "1GB/s", "--url", fleet.url)
    session.park()
    assert decided(capsys, *about)[1]["error"]["code"] == "SESSION_PARKED"
    session.close()
    assert decided(capsys, *about)[1]["error"]["code"] == "SESSION_CLOSED"


def test_memory_that_was_handed_over_measures_no_bandwidth(fleet, client, capsys):
    session = client.open("load", host="a", options={"bytes": "4MB"}, contract=PATIENT)
    session.move("b", transport="shm")
    about = ("--session", session.id, "--target", "a", "--url", fleet.url)
    code, answer = decided(capsys, *about)
    assert (code, answer["error"]["code"]) == (2, "BAD_VALUE")
    code, answer = decided(capsys, *about, "--bandwidth", "1GB/s")
    assert (code, "unknown" in answer["facts"]["dirty"]) == (0, True)
