"""The controller's machine for a move, a park and a resume: events in, commands out."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline.control import order as o
from worldline.control.handoff import Handoff
from worldline.control.handoff_table import TRANSITIONS, Phase
from worldline.control.handoff_terms import Retries
from worldline.errors import IllegalTransition
from worldline.schema.contract import Contract, Tier
from worldline.schema.ids import Epoch, HostId, MoveId, ReceiptId, SessionId
from worldline.schema.receipt import Mode, Receipt

A, B = HostId("a"), HostId("b")
MOVE = o.Order(
    MoveId("m"), SessionId("w"), Mode.PRECOPY, A, B, Epoch(3), Contract(pause_bound_s=1.0, completion_deadline_s=30.0)
)
SHM = dataclasses.replace(MOVE, hands_over=True)
PARK = dataclasses.replace(MOVE, mode=Mode.PARK, target=None, image="w.image")
RESUME = dataclasses.replace(MOVE, mode=Mode.RESUME, source=None, image="w.image")
READY = o.TargetReady("tcp", "there", b"key")
SEALED = o.SourceSealed("aa", 5, 5, 10.0, 1000, 2)


def receipt(order: o.Order = MOVE, **changes: object) -> Receipt:
    made = Receipt(
        id=ReceiptId("r"),
        move=order.move,
        session=order.session,
        epoch=order.after.epoch,
        mode=order.mode,
        transport="tcp",
        source=str(order.source),
        target=str(order.target),
        tier=Tier.T0,
        source_plan="p",
        target_plan="p",
        qualification=None,
        block=5,
        layout="ll",
        source_root="aa",
        target_root="aa",
        leaf_count=1,
        state_bytes=1000,
        bytes_moved=1000,
        rounds=2,
        pause_s=0.1,
        duration_s=1.0,
        made_at_s=0.0,
        made_by=B,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def run(order: o.Order, *events: o.Event, now_s: float = 10.1) -> tuple[Handoff, list[o.Command]]:
    """The machine after these events, and the commands of the last one."""
    machine = Handoff(order, 0.0)
    commands: list[o.Command] = []
    for event in events:
        commands = machine.handle(event, now_s)
    return machine, commands


def kinds(commands: list[o.Command]) -> list[type]:
    return [type(command) for command in commands]


def phase(command: o.Command) -> o.JournalPhase:
    assert isinstance(command, o.Journal)
    return command.phase


def refused(commands: list[o.Command]) -> str:
    """The code of a refusal that was journalled before the target was discarded and the source thawed."""
    journal, discard, thaw = commands
    assert phase(journal) is o.JournalPhase.ABORTED
    assert (discard, thaw) == (o.Discard(0.0), o.Thaw(0.0))
    assert isinstance(journal, o.Journal)
    return str(journal.facts["code"])


PROVEN = (o.Begin(), READY, SEALED, o.TargetPrepared(receipt()))
COMMITTED = (*PROVEN, o.Swapped(ok=True))


def test_a_move_is_journalled_prepared_run_and_committed_once_both_sides_agree() -> None:
    machine = Handoff(MOVE, 0.0)
    journal, prepare = machine.handle(o.Begin(), 0.0)
    assert phase(journal) is o.JournalPhase.BEGUN
    assert prepare == o.PrepareTarget()
    assert machine.handle(READY, 0.1) == [o.RunSource("tcp", "there", b"key"), o.AwaitPrepared()]
    assert machine.handle(o.SourceProgress(1, 100, 50, frozen=False, note="sending"), 0.2) == []
    assert machine.handle(SEALED, 10.1) == []
    (swap,) = machine.handle(o.TargetPrepared(receipt()), 10.2)
    assert swap == o.SwapOwner(o.Owner(A, Epoch(3)), o.Owner(B, Epoch(4)), receipt())


def test_a_proof_that_overtakes_the_seals_answer_waits_for_it() -> None:
    machine, commands = run(MOVE, o.Begin(), READY, o.TargetPrepared(receipt()))
    assert commands == []
    assert kinds(machine.handle(SEALED, 10.1)) == [o.SwapOwner]


def test_after_the_commit_a_copied_session_is_activated_told_and_then_retired() -> None:
    machine, commands = run(MOVE, *COMMITTED)
    assert commands == [o.Activate(Epoch(4), 0.0)]
    assert machine.handle(o.Activated(), 10.2) == [
        o.Journal(o.JournalPhase.ACTIVATED, {}),
        o.PublishOwner(o.Owner(B, Epoch(4)), 5),
        o.Retire(Epoch(3), 0.0),
    ]
    journal, finish = machine.handle(o.Retired(), 10.3)
    assert phase(journal) is o.JournalPhase.DONE
    assert finish == o.Finish(o.Outcome.DONE, None)


def test_a_handed_over_arena_is_fenced_before_the_target_may_write() -> None:
    machine, commands = run(SHM, *COMMITTED)
    assert commands == [o.Retire(Epoch(3), 0.0)]
    assert machine.handle(o.Retired(), 10.2) == [o.Activate(Epoch(4), 0.0)]
    assert kinds(machine.handle(o.Activated(), 10.3)) == [o.Journal, o.PublishOwner, o.Journal, o.Finish]


def test_a_fence_that_fails_is_repeated_until_it_holds_or_the_source_is_dead() -> None:
    machine, _ = run(SHM, *COMMITTED)
    for _ in range(100):
        assert kinds(machine.handle(o.PeerFailed(o.Call.RETIRE, "TIMEOUT", "?"), 10.2)) == [o.Retire]
    assert machine.handle(o.HostGone(o.Side.SOURCE), 10.3) == [o.Activate(Epoch(4), 0.0)]


def test_a_park_commits_to_nobody_and_a_resume_to_its_host() -> None:
    machine, commands = run(PARK, o.Begin())
    assert commands[1:] == [o.WriteImage("w.image")]
    (swap,) = machine.handle(o.ImageWritten(receipt(PARK)), 1.0)
    assert swap == o.SwapOwner(o.Owner(A, Epoch(3)), o.Owner(None, Epoch(4)), receipt(PARK))
    assert kinds(machine.handle(o.Swapped(ok=True), 1.1)) == [o.PublishOwner, o.Retire]
    assert kinds(machine.handle(o.Retired(), 1.2)) == [o.Journal, o.Finish]

    machine, commands = run(RESUME, o.Begin())
    assert commands[1:] == [o.LoadImage("w.image")]
    assert kinds(machine.handle(o.TargetPrepared(receipt(RESUME)), 1.0)) == [o.SwapOwner]
    assert kinds(machine.handle(o.Swapped(ok=True), 1.1)) == [o.Activate]
    assert kinds(machine.handle(o.Activated(), 1.2)) == [o.Journal, o.PublishOwner, o.Journal, o.Finish]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"target_root": "bb"}, "CORRUPT"),
        ({"source_root": "bb", "target_root": "bb"}, "CORRUPT"),
        ({"block": 6}, "CORRUPT"),
        ({"epoch": Epoch(3)}, "STALE_EPOCH"),
        ({"move": MoveId("other")}, "STALE_EPOCH"),
        ({"session": SessionId("other")}, "STALE_EPOCH"),
    ],
)
def test_a_receipt_that_does_not_prove_this_order_commits_nothing(changes: dict[str, object], code: str) -> None:
    _, commands = run(MOVE, o.Begin(), READY, SEALED, o.TargetPrepared(receipt(MOVE, **changes)))
    assert refused(commands) == code


def test_a_proof_after_the_pause_bound_commits_nothing() -> None:
    machine, _ = run(MOVE, o.Begin(), READY, SEALED)
    assert machine.wake_at_s == 11.0
    assert machine.handle(o.DeadlinePassed(), 10.9) == []
    assert refused(machine.handle(o.TargetPrepared(receipt()), 11.0)) == "DEADLINE"


def test_the_completion_deadline_gives_the_order_up_and_after_the_swap_no_time_does() -> None:
    machine, _ = run(MOVE, o.Begin(), READY)
    assert machine.wake_at_s == 30.0
    assert refused(machine.handle(o.DeadlinePassed(), 30.0)) == "DEADLINE"
    for events in (PROVEN, COMMITTED):
        machine, _ = run(MOVE, *events)
        assert machine.wake_at_s is None
        assert machine.handle(o.DeadlinePassed(), 1e6) == []


@pytest.mark.parametrize(
    ("events", "call"),
    [
        ((o.Begin(),), o.Call.PREPARE_TARGET),
        ((o.Begin(), READY), o.Call.RUN_SOURCE),
        ((o.Begin(), READY), o.Call.AWAIT_PREPARED),
        ((o.Begin(), READY, SEALED), o.Call.AWAIT_PREPARED),
    ],
)
def test_a_call_that_fails_before_the_swap_ends_the_order(events: tuple[o.Event, ...], call: o.Call) -> None:
    machine, commands = run(MOVE, *events, o.PeerFailed(call, "CORRUPT", "bytes differ", {"leaf": 3}))
    assert refused(commands) == "CORRUPT"
    assert machine.handle(o.Discarded(), 10.2) == []
    (finish,) = machine.handle(o.Thawed(), 10.3)
    assert finish == o.Finish(o.Outcome.REFUSED, o.Failure("CORRUPT", "bytes differ", {"leaf": 3}))


def test_a_thaw_is_repeated_without_end_and_a_discard_is_not() -> None:
    machine = Handoff(MOVE, 0.0, Retries(attempts_max=3))
    machine.handle(o.Begin(), 0.0)
    machine.handle(o.PeerFailed(o.Call.PREPARE_TARGET, "NO_CAPACITY", "full"), 0.1)
    delays = []
    for _ in range(20):
        (thaw,) = machine.handle(o.PeerFailed(o.Call.THAW, "TIMEOUT", "?"), 0.2)
        assert isinstance(thaw, o.Thaw)
        delays.append(thaw.delay_s)
    assert delays[:3] == [0.05, 0.1, 0.2]
    assert max(delays) == 2.0
    for _ in range(2):
        assert kinds(machine.handle(o.PeerFailed(o.Call.DISCARD, "TIMEOUT", "?"), 0.3)) == [o.Discard]
    assert machine.handle(o.PeerFailed(o.Call.DISCARD, "TIMEOUT", "?"), 0.4) == []
    (finish,) = machine.handle(o.Thawed(), 0.5)
    assert isinstance(finish, o.Finish)
    assert finish.note == "b did not confirm that it forgot the attempt"


def test_an_unknown_swap_is_read_from_the_record() -> None:
    """1. The swap is made and its answer lost. 2. The record is read and names the target. 3. Completed."""
    machine, commands = run(MOVE, *PROVEN, o.SwapUnknown("the disk did not answer"))
    assert commands == [o.ReadOwner(0.0)]
    assert machine.handle(o.OwnerRead(MOVE.after), 10.2) == [o.Activate(Epoch(4), 0.0)]


def test_a_swap_that_was_not_made_gives_the_order_up() -> None:
    machine, commands = run(MOVE, *PROVEN, o.Swapped(ok=False))
    assert commands == [o.ReadOwner(0.0)]
    assert refused(machine.handle(o.OwnerRead(MOVE.before), 10.2)) == "STALE_EPOCH"


def test_a_source_that_the_record_no_longer_names_is_not_thawed() -> None:
    machine, _ = run(MOVE, *PROVEN, o.Swapped(ok=False))
    commands = machine.handle(o.OwnerRead(o.Owner(HostId("c"), Epoch(9))), 10.2)
    assert kinds(commands) == [o.Journal, o.Discard, o.Retire]
    machine.handle(o.Discarded(), 10.3)
    assert kinds(machine.handle(o.Retired(), 10.4)) == [o.Finish]


def test_a_source_that_ends_after_it_sealed_does_not_stop_the_commit() -> None:
    """1. The source seals and ends. 2. The target, now the only holder, proves the state. 3. It lives on."""
    machine, commands = run(MOVE, o.Begin(), READY, SEALED, o.HostGone(o.Side.SOURCE))
    assert commands == []
    assert kinds(machine.handle(o.TargetPrepared(receipt()), 10.2)) == [o.SwapOwner]
    assert kinds(machine.handle(o.Swapped(ok=True), 10.3)) == [o.Activate]
    assert kinds(machine.handle(o.Activated(), 10.4)) == [o.Journal, o.PublishOwner, o.Journal, o.Finish]


@pytest.mark.parametrize(
    "silence", [o.HostGone(o.Side.SOURCE), o.PeerFailed(o.Call.RUN_SOURCE, "TIMEOUT", "no answer")]
)
@pytest.mark.parametrize("proof_first", [True, False])
def test_a_source_that_falls_silent_is_believed_to_have_sealed_if_the_target_proves_it(
    silence: o.Event, proof_first: bool
) -> None:
    events = (o.TargetPrepared(receipt()), silence)
    _, commands = run(MOVE, o.Begin(), READY, *(events if proof_first else reversed(events)))
    assert kinds(commands) == [o.SwapOwner]


def test_a_source_that_ends_before_it_sealed_takes_the_session_with_it() -> None:
    machine, commands = run(
        MOVE, o.Begin(), READY, o.HostGone(o.Side.SOURCE), o.PeerFailed(o.Call.AWAIT_PREPARED, "LINK_CUT", "closed")
    )
    assert kinds(commands) == [o.Journal, o.Discard]
    (finish,) = machine.handle(o.Discarded(), 10.2)
    assert isinstance(finish, o.Finish)
    assert (finish.outcome, finish.lost) == (o.Outcome.REFUSED, True)
    assert finish.error is not None
    assert finish.error.code == "HOST_GONE"


def test_a_target_that_ends_before_the_commit_only_ends_the_order() -> None:
    machine, commands = run(MOVE, o.Begin(), READY, o.HostGone(o.Side.TARGET))
    assert kinds(commands) == [o.Journal, o.Thaw]
    (finish,) = machine.handle(o.Thawed(), 10.2)
    assert isinstance(finish, o.Finish)
    assert (finish.outcome, finish.lost) == (o.Outcome.REFUSED, False)


def ended(commands: list[o.Command]) -> tuple[o.Outcome, bool]:
    """How an order ended whose last line was journalled."""
    *_, journal, finish = commands
    assert phase(journal) is o.JournalPhase.DONE
    assert isinstance(finish, o.Finish)
    return finish.outcome, finish.lost


def test_a_target_that_ends_before_it_is_known_to_play_gives_a_copied_session_back() -> None:
    """1 the swap back, at the same cut  2 the source plays on under the epoch after the target's  3 it is told"""
    machine, commands = run(MOVE, *COMMITTED, o.HostGone(o.Side.TARGET))
    (back,) = commands
    assert isinstance(back, o.ReturnOwner)
    assert (back.before, back.after) == (MOVE.after, o.Owner(A, Epoch(5)))
    assert (back.why.code, back.why.facts["host"]) == ("HOST_GONE", "b")
    assert machine.handle(o.Activated(), 10.2) == []
    assert machine.handle(o.Swapped(ok=True), 10.3) == [o.Thaw(0.0, Epoch(5))]
    assert machine.handle(o.PeerFailed(o.Call.THAW, "TIMEOUT", "?"), 10.4) == [o.Thaw(0.05, Epoch(5))]
    commands = machine.handle(o.Thawed(), 10.5)
    assert commands[0] == o.PublishOwner(o.Owner(A, Epoch(5)), 5)
    assert ended(commands) == (o.Outcome.RETURNED, False)
    assert commands[-1] == o.Finish(o.Outcome.RETURNED, back.why)


def test_a_resume_whose_target_ends_before_it_is_known_to_play_is_parked_again() -> None:
    machine, commands = run(
        RESUME, o.Begin(), o.TargetPrepared(receipt(RESUME)), o.Swapped(ok=True), o.HostGone(o.Side.TARGET)
    )
    assert kinds(commands) == [o.ReturnOwner]
    commands = machine.handle(o.Swapped(ok=True), 10.3)
    assert commands[0] == o.PublishOwner(o.Owner(None, Epoch(5)), 5)
    assert ended(commands) == (o.Outcome.RETURNED, False)


@pytest.mark.parametrize("order", [MOVE, SHM])
@pytest.mark.parametrize("told", [(o.Swapped(ok=True),), (o.SwapUnknown("?"), o.OwnerRead(MOVE.after))])
def test_a_target_that_ended_before_the_swap_was_known_gives_the_session_back_even_if_it_was_to_be_handed_over(
    order: o.Order, told: tuple[o.Event, ...]
) -> None:
    _, commands = run(order, *PROVEN, o.HostGone(o.Side.TARGET), *told)
    assert kinds(commands) == [o.ReturnOwner]


@pytest.mark.parametrize("events", [(o.HostGone(o.Side.TARGET), o.Retired()), (o.Retired(), o.HostGone(o.Side.TARGET))])
def test_a_handed_over_session_whose_source_was_fenced_is_lost_with_its_target(events: tuple[o.Event, ...]) -> None:
    _, commands = run(SHM, *COMMITTED, *events)
    assert ended(commands) == (o.Outcome.LOST, True)


def test_a_session_whose_source_and_target_have_both_ended_is_lost() -> None:
    _, commands = run(MOVE, *COMMITTED, o.HostGone(o.Side.SOURCE), o.HostGone(o.Side.TARGET))
    assert ended(commands) == (o.Outcome.LOST, True)


@pytest.mark.parametrize("when", ["while the owner is swapped back", "while it is thawed"])
def test_a_source_that_ends_on_the_way_back_takes_the_session_with_it(when: str) -> None:
    gone, back = o.HostGone(o.Side.SOURCE), o.Swapped(ok=True)
    events = (gone, back) if when == "while the owner is swapped back" else (back, gone)
    _, commands = run(MOVE, *COMMITTED, o.HostGone(o.Side.TARGET), *events)
    assert ended(commands) == (o.Outcome.LOST, True)


def test_an_unknown_swap_back_is_read_from_the_record_and_asked_again_where_it_was_not_made() -> None:
    machine, _ = run(MOVE, *COMMITTED, o.HostGone(o.Side.TARGET))
    assert machine.handle(o.SwapUnknown("?"), 10.2) == [o.ReadOwner(0.05)]
    assert kinds(machine.handle(o.OwnerRead(MOVE.after), 10.3)) == [o.ReturnOwner]
    assert machine.handle(o.SwapUnknown("?"), 10.4) == [o.ReadOwner(0.1)]
    assert kinds(machine.handle(o.OwnerRead(MOVE.returned), 10.5)) == [o.Thaw]


def test_once_a_target_is_known_to_play_nothing_is_given_back() -> None:
    machine, _ = run(MOVE, *COMMITTED, o.Activated())
    assert machine.handle(o.HostGone(o.Side.TARGET), 10.2) == []
    assert ended(machine.handle(o.Retired(), 10.3)) == (o.Outcome.DONE, False)


def test_silence_of_a_target_gives_nothing_back() -> None:
    machine, _ = run(MOVE, *COMMITTED)
    for _ in range(100):
        assert kinds(machine.handle(o.PeerFailed(o.Call.ACTIVATE, "TIMEOUT", "?"), 1e6)) == [o.Activate]


def test_silence_never_loses_an_activation_but_the_targets_own_refusals_do() -> None:
    machine = Handoff(MOVE, 0.0, Retries(attempts_max=3))
    for event in COMMITTED:
        machine.handle(event, 10.1)
    for code in ("TIMEOUT", "HOST_GONE") * 20:
        assert kinds(machine.handle(o.PeerFailed(o.Call.ACTIVATE, code, "?"), 10.2)) == [o.Activate]
    for _ in range(2):
        assert kinds(machine.handle(o.PeerFailed(o.Call.ACTIVATE, "CORRUPT", "changed"), 10.3)) == [o.Activate]
    assert kinds(machine.handle(o.PeerFailed(o.Call.ACTIVATE, "CORRUPT", "changed"), 10.4)) == [o.Retire]
    *_, finish = machine.handle(o.Retired(), 10.5)
    assert isinstance(finish, o.Finish)
    assert (finish.outcome, finish.lost) == (o.Outcome.LOST, True)
    assert finish.error is not None and finish.error.code == "CORRUPT"


def test_a_source_that_never_lets_go_of_a_copied_session_is_noted() -> None:
    machine = Handoff(MOVE, 0.0, Retries(attempts_max=2))
    for event in (*COMMITTED, o.Activated()):
        machine.handle(event, 10.1)
    assert kinds(machine.handle(o.PeerFailed(o.Call.RETIRE, "TIMEOUT", "?"), 10.1)) == [o.Retire]
    _, finish = machine.handle(o.PeerFailed(o.Call.RETIRE, "TIMEOUT", "?"), 10.2)
    assert finish == o.Finish(o.Outcome.DONE, None, note="a did not let go: ?")


@pytest.mark.parametrize(
    ("order", "journal", "owner", "expected"),
    [
        (MOVE, o.JournalPhase.BEGUN, MOVE.before, [o.Journal, o.Discard, o.Thaw]),
        (MOVE, o.JournalPhase.BEGUN, MOVE.after, [o.Activate]),
        (MOVE, o.JournalPhase.ABORTED, MOVE.before, [o.Discard, o.Thaw]),
        (MOVE, o.JournalPhase.COMMITTED, MOVE.after, [o.Activate]),
        (SHM, o.JournalPhase.COMMITTED, MOVE.after, [o.Retire]),
        (PARK, o.JournalPhase.BEGUN, PARK.before, [o.Journal, o.Thaw]),
        (PARK, o.JournalPhase.COMMITTED, PARK.after, [o.PublishOwner, o.Retire]),
        (RESUME, o.JournalPhase.BEGUN, RESUME.before, [o.Journal, o.Discard]),
        (RESUME, o.JournalPhase.COMMITTED, RESUME.after, [o.Activate]),
        (MOVE, o.JournalPhase.ACTIVATED, MOVE.after, [o.PublishOwner, o.Retire]),
        (SHM, o.JournalPhase.ACTIVATED, MOVE.after, [o.PublishOwner, o.Journal, o.Finish]),
        (RESUME, o.JournalPhase.ACTIVATED, RESUME.after, [o.PublishOwner, o.Journal, o.Finish]),
        (MOVE, o.JournalPhase.RETURNED, MOVE.returned, [o.Thaw]),
        (RESUME, o.JournalPhase.RETURNED, RESUME.returned, [o.PublishOwner, o.Journal, o.Finish]),
        (MOVE, o.JournalPhase.DONE, MOVE.after, []),
    ],
)
def test_recovery_is_a_function_of_the_last_durable_phase_and_the_record(
    order: o.Order, journal: o.JournalPhase, owner: o.Owner, expected: list[type]
) -> None:
    _, commands = run(order, o.Recovered(journal, owner, receipt(order)))
    assert kinds(commands) == expected


def test_a_move_that_goes_on_is_taken_up_at_both_hosts_and_committed_as_any_other() -> None:
    begun = o.Recovered(o.JournalPhase.BEGUN, MOVE.before, None, goes_on=True)
    machine, commands = run(MOVE, begun)
    assert commands == [o.RejoinSource(), o.AwaitPrepared()]
    assert machine.handle(SEALED, 10.1) == []
    assert kinds(machine.handle(o.TargetPrepared(receipt()), 10.2)) == [o.SwapOwner]


@pytest.mark.parametrize("call", [o.Call.RUN_SOURCE, o.Call.AWAIT_PREPARED])
def test_a_move_that_one_of_its_hosts_does_not_have_does_not_go_on(call: o.Call) -> None:
    begun = o.Recovered(o.JournalPhase.BEGUN, MOVE.before, None, goes_on=True)
    _, commands = run(MOVE, begun, o.PeerFailed(call, "UNKNOWN_MOVE", "there is none"))
    assert refused(commands) == "UNKNOWN_MOVE"


def test_an_image_proves_nothing_to_a_move_that_asked_for_none() -> None:
    machine, _ = run(MOVE, o.Begin(), READY)
    assert machine.handle(o.ImageWritten(receipt()), 0.1) == []
    assert kinds(machine.handle(SEALED, 0.1)) == []
    assert machine.phase is Phase.VERIFYING


def test_an_event_out_of_place_raises_with_the_story() -> None:
    machine, _ = run(MOVE, o.Begin())
    with pytest.raises(IllegalTransition, match=r"preparing and can't take Swapped. So far: .*precopy from a to b"):
        machine.handle(o.Swapped(ok=True), 1.0)


EVENTS: tuple[o.Event, ...] = (
    o.Begin(),
    READY,
    o.SourceProgress(1, 1, 1, frozen=False, note=""),
    SEALED,
    o.TargetPrepared(receipt()),
    o.TargetPrepared(receipt(target_root="bb")),
    o.ImageWritten(receipt(PARK)),
    o.Swapped(ok=True),
    o.Swapped(ok=False),
    o.SwapUnknown("?"),
    o.OwnerRead(MOVE.before),
    o.OwnerRead(MOVE.after),
    o.OwnerRead(MOVE.returned),
    o.Activated(),
    o.Retired(),
    o.Discarded(),
    o.Thawed(),
    o.HostGone(o.Side.SOURCE),
    o.HostGone(o.Side.TARGET),
    o.DeadlinePassed(),
    *(o.PeerFailed(call, code, "?") for call in o.Call for code in ("TIMEOUT", "CORRUPT")),
)


@given(
    st.sampled_from([MOVE, SHM, PARK, RESUME]),
    st.sampled_from([(), (o.Begin(), READY), (o.Begin(), READY, SEALED), (o.Begin(),)]),
    st.lists(st.sampled_from(EVENTS), max_size=30),
)
def test_whatever_comes_a_swap_is_made_once_and_given_back_only_before_the_target_is_told_of(
    order: o.Order, start: tuple[o.Event, ...], events: list[o.Event]
) -> None:
    """Every pair of phase and event is in the table or raises."""
    machine = Handoff(order, 0.0)
    said: list[o.Command] = []
    owner = order.before
    for event in (*start, *events):
        if isinstance(event, READY.__class__) and order.mode in (Mode.PARK, Mode.RESUME):
            continue
        known = type(event) in TRANSITIONS[machine.phase]
        # The record answers what happened: a swap is made once or never.
        if isinstance(event, o.OwnerRead) and event.owner != owner:
            continue
        asked = next((c for c in reversed(said) if isinstance(c, o.SwapOwner | o.ReturnOwner)), None)
        try:
            commands = machine.handle(event, 10.1)
        except IllegalTransition:
            assert not known
            continue
        assert known
        if isinstance(event, o.Swapped) and event.ok and asked is not None:
            assert owner == asked.before
            owner = asked.after
        said += commands
        activated = o.Journal(o.JournalPhase.ACTIVATED, {}) in said
        for command in commands:
            match command:
                case o.Thaw(_, epoch):
                    assert owner == (order.before if epoch is None else order.returned)
                case o.Retire() | o.Activate():
                    assert owner == order.after
                case o.ReturnOwner():
                    assert owner == order.after and not activated
                case o.PublishOwner(told):
                    assert told == owner
                    assert told != order.after or activated or order.target is None
        assert machine.phase is not Phase.NEW
    assert kinds(said).count(o.SwapOwner) <= 1
    assert kinds(said).count(o.Finish) <= 1
    assert all(c.receipt.source_root == c.receipt.target_root for c in said if isinstance(c, o.SwapOwner))
