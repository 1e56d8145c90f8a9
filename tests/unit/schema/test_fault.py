"""Faults by name: what a text means, and what is told of one that means nothing."""

import pytest

from worldline.errors import BadValue
from worldline.schema.fault import FAULTS, STEPS, Fault, FaultName, Step, Verb, faults_of, parse_fault


def test_every_fault_has_a_sentence_and_can_be_planted_somewhere_in_each_of_its_verbs():
    assert list(FAULTS) == list(FaultName)
    for about in FAULTS.values():
        assert about.sentence
        assert about.verbs
        assert about.bare <= about.verbs
        assert all(verb in about.bare or about.steps_in(verb) for verb in about.verbs)


@pytest.mark.parametrize("verb", Verb)
def test_a_fault_is_read_as_it_is_written_at_each_of_its_steps(verb):
    for fault in faults_of(verb):
        for seed in (1, 0, 7):
            written = Fault(fault.name, fault.step, seed)
            assert parse_fault(str(written), verb) == written


@pytest.mark.parametrize("verb", Verb)
def test_each_step_of_a_verb_has_a_fault(verb):
    assert {fault.step for fault in faults_of(verb)} - {None} == STEPS[verb]


def test_a_name_alone_is_the_usual_seed_at_the_usual_step():
    assert parse_fault("drop") == Fault(FaultName.DROP, None, 1)
    assert parse_fault("kill-source@swap,9") == Fault(FaultName.KILL_SOURCE, Step.SWAP, 9)
    assert parse_fault("lose-call") == Fault(FaultName.LOSE_CALL, Step.RUN, 1)
    assert parse_fault("lose-call", Verb.RESUME) == Fault(FaultName.LOSE_CALL, Step.PREPARE, 1)
    assert parse_fault("eio") == Fault(FaultName.EIO, Step.SWAP, 1)
    assert parse_fault("eio", Verb.PARK) == Fault(FaultName.EIO, None, 1)


@pytest.mark.parametrize("text", ["earthquake", "", "Flip", "flip,", "flip,x", "flip@", "flip\n", "flip,1,2"])
def test_a_text_that_is_no_fault_is_answered_with_those_there_are(text):
    with pytest.raises(BadValue, match="kill-controller, kill-gateway, kill-source"):
        parse_fault(text)


def test_a_step_that_a_fault_does_not_have_in_this_verb_is_answered_with_its_own():
    with pytest.raises(BadValue, match="at swap, begin, end, give-up, activated, return, claim, answer, not"):
        parse_fault("enospc@run")
    with pytest.raises(BadValue, match="at no step"):
        parse_fault("lie@swap")
    with pytest.raises(BadValue, match="in a park, lose-call can be planted at run, retire, thaw, not at 'prepare'"):
        parse_fault("lose-call@prepare", Verb.PARK)


def test_a_fault_of_another_verb_is_none_of_this_one():
    for text, verb in (("drop", Verb.PARK), ("flip", Verb.PARK), ("kill-target", Verb.PARK), ("cut", Verb.RESUME)):
        with pytest.raises(BadValue, match=f"no fault of a {verb}"):
            parse_fault(text, verb)
