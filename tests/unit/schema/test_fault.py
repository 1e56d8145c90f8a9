"""Faults by name: what a text means, and what is told of one that means nothing."""

import pytest

from worldline.errors import BadValue
from worldline.schema.fault import FAULTS, Fault, FaultName, Step, Verb, parse_fault


def test_every_fault_has_a_sentence_and_can_be_planted_in_something():
    assert list(FAULTS) == list(FaultName)
    assert all(about.sentence and about.verbs for about in FAULTS.values())


@pytest.mark.parametrize("name", FaultName)
def test_a_fault_is_read_as_it_is_written_at_each_of_its_steps(name):
    about = FAULTS[name]
    verb = min(about.verbs)
    for step in (None, *about.steps):
        for seed in (1, 0, 7):
            fault = Fault(name, step, seed)
            assert parse_fault(str(fault), verb) == fault


def test_a_name_alone_is_the_usual_seed_and_no_step():
    assert parse_fault("drop") == Fault(FaultName.DROP, None, 1)
    assert parse_fault("kill-source@swap,9") == Fault(FaultName.KILL_SOURCE, Step.SWAP, 9)


@pytest.mark.parametrize("text", ["earthquake", "", "Flip", "flip,", "flip,x", "flip@", "flip\n", "flip,1,2"])
def test_a_text_that_is_no_fault_is_answered_with_those_there_are(text):
    with pytest.raises(BadValue, match="kill-controller, kill-source"):
        parse_fault(text)


def test_a_step_that_a_fault_does_not_have_is_answered_with_its_own():
    with pytest.raises(BadValue, match="at swap, prepare, retire"):
        parse_fault("enospc@run")
    with pytest.raises(BadValue, match="at no step"):
        parse_fault("flip@swap")


def test_a_fault_of_another_verb_is_none_of_this_one():
    assert parse_fault("short-write", Verb.PARK).name is FaultName.SHORT_WRITE
    for text, verb in (("short-write", Verb.MOVE), ("flip", Verb.PARK), ("kill-target", Verb.PARK)):
        with pytest.raises(BadValue, match=f"no fault of a {verb}"):
            parse_fault(text, verb)
