"""Predicted pauses beside measured ones."""

from worldline.cli import main
from worldline.lab.bench.prices import Pause, PriceList
from worldline.lab.bench.samples import Samples


def test_the_agreement_is_the_worst_ways_whichever_figure_is_the_smaller():
    pauses = (Pause("half", 0.5, 1.0), Pause("equal", 1.0, 1.0), Pause("too long", 1.0, 0.4))
    found = PriceList({}, 0.0, pauses, Samples("s", {"any": (1.0,)}))
    assert [pause.agreement for pause in pauses] == [0.5, 1.0, 0.4]
    assert found.agreement == 0.4


def test_a_session_of_which_nothing_is_left_beside_the_small_one_is_refused(capsys):
    assert main(["experiment", "prices", "--size", "59MB"]) == 2
    assert "twice 30MB" in capsys.readouterr().err
