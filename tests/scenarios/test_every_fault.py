"""Each fault that a user can name, planted in a fleet of real processes: it happens, and only the verb is harmed.

Every name is planted once and every step at least once; `worldline torture` draws from all of them.
"""

import pytest

from worldline.schema.fault import FaultName, Step, Verb, faults_of, parse_fault
from worldline.schema.receipt import Mode
from worldline.testing.torture import tiny_twin
from worldline.testing.torture_crash import Crash
from worldline.testing.torture_runs import CrashRuns


def slice_of(verb, names):
    """One fault of each name. Names of one kind take the kind's steps in turn, so that every step has its turn."""
    turns = {}
    for name in names:
        known = [fault for fault in faults_of(verb) if fault.name is name]
        turn = turns[len(known)] = turns.get(len(known), -1) + 1
        yield verb, known[turn % len(known)]


MORE = {
    Verb.MOVE: "drop@refused cut@abort eio@give-up eio@activated",
    Verb.PARK: "enospc short-write lose-answer eio@claim",
    Verb.RESUME: "eio truncate flip enospc@answer eio@return",
}
CELLS = [
    *slice_of(Verb.MOVE, FaultName),
    *((verb, parse_fault(text, verb)) for verb, texts in MORE.items() for text in texts.split()),
]


def test_every_name_and_every_step_is_in_the_slice():
    assert {fault.name for _, fault in CELLS} == set(FaultName)
    assert {fault.step for _, fault in CELLS} >= set(Step)


@pytest.fixture(scope="module")
def runs():
    with CrashRuns(tiny_twin) as started:
        yield started


@pytest.mark.parametrize(("verb", "fault"), CELLS, ids=[f"{verb}-{fault}" for verb, fault in CELLS])
def test_a_planted_fault_happens_and_costs_at_most_its_verb(runs, verb, fault):
    """1 play beside a twin  2 the verb with its fault  3 one owner, like the twin, or lost with who held it  4 the next
    move succeeds  5 nothing is kept.
    """
    number = CELLS.index((verb, fault))
    transport = "shm" if number % 2 and fault.step is not Step.RETURN else "tcp"
    fate = runs.run(Crash.planted(number, verb, Mode.PRECOPY, transport, fault))
    assert fate.bad == []
    assert runs.was_planted(fault)
