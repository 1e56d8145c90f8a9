"""`worldline decide` says what the planner found, in JSON, in words and as pictures."""

from __future__ import annotations

import csv
import json

import pytest

from worldline.capacity.gate import Demand, Fabric
from worldline.capacity.planner import Means, Situation, plan
from worldline.cli import main
from worldline.lab.decision_grid import regime

PAPER = ("decide", "--state", "1.67GB", "--dirty", "0.93GB/s")
GATE = (*PAPER, "--horizon", "400ms")


def decided(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> dict:
    assert main([*argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_gate_refuses_at_five_and_names_what_is_needed(capsys):
    modes = decided(capsys, *GATE, "--bandwidth", "5.0GB/s")["modes"]
    assert (modes["precopy"]["admissible"], modes["precopy"]["reason"]) == (False, "bandwidth")
    assert "5.105 GB/s" in modes["precopy"]["explain"]
    assert "4.175 GB/s" in modes["freeze"]["explain"]
    assert modes["rolls"]["needed_bytes_per_s"] == pytest.approx(4.64e9)
    assert decided(capsys, *GATE, "--bandwidth", "5.2GB/s")["modes"]["precopy"]["admissible"]


def test_overhead_codec_and_split_contract_change_what_is_needed(capsys):
    wire = ("--bandwidth", "2GB/s")
    overhead = decided(capsys, *GATE, *wire, "--overhead", "57ms", code=5)["modes"]["precopy"]
    assert overhead["needed_bytes_per_s"] == pytest.approx(5.80e9, rel=1e-3)
    coded = decided(capsys, *GATE, *wire, "--codec", "1.3", code=5)["modes"]["precopy"]
    assert coded["needed_bytes_per_s"] == pytest.approx(3.927e9, rel=1e-3)
    split = decided(capsys, *PAPER, *wire, "--completion", "3s", "--pause-bound", "20ms")["modes"]["precopy"]
    assert split["admissible"]


def test_without_a_dirty_rate_no_precopy_is_promised_and_a_rate_of_none_is_written_0(capsys):
    still = ("decide", "--state", "1.67GB", "--horizon", "400ms", "--bandwidth", "5GB/s")
    answer = decided(capsys, *still)
    assert (answer["choice"], answer["dirty_bytes_per_s"]) == ("freeze", None)
    for mode in ("precopy", "rolls"):
        judged = answer["modes"][mode]
        assert (judged["admissible"], judged["reason"], judged["pause_s"]) == (False, "unknown", None)
    assert "not given" in answer["facts"]["dirty"]
    assert decided(capsys, *still, "--dirty", "0")["choice"] == "precopy"


def test_what_is_assumed_is_said_and_what_is_given_is_not(capsys):
    gate = (*GATE, "--bandwidth", "5GB/s")
    assert set(decided(capsys, *gate)["facts"]) == {"moved share", "overhead", "lane", "memory free"}
    given = ("--moved-share", "0.5", "--overhead", "0", "--lane", "9GB/s", "--memory-free", "9GB")
    assert decided(capsys, *gate, *given)["facts"] == {}


@pytest.mark.parametrize(
    ("more", "choice", "command"),
    [
        (("--bandwidth", "4.2GB/s"), "freeze", "worldline move SESSION HOST --mode freeze"),
        (("--bandwidth", "5GB/s"), "rolls", "worldline move SESSION HOST --mode precopy"),
        (("--bandwidth", "1GB/s", "--disk", "9GB/s"), "park", "worldline park SESSION; worldline resume SESSION HOST"),
    ],
)
def test_the_choice_names_the_command_that_carries_it_out(capsys, more, choice, command):
    answer = decided(capsys, *GATE, *more)
    assert (answer["choice"], answer["command"], answer["modes"][choice]["command"]) == (choice, command, command)
    assert main([*GATE, *more]) == 0
    assert f"carried out by: {command}" in capsys.readouterr().out


def test_a_replay_is_judged_and_never_chosen_as_no_command_carries_it_out(capsys):
    fast = ("--bandwidth", "9GB/s", "--replay-speed", "4")
    answer = decided(capsys, *GATE, *fast)
    assert (answer["choice"], answer["modes"]["replay"]["admissible"]) == ("rolls", True)
    assert answer["modes"]["replay"]["command"] is None
    rewritten = ("decide", "--state", "1.67GB", "--dirty", "9GB/s", "--pause-bound", "20ms", "--completion", "3s")
    answer = decided(capsys, *rewritten, "--bandwidth", "2GB/s", "--replay-speed", "4", code=5)
    assert (answer["choice"], answer["command"], answer["modes"]["replay"]["admissible"]) == (None, None, True)
    assert "no command carries it out yet" in answer["modes"]["replay"]["explain"]
    assert answer["why"] == "no way that a command carries out keeps the contract"
    assert main([*rewritten, "--bandwidth", "2GB/s", "--replay-speed", "4"]) == 5
    assert "analysis only" in capsys.readouterr().out


def test_an_overhead_of_none_is_written_0(capsys):
    assert decided(capsys, *GATE, "--bandwidth", "5.2GB/s", "--overhead", "0")["overhead_s"] == 0


def test_a_bandwidth_that_nobody_gave_is_not_blamed_on_a_session_that_nobody_named(capsys):
    assert main([*GATE]) == 2
    assert "there is no --session" in capsys.readouterr().err


def test_no_way_is_exit_code_5_and_an_answer(capsys):
    assert decided(capsys, *GATE, "--bandwidth", "1GB/s", code=5)["choice"] is None


def test_a_grid_is_a_table_and_a_picture_with_the_measured_point(capsys, tmp_path):
    anchor = ("--anchor", "here=1.9GB/s,0.4GB/s")
    decided(capsys, *GATE, "--bandwidth", "5GB/s", "--grid", str(tmp_path / "v1.2.png"), *anchor)
    rows = list(csv.DictReader((tmp_path / "v1.2.csv").read_text().splitlines()))
    assert {row["choice"] for row in rows} == {"none", "freeze", "precopy", "rolls"}
    for row in rows:
        assert row["admissible"] == "False" or float(row["needed_bytes_per_s"]) <= 1.000001 * float(
            row["bandwidth_bytes_per_s"]
        )
    drawn = (tmp_path / "v1.2.svg").read_text()
    assert all(
        words in drawn
        for words in ("here (measured)", "precopy or rolls wins (projected)", "B = D: below", "not measured")
    )
    assert (tmp_path / "v1.2.png").stat().st_size > 10_000


def drawn(capsys, tmp_path, *argv, code=0):
    decided(capsys, *argv, "--grid", str(tmp_path / "grid"), code=code)
    return (tmp_path / "grid.svg").read_text()


def test_the_gate_says_what_a_freeze_needs_under_the_pause_bound_where_that_is_above_the_figure(capsys, tmp_path):
    split = (*PAPER, "--bandwidth", "2GB/s", "--pause-bound", "15ms", "--completion", "3s")
    freeze = decided(capsys, *split)["modes"]["freeze"]
    assert freeze["needed_bytes_per_s"] == pytest.approx(111.3e9, rel=1e-3)
    picture = drawn(capsys, tmp_path, *split)
    assert "freeze needs S/(min(H, 15 ms)-o), pausing all the time: from 111.3 GB/s, above this figure" in picture


def test_each_precopy_has_its_own_limit_under_which_it_never_ends(capsys, tmp_path):
    picture = drawn(capsys, tmp_path, *GATE, "--bandwidth", "5GB/s", "--codec", "1.3")
    assert "B = D/1.3: below, precopy never ends" in picture
    assert "B = D/1.3 less what moved: below, rolls never ends" in picture


def test_a_gate_without_a_dirty_rate_draws_no_precopy_and_says_why(capsys, tmp_path):
    picture = drawn(capsys, tmp_path, "decide", "--state", "1GB", "--horizon", "1s", "--bandwidth", "5GB/s")
    assert "precopy needs S/(H-o) + D: no wire would do, or D is not known" in picture
    assert "never ends" not in picture.split("Least pause wins")[0].split("The gate")[-1]
    assert "asked for, D is not known" in picture


def test_the_regimes_part_by_what_is_refused_and_not_by_the_round_that_each_precopy_ends_with():
    demand = Demand(1.67e9, 0.93e9, 0.015, 3.0)
    for wire in range(16, 41):
        found = plan(Situation(demand, Fabric(wire * 1e8)))
        assert found.of(Means.PRECOPY).admissible
        assert regime(found) is Means.PRECOPY
    assert regime(plan(Situation(demand, Fabric(1.2e9)))) is Means.ROLLS
    assert regime(plan(Situation(demand, Fabric(0.2e9)))) is None


@pytest.mark.parametrize(
    "argv",
    [
        ["decide"],
        ["decide", "--state", "1GB"],
        [*GATE, "--bandwidth", "5GB/s", "--codec", "zip"],
        [*GATE, "--bandwidth", "5GB/s", "--concurrent", "0"],
        [*GATE, "--bandwidth", "5GB/s", "--grid", "/dev/null/x"],
        [*GATE, "--bandwidth", "5GB/s", "--grid", "/"],
        [*GATE, "--bandwidth", "5GB/s", "--grid", "."],
        [*GATE, "--bandwidth", "5GB/s", "--target", "b"],
        [*GATE, "--bandwidth", "5GB/s", "--grid", "/tmp/x", "--anchor", "nonsense"],
    ],
)
def test_words_that_are_wrong_are_said(argv, capsys):
    assert main([*argv, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "BAD_VALUE"


@pytest.mark.parametrize(
    ("option", "nothing"),
    [
        ("--state", "0"),
        ("--state", "0GB"),
        *((option, nothing) for option in ("--bandwidth", "--lane", "--disk") for nothing in ("0", "0GB/s", "0Gbit")),
    ],
)
def test_none_of_what_a_move_needs_is_refused_by_its_option(option, nothing, capsys):
    given = {"--state": "1GB", "--dirty": "0", "--horizon": "1s", "--bandwidth": "5GB/s"} | {option: nothing}
    assert main(["decide", *(word for pair in given.items() for word in pair), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["sentence"]) == ("BAD_VALUE", f"{option} is above zero, not {nothing}")


def test_no_room_at_the_target_is_an_answer_and_no_bad_value(capsys):
    answer = decided(capsys, *GATE, "--bandwidth", "9GB/s", "--memory-free", "0", code=5)
    assert answer["modes"]["freeze"]["reason"] == "memory"


def test_a_point_for_a_figure_that_is_not_drawn_is_refused(capsys):
    assert main([*GATE, "--bandwidth", "5GB/s", "--anchor", "here=1GB/s,0"]) == 2
    assert "--grid" in capsys.readouterr().err
