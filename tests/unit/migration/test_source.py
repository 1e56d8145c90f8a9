"""The source's machine: events in, commands out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline.errors import IllegalTransition, Malformed
from worldline.migration import source as s
from worldline.migration.heard import from_target
from worldline.schema.contract import Contract
from worldline.schema.ids import Epoch, MoveId, SessionId
from worldline.schema.inventory import Free, Kind
from worldline.schema.layout import LEAF_BYTES_MIN, Extent, Layout, Manifest, Placement, Segment
from worldline.schema.receipt import Mode
from worldline.wire import records

LEAVES = 4
BYTES = 1000
EXTENTS = tuple(Extent(n * 4096, BYTES) for n in range(LEAVES))
LAYOUT_DIGEST = b"l" * 32
LIMITS = s.Limits(rate_bytes_min=1, overhead_s=0.01)


def manifest(block: int) -> Manifest:
    segments = tuple(Segment(f"s{n}", BYTES, Kind.CACHE, Free()) for n in range(LEAVES))
    placements = tuple(Placement(extent.offset, 4096, resident=True) for extent in EXTENTS)
    return Manifest(Layout(segments, (), LEAF_BYTES_MIN), placements, block)


def digest(text: str) -> bytes:
    return text.encode().ljust(16, b".")


def cut(block: int, *names: str, held_at_s: float = 0.0) -> s.CutTaken:
    return s.CutTaken(
        manifest(block), tuple(map(digest, names)), f"root{block}".encode(), LAYOUT_DIGEST, block, held_at_s
    )


def reported(round_: int, **names: str) -> s.DigestsIn:
    """`reported(1, l0="a")`: leaf 0 of round 1 was read as `a`."""
    return s.DigestsIn(round_, tuple((EXTENTS[int(leaf[1:])], digest(name)) for leaf, name in names.items()))


def machine(mode: Mode = Mode.PRECOPY, contract: Contract | None = None) -> s.SourceMachine:
    attempt = s.Attempt(MoveId("m"), SessionId("w"), Epoch(3), mode)
    return s.SourceMachine(attempt, contract or Contract(), 0.0, LIMITS)


def kinds(commands: list[s.Command]) -> list[type]:
    return [
        type(command.record) if isinstance(command, s.SendRecord) else type(command)
        for command in commands
        if not isinstance(command, s.Report)
    ]


def posted_extents(commands: list[s.Command]) -> tuple[Extent, ...]:
    return next(command.extents for command in commands if isinstance(command, s.Post))


def sealed(mode: Mode = Mode.FREEZE) -> s.SourceMachine:
    source = machine(mode)
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.1)
    source.handle(s.Posted(4000), 0.2)
    assert source.phase is s.Phase.SEALED
    return source


def test_a_freeze_is_one_cut_that_is_not_thawed_then_everything_and_the_seal() -> None:
    source = machine(Mode.FREEZE)
    assert source.handle(s.Connected(), 0.0) == [
        s.SendRecord(records.Hello(SessionId("w"), Epoch(3), MoveId("m"), Mode.FREEZE)),
        s.TakeCut(compares=False),
    ]
    commands = source.handle(cut(7, *"abcd", held_at_s=0.05), 0.1)
    assert kinds(commands) == [records.ManifestRecord, s.Post]
    assert posted_extents(commands) == EXTENTS
    commands = source.handle(s.Posted(4000), 0.3)
    assert kinds(commands) == [records.RoundEnd, records.Seal, s.Sealed]
    assert commands[0] == s.SendRecord(records.RoundEnd(1, 4000))
    assert commands[1] == s.SendRecord(records.Seal(b"root7", LAYOUT_DIGEST, 7, 7, 4, 1, held_us=250_000))
    assert commands[-1] == s.Sealed(b"root7", 7, 7, 0.05, 4000, 1)


def test_the_first_cut_of_a_pre_copy_is_thawed_before_anything_is_sent() -> None:
    source = machine()
    source.handle(s.Connected(), 0.0)
    commands = source.handle(cut(1, *"abcd"), 0.1)
    assert kinds(commands) == [s.Thaw, records.ManifestRecord, s.Post]
    assert source.phase is s.Phase.COPYING


def test_a_leaf_is_dirty_unless_the_target_reported_the_digest_it_has_at_the_cut() -> None:
    source = machine(contract=Contract(pause_bound_s=1.0))
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.0)
    assert kinds(source.handle(s.Posted(4000), 1.0)) == [records.RoundEnd]
    # Leaf 1 was damaged on the way, of leaf 2 nothing was heard, leaf 3 was rewritten after it was sent.
    assert kinds(source.handle(reported(1, l0="a", l1="x", l3="d"), 1.0)) == [s.TakeCut]
    commands = source.handle(cut(2, *"abcD"), 1.1)
    assert posted_extents(commands) == EXTENTS[1:]


def test_a_leaf_that_was_torn_while_it_was_sent_is_clean_if_it_landed_as_it_is_now() -> None:
    source = machine()
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.0)
    source.handle(s.Posted(4000), 0.1)
    source.handle(reported(1, l0="A", l1="b", l2="c", l3="d"), 0.1)
    commands = source.handle(cut(2, *"Abcd"), 0.2)
    assert kinds(commands) == [records.ManifestRecord, records.Seal, s.Sealed]


def cutting() -> s.SourceMachine:
    """One round is over: the target has read `abcd`, and the cut that compares is waited for."""
    source = machine(contract=Contract(pause_bound_s=1.0))
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.0)
    source.handle(s.Posted(4000), 0.1)
    assert kinds(source.handle(reported(1, l0="a", l1="b", l2="c", l3="d"), 0.1)) == [s.TakeCut]
    return source


def test_what_is_announced_is_named_at_once_and_not_posted_again_where_nobody_wrote_it_since() -> None:
    source = cutting()
    assert source.handle(s.Announced(EXTENTS[2:]), 0.2) == [
        s.PostEarly(EXTENTS[2:], Contract().completion_deadline_s - 0.2)
    ]
    known = (None, digest("b"), digest("C"), None)
    commands = source.handle(replace(cut(2, *"abcd"), digests=known, root=None), 0.3)
    assert source.phase is s.Phase.FROZEN
    assert posted_extents(commands) == (EXTENTS[0], EXTENTS[3])
    source.handle(s.RestRead(tuple(map(digest, "AbCD")), b"root2"), 0.4)
    end = source.handle(s.Posted(2000), 0.4)[0]
    assert end == s.SendRecord(records.RoundEnd(2, 4000))


def test_what_the_target_reports_of_a_named_leaf_counts_at_the_next_cut() -> None:
    source = machine(contract=Contract(pause_bound_s=0.1, completion_deadline_s=100.0))
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.0)
    source.handle(s.Posted(4000), 1.0)
    source.handle(reported(1, l0="a", l1="b", l2="c", l3="d"), 1.0)
    source.handle(s.Announced(EXTENTS[3:]), 1.1)
    assert posted_extents(source.handle(cut(2, *"ABcD"), 1.2)) == EXTENTS[:2]
    source.handle(s.Posted(2000), 1.3)
    source.handle(reported(2, l0="A", l1="B", l3="?"), 1.3)
    assert posted_extents(source.handle(cut(3, *"ABcD"), 1.4)) == EXTENTS[3:]


def test_a_round_on_its_way_is_not_a_round_that_was_read() -> None:
    source = machine()
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.0)
    commands = source.handle(reported(1, l0="a"), 0.1)
    assert kinds(commands) == [records.Abort, s.CloseLink, s.Failed]
    assert commands[-1] == s.Failed("MALFORMED", "the target reports round 1, which has not ended", {})


def test_a_report_of_an_earlier_round_is_dropped() -> None:
    source = machine()
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.0)
    source.handle(s.Posted(4000), 1.0)
    source.handle(reported(1, l0="a", l1="b"), 1.0)
    assert kinds(source.handle(cut(2, *"abcd"), 1.1)) == [s.Thaw, records.ManifestRecord, s.Post]
    assert source.handle(reported(1, l2="c", l3="d"), 1.2) == []
    assert source.phase is s.Phase.COPYING


def test_a_round_ends_once() -> None:
    source = machine()
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.0)
    assert kinds(source.handle(s.Posted(4000), 1.0)) == [records.RoundEnd]
    assert source.handle(s.Posted(4000), 1.0) == []


def test_a_session_that_rewrites_faster_than_the_link_is_thawed_and_told_so() -> None:
    source = machine(contract=Contract(pause_bound_s=0.5))
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.0)
    source.handle(s.Posted(4000), 2.0)
    source.handle(reported(1), 2.0)
    commands = source.handle(cut(2, *"ABCD"), 2.1)
    assert kinds(commands) == [s.Thaw, records.Abort, s.CloseLink, s.Failed]
    failed = commands[-1]
    assert isinstance(failed, s.Failed)
    assert failed.code == "BANDWIDTH"


def test_waiting_for_others_turn_to_end_says_nothing_about_the_link() -> None:
    """1. A round waits 1.8 of its 2 s for grants. 2. All is rewritten. 3. The link is taken for ten times as fast."""
    source = machine(contract=Contract(pause_bound_s=0.5))
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd"), 0.0)
    source.handle(s.Posted(4000, idle_s=1.8), 2.0)
    source.handle(reported(1), 2.0)
    assert kinds(source.handle(cut(2, *"ABCD"), 2.1)) == [records.ManifestRecord, s.Post]
    assert source.phase is s.Phase.FROZEN


def test_a_pause_that_reaches_the_bound_while_the_rest_is_sent_ends_the_attempt() -> None:
    source = machine(Mode.FREEZE, Contract(pause_bound_s=0.5))
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd", held_at_s=1.0), 1.1)
    assert source.wake_at_s == 1.5
    assert source.handle(s.Deadline(), 1.4) == []
    commands = source.handle(s.Deadline(), 1.5)
    assert kinds(commands) == [s.Thaw, records.Abort, s.CloseLink, s.Failed]
    assert source.handle(s.Posted(4000), 2.0) == []


def test_a_late_post_is_not_sealed_after_the_bound() -> None:
    source = machine(Mode.FREEZE, Contract(pause_bound_s=0.5))
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, *"abcd", held_at_s=1.0), 1.1)
    assert kinds(source.handle(s.Posted(4000), 1.7)) == [s.Thaw, records.Abort, s.CloseLink, s.Failed]


@pytest.mark.parametrize("event", [s.LinkLost("gone"), s.Deadline(), reported(1, l0="a")])
def test_nothing_but_the_controller_or_a_refusal_moves_a_sealed_source(event: s.Event) -> None:
    source = sealed()
    assert [command for command in source.handle(event, 1e6) if not isinstance(command, s.Report)] == []
    assert source.phase is s.Phase.SEALED
    assert source.wake_at_s is None


def test_a_sealed_source_is_thawed_by_the_targets_refusal_and_answers_no_second_time() -> None:
    source = sealed()
    assert kinds(source.handle(s.RefusedIn("CORRUPT", "bytes differ"), 0.3)) == [s.Thaw, s.CloseLink]
    assert source.phase is s.Phase.THAWED


def test_a_target_that_takes_its_proof_back_thaws_nothing() -> None:
    source = sealed()
    source.handle(s.PreparedIn(b"root1"), 0.3)
    assert source.phase is s.Phase.PREPARED
    assert source.handle(s.RefusedIn("CORRUPT", "after all"), 0.4) == []
    assert source.phase is s.Phase.PREPARED


def test_a_proof_of_another_root_is_no_proof() -> None:
    source = sealed()
    assert source.handle(s.PreparedIn(b"other"), 0.3) == []
    assert source.phase is s.Phase.SEALED


def test_retiring_fences_before_it_releases_and_a_thaw_after_it_does_nothing() -> None:
    source = sealed()
    assert source.handle(s.Retire(), 0.5) == [s.Fence()]
    assert source.handle(s.Retire(), 0.6) == []
    assert source.handle(s.Abort("DEADLINE", "late"), 0.6) == []


def test_a_thawed_source_can_not_be_retired() -> None:
    source = machine()
    source.handle(s.Abort("DEADLINE", "off"), 0.0)
    with pytest.raises(IllegalTransition, match="given up, DEADLINE"):
        source.handle(s.Retire(), 0.1)


def test_a_source_that_has_not_sealed_can_not_be_retired() -> None:
    source = machine()
    source.handle(s.Connected(), 0.0)
    with pytest.raises(IllegalTransition):
        source.handle(s.Retire(), 0.1)


def test_a_cut_taken_after_the_end_is_let_go() -> None:
    source = machine()
    source.handle(s.Connected(), 0.0)
    assert kinds(source.handle(s.Abort("DEADLINE", "off"), 0.1)) == [s.Thaw, records.Abort, s.CloseLink, s.Failed]
    assert source.handle(cut(1, *"abcd"), 0.2) == [s.Thaw()]


def test_records_of_a_source_are_no_events_for_a_source() -> None:
    with pytest.raises(Malformed, match="SEAL record from a target"):
        from_target(records.Seal(b"r" * 32, b"l" * 32, 1, 1, 1, 1))
    assert from_target(records.Abort("DEADLINE", "late")) == s.RefusedIn("DEADLINE", "late")


EVENTS: tuple[s.Event, ...] = (
    s.Connected(),
    cut(1, *"abcd"),
    cut(2, *"abcD"),
    s.Posted(4000),
    reported(1, l0="a", l1="b", l2="c"),
    reported(2, l3="D"),
    s.PreparedIn(b"root1"),
    s.RefusedIn("CORRUPT", "no"),
    s.LinkLost("cut"),
    s.Abort("DEADLINE", "off"),
    s.Retire(),
    s.Deadline(),
)


@given(st.sampled_from([Mode.FREEZE, Mode.PRECOPY]), st.lists(st.sampled_from(EVENTS), max_size=25))
def test_whatever_comes_the_engine_is_thawed_or_fenced_once_and_in_the_end(mode: Mode, events: list[s.Event]) -> None:
    """Every pair of phase and event is in the table or raises; a fence is never followed by a thaw."""
    source, now_s = machine(mode), 0.0
    words: list[type] = []
    for event in events:
        now_s += 0.01
        known = type(event) in s.TRANSITIONS[source.phase]
        try:
            commands = source.handle(event, now_s)
        except IllegalTransition:
            assert not known
        else:
            assert known
            words += kinds(commands)
    if s.Fence in words:
        assert s.Thaw not in words[words.index(s.Fence) :]
        assert words[-1] is s.Fence or s.TakeCut not in words[words.index(s.Fence) :]
    assert words.count(s.Sealed) + words.count(s.Failed) <= 1
    if source.phase is s.Phase.THAWED:
        holds = max((n for n, word in enumerate(words) if word is s.TakeCut), default=-1)
        assert holds == -1 or s.Thaw in words[holds:]
