"""Rows at the source's machine: told instead of sent, and never sealed before the target has said what came of them."""

from __future__ import annotations

from worldline.migration import source as s
from worldline.schema.contract import Contract
from worldline.schema.ids import Epoch, MoveId, SessionId
from worldline.schema.inventory import Kind, Roll
from worldline.schema.layout import LEAF_BYTES_MIN, Extent, Layout, Manifest, Placement, Segment, View
from worldline.schema.receipt import Mode
from worldline.schema.rows import Copy, Runs, Shift
from worldline.wire import records

BYTES = 1024
WINDOW = Extent(4096, BYTES)
COPY = Copy(0, 0, (Shift(8, 0, 8),))
NEW = Runs(4096 + BYTES // 2, BYTES // 2, BYTES // 2, 1)


def digest(text: str) -> bytes:
    return text.encode().ljust(16, b".")


def cut(block: int, name: str) -> s.CutTaken:
    """A window of 16 rows of 64 bytes that rolls by 8."""
    segment = Segment("k", BYTES, Kind.CACHE, Roll(0, 8))
    layout = Layout((segment,), (View("k", "uint8", (16, 64), (64, 1), 0, 0),), LEAF_BYTES_MIN)
    manifest = Manifest(layout, (Placement(WINDOW.offset, 4096, resident=True),), block)
    return s.CutTaken(manifest, (digest(name),), f"root{block}".encode(), b"l" * 32, block, 0.0)


def report(round_: int, name: str) -> s.DigestsIn:
    return s.DigestsIn(round_, ((WINDOW, digest(name)),))


def one_block_behind(limits: s.Limits, seconds: float = 1.0) -> tuple[s.SourceMachine, list[s.Command]]:
    """The target holds block 1; the next cut is block 2's, and freezes."""
    attempt = s.Attempt(MoveId("m"), SessionId("w"), Epoch(3), Mode.PRECOPY)
    source = s.SourceMachine(attempt, Contract(pause_bound_s=20.0, completion_deadline_s=60.0), 0.0, limits)
    source.handle(s.Connected(), 0.0)
    source.handle(cut(1, "a"), 0.0)
    source.handle(s.Posted(BYTES), seconds)
    source.handle(report(1, "a"), seconds)
    commands = source.handle(cut(2, "b"), seconds)
    assert source.phase is s.Phase.FROZEN
    return source, commands


def post(commands: list[s.Command]) -> s.Post:
    (found,) = [command for command in commands if isinstance(command, s.Post)]
    return found


def kinds(commands: list[s.Command]) -> list[type]:
    return [
        type(command.record) if isinstance(command, s.SendRecord) else type(command)
        for command in commands
        if not isinstance(command, s.Report)
    ]


def test_rows_that_moved_are_told_and_new_ones_sent() -> None:
    _, commands = one_block_behind(s.Limits())
    assert post(commands).steps == (COPY, NEW)
    assert post(commands).extents == ()


def test_nothing_is_sealed_before_the_target_has_said_that_the_rows_are_right() -> None:
    source, _ = one_block_behind(s.Limits())
    assert kinds(source.handle(s.Posted(NEW.nbytes), 1.5)) == [records.RoundEnd]
    assert source.phase is s.Phase.FROZEN
    assert kinds(source.handle(report(2, "b"), 1.6)) == [records.Seal, s.Sealed]


def test_leaves_that_rows_did_not_make_right_are_sent_whole_and_then_sealed() -> None:
    source, _ = one_block_behind(s.Limits())
    source.handle(s.Posted(NEW.nbytes), 1.5)
    repair = post(source.handle(report(2, "wrong"), 1.6))
    assert (repair.extents, repair.steps, repair.round) == ((WINDOW,), (), 3)
    assert kinds(source.handle(s.Posted(BYTES), 1.7)) == [records.RoundEnd, records.Seal, s.Sealed]


def test_leaves_of_which_the_target_says_nothing_are_sent_whole_too() -> None:
    source, _ = one_block_behind(s.Limits())
    source.handle(s.Posted(NEW.nbytes), 1.5)
    assert post(source.handle(s.DigestsIn(2, ()), 1.6)).extents == (WINDOW,)


def test_a_pause_that_grows_past_its_bound_while_rows_are_reported_ends_the_attempt() -> None:
    source, _ = one_block_behind(s.Limits())
    source.handle(s.Posted(NEW.nbytes), 1.5)
    source.handle(report(2, "b"), 21.0)
    assert source.phase is s.Phase.THAWED


def test_a_link_faster_than_rows_are_put_in_place_is_sent_whole_leaves() -> None:
    _, commands = one_block_behind(s.Limits(rolls_bytes_per_s_max=100.0, rate_bytes_min=1))
    assert (post(commands).extents, post(commands).steps) == ((WINDOW,), ())


def test_an_attempt_without_rolls_sends_whole_leaves() -> None:
    _, commands = one_block_behind(s.Limits(rolls=False))
    assert (post(commands).extents, post(commands).steps) == ((WINDOW,), ())


def test_of_two_blocks_a_window_of_two_has_nothing_left() -> None:
    attempt = s.Attempt(MoveId("m"), SessionId("w"), Epoch(3), Mode.PRECOPY)
    source = s.SourceMachine(attempt, Contract(pause_bound_s=20.0, completion_deadline_s=60.0), 0.0)
    for event in (s.Connected(), cut(1, "a"), s.Posted(BYTES), report(1, "a")):
        source.handle(event, 1.0)
    assert post(source.handle(cut(3, "c"), 1.0)).extents == (WINDOW,)
