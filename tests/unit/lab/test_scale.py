"""A slice of the scale experiment: the real decisions over a simulated fleet keep its books."""

from __future__ import annotations

import json

import pytest

from worldline.cli import main
from worldline.lab.experiments.scale import STATE_BYTES, Fleet


def test_a_fleets_books_are_right_after_many_moves():
    fleet = Fleet(hosts=20, sessions=400, seed=3)
    total = sum(fleet.free_bytes)
    fleet.decide(3000)
    fleet.calendar.check()
    moving = sum(fleet.moving)
    assert fleet.accepted > 1500
    assert len(fleet.calendar) == moving
    assert sum(fleet.free_bytes) == total - moving * STATE_BYTES
    assert min(fleet.free_bytes) >= 0


def test_a_fleet_all_of_whose_sessions_move_waits_for_one_that_ends():
    fleet = Fleet(hosts=2, sessions=2, seed=3)
    fleet.decide(500)
    assert fleet.accepted > 100
    assert len(fleet.moving) == 2


def test_the_command_reports_what_a_decision_costs(tmp_path, capsys):
    argv = ["experiment", "scale", "--hosts", "50", "--sessions", "1000", "--decisions", "2000", "--json"]
    assert main([*argv, "--out", str(tmp_path)]) == 0
    whole = json.loads(capsys.readouterr().out)["whole"]
    assert (whole["hosts"], whole["sessions"], whole["decisions"]) == (50, 1000, 2000)
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("words", [["--hosts", "1"], ["--sessions", "5"], ["--decisions", "1"]])
def test_a_fleet_that_makes_no_sense_is_refused(words):
    assert main(["experiment", "scale", *words]) == 2
