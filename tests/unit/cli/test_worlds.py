import json

import pytest

from broken_worlds import BROKEN
from worldline.cli import main


def check(capsys, *argv):
    capsys.readouterr()
    code = main(["worlds", "check", "--json", *argv])
    return code, json.loads(capsys.readouterr().out)


def test_a_world_that_conforms_is_said_to(capsys):
    code, verdict = check(capsys, "worldline.testing.tiny:TinyWorld")
    assert (code, verdict["conforms"], verdict["problems"]) == (0, True, [])
    assert "restore" in verdict["checks"]


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.__name__)
def test_a_broken_world_is_told_its_cause_first_with_an_explanation_and_a_remedy(capsys, fault):
    code, verdict = check(capsys, f"broken_worlds:{fault.__name__}_World", "--blocks", "4")
    assert (code, verdict["conforms"]) == (1, False)
    first = verdict["problems"][0]
    assert first["cause"] == BROKEN[fault][1]
    assert first["explanation"]
    assert first["remedy"]


def test_people_read_the_explanation(capsys):
    assert main(["worlds", "check", "broken_worlds:AliasLost_World", "--only", "restore"]) == 1
    shown = capsys.readouterr().out
    assert "AN ALIASED TENSOR" in shown
    assert "'ring' and 'ring_turned' are no longer over one" in shown.replace("\n    ", " ")


def test_an_unknown_check_lists_the_known_ones(capsys):
    assert main(["worlds", "check", "worldline.testing.tiny:TinyWorld", "--only", "nonsense"]) == 2
    assert "nothing-left-out" in capsys.readouterr().err


def test_the_worlds_are_listed_with_and_without_the_word(capsys):
    assert main(["worlds", "--json"]) == 0
    bare = capsys.readouterr().out
    assert main(["worlds", "list", "--json"]) == 0
    assert capsys.readouterr().out == bare
    assert "reference" in json.loads(bare)["worlds"]
