"""Operations as the command line tells them. What they do is in tests/scenarios/test_operations.py."""

import json
from dataclasses import dataclass

import msgspec
import pytest

from worldline.cli import main, operate
from worldline.cli.output import Shared
from worldline.control.placement import Deed, Kind
from worldline.runtime.fleet_messages import Operation, OperationLeft, OperationRequest, OperationStep

STEP = OperationStep("s-1", Deed.MOVE, "a", "c", 1 << 20)
LEFT = OperationLeft("s-2", "a", "no other host is open")


def operation(kind, outcome, host=None, steps=(), left=(), emptied=()):
    return Operation(
        id="o-1",
        request=OperationRequest(kind, host),
        steps=list(steps),
        left=list(left),
        emptied=list(emptied),
        passes=1,
        outcome=outcome,
        started_at_s=0.0,
        ended_at_s=0.0,
        arena_bytes_total=0,
        arena_bytes_done=0,
        eta_s=None,
    )


class Fleet:
    """A gateway's client that answers every operation with the same one."""

    def __init__(self, answer):
        self.answer = answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def cancel(self, operation):
        return self.answer

    operation = cancel

    def operate(self, kind, host=None, **wishes):
        return self.answer


@dataclass(frozen=True)
class Answering(Shared):
    """Talks to a fleet that gives one answer."""

    answer: Operation | None = None

    def client(self):
        return Fleet(self.answer)


def printed(answer, as_json, capsys):
    code = operate.drain("a", dry_run=True, shared=Answering(json=as_json, answer=answer))
    return code, capsys.readouterr().out


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dry_run_has_no_id_as_nobody_keeps_it(as_json, capsys):
    code, out = printed(operation(Kind.DRAIN, "planned", "a", [STEP], emptied=["a"]), as_json, capsys)
    assert code == 0
    assert "s-1" in out
    assert "o-1" not in out
    assert not as_json or "id" not in json.loads(out)


def test_a_dry_run_that_would_leave_a_session_ends_as_the_real_run_would(capsys):
    code, out = printed(operation(Kind.DRAIN, "planned", "a", [STEP], [LEFT]), False, capsys)
    assert code == operate.exit_code(operation(Kind.DRAIN, "partial", "a", [STEP], [LEFT])) == 5
    assert "left: s-2: no other host is open" in out


def test_a_consolidation_ends_well_where_a_host_stays_as_it_is_and_so_does_its_dry_run():
    for outcome in ("planned", "done"):
        assert operate.exit_code(operation(Kind.CONSOLIDATE, outcome, left=[LEFT])) == 0


def test_a_dry_run_would_empty_only_hosts_that_have_sessions():
    planned = operation(Kind.CONSOLIDATE, "planned", steps=[STEP], emptied=["a", "b"])
    assert operate.operation_text(planned).splitlines()[-2:] == [
        "would empty: a",
        "empty already, would be given back: b",
    ]
    done = msgspec.structs.replace(planned, outcome="done")
    assert operate.operation_text(done).splitlines()[-1] == "emptied: a, b"
    assert "empt" not in operate.operation_text(operation(Kind.DRAIN, "planned", "a", emptied=["a"]))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("prewarm c reference --slots -1", "--slots is 0 to 64, not -1"),
        ("prewarm c reference --slots 65", "--slots is 0 to 64, not 65"),
        ("drain a --at-once 0", "--at-once is 1 to 16, not 0"),
        ("evacuate a --at-once 17", "--at-once is 1 to 16, not 17"),
        ("consolidate --hosts-min 0", "--hosts-min is 1 or more, not 0"),
        ("consolidate --warm-slots -1", "--warm-slots is 0 to 1000000, not -1"),
    ],
)
def test_a_number_out_of_bounds_is_told_by_its_option_before_anything_is_asked(words, sentence, capsys):
    assert main([*words.split(), "--url", "http://127.0.0.1:9"]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [False, True])
def test_who_cancels_what_is_over_is_told_that_it_was_over(as_json, capsys):
    done = operation(Kind.DRAIN, "done", "a", emptied=["a"])
    assert operate.cancel("o-1", shared=Answering(json=as_json, answer=done)) == 0
    assert "o-1 was over already" in capsys.readouterr().err
