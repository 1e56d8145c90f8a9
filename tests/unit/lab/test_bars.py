"""What an experiment says of what it is to show. Figures of real runs are in tests/scenarios/test_experiments.py."""

from dataclasses import replace

import pytest

from worldline.cli import main
from worldline.lab.experiments.bars import Bar, all_met, bars_text
from worldline.lab.experiments.incast import INCAST
from worldline.lab.experiments.incast_report import Arm, Blocks, Freeze, GoBack, Incast

QUIET = Arm(1.0, 1.5, 0, 0.01)
FOUND = Incast(
    1.0,
    8.0,
    5.0,
    0,
    Blocks(5.0, 90.0, 450.0, 84.0, 3.4, 0, 20, 0.1, []),
    GoBack(QUIET, replace(QUIET, sent_over_needed=8.0)),
    Freeze(Arm(1.3, 2.1, 9, 0.08), QUIET, QUIET),
)


def test_each_bar_has_a_line_and_an_experiment_without_any_says_that():
    bars = (Bar("a 1, at most 2", True), Bar("b 3, at most 2", False))
    assert bars_text(bars, " here") == "to be shown here:\n  a 1, at most 2: met\n  b 3, at most 2: not met"
    assert not all_met(bars)
    assert bars_text(()) == "to be shown: nothing; this measures, and tells what it found"


def test_incast_says_of_each_bar_whether_it_is_met():
    said = INCAST.text(FOUND).partition("to be shown:\n")[2].splitlines()
    assert len(said) == 5
    assert all(line.endswith(": met") for line in said)
    assert INCAST.good(FOUND)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"scheduled": 1.06}, "with tokens 1.060, at most 1.05: not met"),
        ({"unscheduled": 2.6}, "without tokens 2.60, at least 2.7: not met"),
        ({"tcp_ratio": 1.9}, "one at a time 1.90, at least 2.0: not met"),
        ({"scheduled_timeouts": 1}, "timeouts with tokens 1, at most 0: not met"),
        ({"freeze": Freeze(QUIET, QUIET, QUIET)}, "1.00 times as long as the control, at least 1.2, and its longest"),
    ],
)
def test_a_bar_of_incast_that_is_not_met_is_the_one_that_is_said(change, line):
    found = replace(FOUND, **change)
    wrong = [each for each in INCAST.text(found).splitlines() if each.endswith(": not met")]
    assert len(wrong) == 1
    assert line in wrong[0]
    assert not INCAST.good(found)


def test_reclaim_says_whether_its_calibration_is_met(capsys):
    assert main(["experiment", "reclaim", "--cycles", "200"]) == 0
    assert "the calibration is off 51%, 24%, 0% by 0.17 points, at most 0.5: met" in capsys.readouterr().out
