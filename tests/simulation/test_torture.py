"""The slice of `worldline torture` that every run of the suite takes, and that what is bad is counted and told."""

from __future__ import annotations

import json
import os

import pytest

from worldline.cli import main
from worldline.schema.fault import FaultName, Verb, parse_fault
from worldline.testing.simulation import Simulation, Tally
from worldline.testing.torture import BAD, SIGNS, Torture, torture
from worldline.testing.torture_census import Census, holding
from worldline.testing.torture_crash import Crash, Fate
from worldline.testing.torture_runs import CrashRuns

HISTORIES = 500
CRASHES = 30
COUNTS = (*BAD, "histories", "moves", "faults_planted", "seed")


def test_five_hundred_histories_have_nothing_bad() -> None:
    told: list[str] = []
    result = torture(HISTORIES, 0, seed=1, jobs=1, say=told.append)
    assert result.good, told
    assert result.histories == HISTORIES
    assert result.moves > 4 * HISTORIES
    assert result.faults_planted > 4 * HISTORIES
    assert result.died_with_host > 0


@pytest.mark.timeout(600)
def test_thirty_runs_of_real_processes_have_nothing_bad() -> None:
    told: list[str] = []
    result = torture(0, CRASHES, seed=1, jobs=1, say=told.append)
    assert result.good, told
    assert result.crashes == CRASHES
    assert result.moves >= CRASHES // 2


def test_crash_runs_are_of_every_kind() -> None:
    crashes = [Crash.draw(seed) for seed in range(1, CRASHES + 1)]
    assert {crash.victim for crash in crashes} == {"source", "target", "controller", "gateway"}
    assert {crash.verb for crash in crashes} == {"move", "park", "resume"}
    assert {(crash.mode, crash.transport, crash.kills) for crash in crashes} > {("freeze", "tcp", True)}
    assert crashes == [Crash.draw(seed) for seed in range(1, CRASHES + 1)]


def test_half_of_the_crash_runs_plant_a_fault_of_their_verb_and_every_name_is_drawn() -> None:
    struck = [crash for seed in range(1000) if (crash := Crash.draw(seed)).fault is not None]
    assert 400 < len(struck) < 600
    assert {crash.fault.name for crash in struck if crash.fault is not None} == set(FaultName)
    assert all(parse_fault(str(crash.fault), Verb(crash.verb)) == crash.fault for crash in struck)


def test_the_command_prints_every_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torture", "--histories", "3", "--crashes", "0", "--seed", "8", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() >= set(COUNTS)
    assert (printed["histories"], printed["seed"], printed["machine"]["cores"]) == (3, 8, len(os.sched_getaffinity(0)))


def test_histories_of_several_processes_are_the_same_ones() -> None:
    one, two = (torture(60, 0, seed=3, jobs=jobs, say=lambda _: None) for jobs in (1, 2))
    assert (one.moves, one.faults_planted, one.died_with_host) == (two.moves, two.faults_planted, two.died_with_host)


def test_the_command_ends_with_1_where_something_is_bad(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loses(simulation: Simulation) -> Tally:
        simulation.fail("s0 is declared lost, and a, which holds it, lives")

    monkeypatch.setattr(Simulation, "run", loses)
    assert main(["torture", "--histories", "2", "--crashes", "0", "--json"]) == 1
    printed, progress = capsys.readouterr()
    assert json.loads(printed)["lost"] == 2
    assert "again: python -m worldline.testing.simulation --seed 2" in progress


@pytest.mark.parametrize(("sign", "count"), SIGNS)
def test_a_violation_has_its_count(sign: str, count: str) -> None:
    result = Torture(1)
    assert result.add_history(f"seed 1 at 2.0 s: {sign}", 1) is not None
    assert getattr(result, count) == 1
    assert not result.good


def test_what_went_wrong_in_a_crash_run_is_counted_with_its_replay() -> None:
    result = Torture(1)
    fate = Fate(Crash.draw(7), bad=[("two_owners", "a and b")])
    (line,) = result.add_crash(fate)
    assert line.startswith("two_owners: ")
    assert line.endswith("worldline torture --histories 0 --crashes 1 --seed 7")
    assert (result.two_owners, result.good) == (1, False)


def test_a_twin_that_differs_is_told() -> None:
    class Liar:
        def step(self, action: int) -> bytes:
            return bytes(9)

    with CrashRuns(lambda _: Liar()) as runs:
        fate = runs.run(Crash.draw(1))
    assert [count for count, _ in fate.bad] == ["wrong_bytes"]


def test_a_census_sees_files_that_stay_open() -> None:
    census, me = Census(), {"me": os.getpid()}
    for _ in range(3):
        census.settle(me)
    assert census.leaks(me) == []
    shared = os.memfd_create("kept")
    try:
        assert "shared" in census.leaks(me)[0]
    finally:
        os.close(shared)
    assert holding(2**22 + 1) is None
