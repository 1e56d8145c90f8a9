"""What may be done to a session in which condition."""

from __future__ import annotations

import pytest

from worldline.control.lifecycle import LEGAL, Status, Verb, begin, check_elsewhere, settle
from worldline.control.order import Outcome
from worldline.errors import AlreadyThere, Conflict, StateLost, WorldlineError
from worldline.schema.ids import HostId, SessionId

W = SessionId("w")


def test_every_verb_has_an_answer_in_every_status() -> None:
    assert set(LEGAL) == set(Status)
    assert all(set(answers) == set(Verb) for answers in LEGAL.values())


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("verb", Verb)
def test_a_verb_leads_to_the_status_of_the_table_or_raises_its_error(status: Status, verb: Verb) -> None:
    answer = LEGAL[status][verb]
    if isinstance(answer, Status):
        assert begin(W, status, verb) is answer
    else:
        with pytest.raises(answer, match="session w is ") as caught:
            begin(W, status, verb)
        assert caught.value.facts == {"session": "w", "status": status.value, "verb": verb.value}


@pytest.mark.parametrize(
    ("status", "verb", "code"),
    [
        (Status.RUNNING, Verb.RESUME, "NOT_PARKED"),
        (Status.MOVING, Verb.MOVE, "MOVE_IN_PROGRESS"),
        (Status.MOVING, Verb.CLOSE, "MOVE_IN_PROGRESS"),
        (Status.PARKED, Verb.STEP, "SESSION_PARKED"),
        (Status.CLOSED, Verb.STEP, "SESSION_CLOSED"),
        (Status.LOST, Verb.RESUME, "STATE_LOST"),
    ],
)
def test_errors_have_the_names_of_the_contract(status: Status, verb: Verb, code: str) -> None:
    with pytest.raises(WorldlineError) as caught:
        begin(W, status, verb)
    assert caught.value.code == code


def test_a_lost_session_says_why_and_can_only_be_closed() -> None:
    with pytest.raises(StateLost, match="lost: host b ended"):
        begin(W, Status.LOST, Verb.MOVE, why="host b ended")
    assert begin(W, Status.LOST, Verb.CLOSE) is Status.CLOSED


def test_a_move_to_where_the_session_is_has_its_own_error() -> None:
    check_elsewhere(W, HostId("a"), HostId("b"))
    with pytest.raises(AlreadyThere):
        check_elsewhere(W, HostId("a"), HostId("a"))


@pytest.mark.parametrize(
    ("verb", "outcome", "lost", "after"),
    [
        (Verb.MOVE, Outcome.DONE, False, Status.RUNNING),
        (Verb.MOVE, Outcome.REFUSED, False, Status.RUNNING),
        (Verb.MOVE, Outcome.REFUSED, True, Status.LOST),
        (Verb.MOVE, Outcome.LOST, True, Status.LOST),
        (Verb.PARK, Outcome.DONE, False, Status.PARKED),
        (Verb.PARK, Outcome.REFUSED, False, Status.RUNNING),
        (Verb.RESUME, Outcome.DONE, False, Status.RUNNING),
        (Verb.RESUME, Outcome.REFUSED, False, Status.PARKED),
    ],
)
def test_an_order_that_ended_leaves_the_session_where_it_says(
    verb: Verb, outcome: Outcome, lost: bool, after: Status
) -> None:
    assert settle(verb, outcome, lost) is after


def test_a_step_settles_nothing() -> None:
    with pytest.raises(Conflict):
        settle(Verb.STEP, Outcome.DONE, lost=False)
