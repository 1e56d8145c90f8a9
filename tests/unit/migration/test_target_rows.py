"""Rows and copies at the target's machine: put in place in order, digested after that, and refused where they leave the
state.
"""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.migration import target as t
from worldline.schema.ids import Epoch, MoveId, SessionId
from worldline.schema.inventory import Kind, Roll
from worldline.schema.layout import LEAF_BYTES_MIN, Extent, Layout, Manifest, Placement, Segment, View
from worldline.schema.receipt import Mode
from worldline.schema.rows import Copy, Runs, Shift
from worldline.snapshot.rows import copy_rows, write_runs
from worldline.wire import records

ATTEMPT = t.Attempt(MoveId("m"), SessionId("w"), Epoch(3), Mode.PRECOPY)
BYTES, ROWS = 1024, 16
PLACES = (Extent(0, BYTES), Extent(4096, BYTES))
COPY = Copy(0, 0, (Shift(8, 0, 8),))
NEW = Runs(BYTES // 2, BYTES // 2, BYTES // 2, 1)


def manifest(block: int = 5) -> Manifest:
    """Two windows of 16 rows of 64 bytes, and a third view whose rows share their bytes."""
    segments = tuple(Segment(f"s{n}", BYTES, Kind.CACHE, Roll(0, 8)) for n in range(2))
    views = (
        View("s0", "uint8", (ROWS, 64), (64, 1), 0, 0),
        View("s1", "float32", (ROWS, 16), (16, 1), 1, 0),
        View("shared", "uint8", (ROWS, 1 << 40), (64, 0), 0, 0),
        View("long", "uint8", (ROWS + 1, 64), (64, 1), 0, 0),
        View("lost", "uint8", (ROWS, 64), (64, 1), 7, 0),
        View("strange", "fp3", (ROWS, 64), (64, 1), 0, 0),
        View("nothing", "uint8", (ROWS, 0), (64, 1), 0, 0),
    )
    placements = tuple(Placement(place.offset, 4096, resident=True) for place in PLACES)
    return Manifest(Layout(segments, views, LEAF_BYTES_MIN), placements, block)


def receiving(hands_over: bool = False) -> t.TargetMachine:
    target = t.TargetMachine(ATTEMPT, 2 * 4096, 0.0, 10.0, hands_over=hands_over)
    for event in (t.LinkUp(), t.HelloIn(ATTEMPT), t.ManifestIn(1, manifest())):
        assert target.handle(event, 0.0) == []
    return target


def put(commands: list[t.Command]) -> t.Put:
    (command,) = commands
    assert isinstance(command, t.Put)
    return command


def rows(runs: Runs = NEW) -> t.RowsIn:
    return t.RowsIn(runs, bytes(runs.nbytes))


def test_rows_are_put_in_place_and_digested_when_the_whole_tensor_is_there() -> None:
    """1. a copy, and the rows after it  2. the next tensor begins  3. only then is the first one's leaf read, once."""
    target = receiving()
    first, second = put(target.handle(t.CopyIn(COPY), 0.1)), put(target.handle(rows(), 0.1))
    assert (first.step, second.step) == (t.CopyIn(COPY), rows())
    third = put(target.handle(t.CopyIn(Copy(1, 0, (Shift(8, 0, 8),))), 0.1))
    assert target.handle(t.PutDone(first.ticket), 0.1) == []
    (digest,) = target.handle(t.PutDone(second.ticket), 0.1)
    assert isinstance(digest, t.Digest)
    assert digest.extents == (PLACES[0],)
    assert target.handle(t.RoundEndIn(1, NEW.nbytes), 0.1) == []
    (digest_two,) = target.handle(t.PutDone(third.ticket), 0.1)
    assert isinstance(digest_two, t.Digest)
    assert target.handle(t.LaneDone(digest.ticket, ((PLACES[0], b"a" * 16),)), 0.1) == []
    (told,) = target.handle(t.LaneDone(digest_two.ticket, ((PLACES[1], b"b" * 16),)), 0.1)
    leaves = (records.LeafDigest(PLACES[0], b"a" * 16), records.LeafDigest(PLACES[1], b"b" * 16))
    assert told == t.SendRecord(records.Digests(1, leaves))


def test_a_rounds_end_waits_for_rows_on_their_way() -> None:
    target = receiving()
    step = put(target.handle(rows(), 0.1))
    assert target.handle(t.RoundEndIn(1, NEW.nbytes), 0.1) == []
    assert [type(command) for command in target.handle(t.PutDone(step.ticket), 0.1)] == [t.Digest]


def test_a_digest_read_before_rows_were_in_place_does_not_count() -> None:
    """1. rows are on their way  2. the whole leaf lands and is read  3. the rows are put over it."""
    target = receiving()
    step = put(target.handle(rows(), 0.1))
    (early,) = target.handle(t.LandedIn(PLACES[0]), 0.1)
    assert isinstance(early, t.Digest)
    target.handle(t.RoundEndIn(1, NEW.nbytes + BYTES), 0.1)
    target.handle(t.LaneDone(early.ticket, ((PLACES[0], b"old".ljust(16)),)), 0.1)
    (again,) = target.handle(t.PutDone(step.ticket), 0.1)
    assert isinstance(again, t.Digest)
    (told,) = target.handle(t.LaneDone(again.ticket, ((PLACES[0], b"new".ljust(16)),)), 0.1)
    assert told == t.SendRecord(records.Digests(1, (records.LeafDigest(PLACES[0], b"new".ljust(16)),)))


def test_rows_in_place_before_a_rounds_end_take_back_what_was_read_there() -> None:
    """1. the whole leaf lands and is read while rows are on their way  2. they are put over it  3. the round ends."""
    target = receiving()
    step = put(target.handle(rows(), 0.1))
    (early,) = target.handle(t.LandedIn(PLACES[0]), 0.1)
    assert isinstance(early, t.Digest)
    target.handle(t.LaneDone(early.ticket, ((PLACES[0], b"old".ljust(16)),)), 0.1)
    target.handle(t.PutDone(step.ticket), 0.1)
    (again,) = target.handle(t.RoundEndIn(1, NEW.nbytes + BYTES), 0.1)
    assert isinstance(again, t.Digest)
    assert again.extents == (PLACES[0],)


def test_nothing_is_verified_while_rows_are_on_their_way() -> None:
    target = receiving()
    step = put(target.handle(rows(), 0.1))
    target.handle(t.RoundEndIn(1, NEW.nbytes), 0.1)
    assert target.handle(t.SealIn(b"r" * 32, b"l" * 32, 5, 5, 2, 1), 0.2) == [t.StopReceiving()]
    one, other = target.handle(t.PutDone(step.ticket), 0.2)
    assert isinstance(one, t.Digest)
    assert isinstance(other, t.Digest)
    assert (one.extents, other.extents) == (PLACES[:1], PLACES[1:])
    assert target.handle(t.LaneDone(one.ticket, ((PLACES[0], b"a" * 16),)), 0.2) == []
    (root,) = target.handle(t.LaneDone(other.ticket, ((PLACES[1], b"b" * 16),)), 0.2)
    assert root == t.ComputeRoot(manifest(), (b"a" * 16, b"b" * 16))


class Octets:
    """An arena of the state's size; what leaves it is seen."""

    def __init__(self) -> None:
        self.data = bytearray(b"\7" * 8192)

    def bytes_at(self, extent: Extent) -> memoryview:
        assert 0 <= extent.offset <= extent.offset + extent.nbytes <= len(self.data)
        return memoryview(self.data)[extent.offset : extent.offset + extent.nbytes]

    def carry_out(self, put: t.Put) -> None:
        match put.step:
            case t.CopyIn(copy):
                copy_rows(self, put.manifest, copy)
            case t.RowsIn(runs, octets):
                write_runs(self, runs, octets)

    def digest(self, extent: Extent) -> bytes:
        return hashlib.blake2b(self.bytes_at(extent), digest_size=16).digest()


HOSTILE = {
    "a view that is not there": Copy(99, 0, (Shift(8, 0, 8),)),
    "a dimension that is not there": Copy(0, 2, (Shift(8, 0, 8),)),
    "rows read beyond the view": Copy(0, 0, (Shift(9, 0, 8),)),
    "rows written beyond the view": Copy(0, 0, (Shift(0, 9, 8),)),
    "a view whose elements share their bytes": Copy(2, 0, (Shift(8, 0, 8),)),
    "a view beyond its segment": Copy(3, 0, (Shift(8, 0, 8),)),
    "a view in no segment": Copy(4, 0, (Shift(8, 0, 8),)),
    "a view of an unknown dtype": Copy(5, 0, (Shift(8, 0, 8),)),
    "a view without elements": Copy(6, 0, (Shift(8, 0, 8),)),
    "rows before the state": Runs(2048, 64, 64, 1),
    "rows that end outside a segment": Runs(BYTES - 32, 64, 64, 1),
    "rows scattered over a gap": Runs(0, 64, 4096, 2),
    "rows outside the arena": Runs(1 << 40, 64, 64, 1),
}


@pytest.mark.parametrize("step", HOSTILE.values(), ids=HOSTILE)
def test_rows_outside_the_state_end_the_attempt(step: Copy | Runs) -> None:
    target = receiving()
    commands = target.handle(t.CopyIn(step) if isinstance(step, Copy) else rows(step), 0.1)
    assert not any(isinstance(command, t.Put) for command in commands)
    assert target.phase is t.Phase.DISCARDED


def test_a_view_is_copied_once_a_round() -> None:
    """A record of a few octets has the target copy a whole tensor: repeated, it would keep a host busy for ever."""
    target = receiving()
    put(target.handle(t.CopyIn(COPY), 0.1))
    target.handle(t.CopyIn(COPY), 0.1)
    assert target.phase is t.Phase.DISCARDED


@pytest.mark.parametrize("event", [t.CopyIn(COPY), rows()])
def test_a_handed_over_arena_takes_no_rows(event: t.Event) -> None:
    target = receiving(hands_over=True)
    target.handle(event, 0.1)
    assert target.phase is t.Phase.DISCARDED


@pytest.mark.parametrize("event", [t.CopyIn(COPY), rows()])
def test_rows_before_a_manifest_after_a_round_or_after_the_seal_are_refused(event: t.Event) -> None:
    early = t.TargetMachine(ATTEMPT, 2 * 4096, 0.0, 10.0)
    early.handle(t.LinkUp(), 0.0)
    early.handle(t.HelloIn(ATTEMPT), 0.0)
    ended = receiving()
    ended.handle(t.LandedIn(PLACES[0]), 0.1)
    ended.handle(t.RoundEndIn(1, BYTES), 0.1)
    sealed = receiving()
    sealed.handle(t.SealIn(b"r" * 32, b"l" * 32, 5, 5, 2, 1), 0.2)
    for target in (early, ended, sealed):
        target.handle(event, 0.3)
        assert target.phase is t.Phase.DISCARDED


@given(
    st.one_of(
        st.builds(
            Copy,
            st.integers(0, 9),
            st.integers(0, 3),
            st.lists(st.builds(Shift, *[st.integers(0, 20)] * 2, st.integers(1, 20)), min_size=1, max_size=1).map(
                tuple
            ),
        ),
        st.builds(
            lambda at, run, gap, n: Runs(at, run, run + gap if n > 1 else run, n),
            *[st.integers(1, 5000)] * 3,
            st.integers(1, 9),
        ),
    )
)
def test_whatever_is_put_in_place_lies_in_the_state(step: Copy | Runs) -> None:
    """What a machine orders touches no byte outside the state's leaves."""
    target = receiving()
    commands = target.handle(t.CopyIn(step) if isinstance(step, Copy) else rows(step), 0.1)
    arena = Octets()
    for command in commands:
        if isinstance(command, t.Put):
            arena.carry_out(command)
    data = arena.data
    outside = data[BYTES:4096] + data[4096 + BYTES :]
    assert outside == b"\7" * len(outside)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_root_is_computed_over_what_lies_there_whatever_is_late(data: st.DataObject) -> None:
    """Chunks land, rows are put in place and lanes read in any order that a driver may bring about; answers come late.
    When the machine asks for the root, every digest in it is of the bytes that lie in the arena then.
    """
    target, arena, told = receiving(), Octets(), 0
    kinds: tuple[t.Event, ...] = (t.CopyIn(COPY), rows(), t.LandedIn(PLACES[0]), t.LandedIn(PLACES[1]))
    stream = data.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    stream = [event for n, event in enumerate(stream) if not (isinstance(event, t.CopyIn) and event in stream[:n])]
    nbytes = sum(e.extent.nbytes if isinstance(e, t.LandedIn) else NEW.nbytes for e in stream if e != t.CopyIn(COPY))
    stream += [t.RoundEndIn(1, nbytes), t.SealIn(b"r" * 32, b"l" * 32, 5, 5, 2, 1)]
    puts: list[t.Put] = []
    jobs: list[t.Digest] = []
    answers: list[t.Event] = []
    while stream or puts or jobs or answers:
        ready = [
            work for work, there in (("hear", stream), ("put", puts), ("read", jobs), ("answer", answers)) if there
        ]
        commands: list[t.Command] = []
        match data.draw(st.sampled_from(ready)):
            case "hear":
                event = stream.pop(0)
                if isinstance(event, t.LandedIn):
                    told += 1
                    arena.bytes_at(event.extent)[:] = bytes([told]) * event.extent.nbytes
                commands = target.handle(event, 0.1)
            case "put":
                put = puts.pop(0)
                arena.carry_out(put)
                answers.append(t.PutDone(put.ticket))
            case "read":
                job = jobs.pop(data.draw(st.integers(0, len(jobs) - 1)))
                answers.append(t.LaneDone(job.ticket, tuple((extent, arena.digest(extent)) for extent in job.extents)))
            case _:
                late = [answer for answer in answers if isinstance(answer, t.LaneDone)]
                first = next((answer for answer in answers if isinstance(answer, t.PutDone)), None)
                answer = data.draw(st.sampled_from([*late, *([first] if first else [])]))
                answers.remove(answer)
                commands = target.handle(answer, 0.1)
        puts += [command for command in commands if isinstance(command, t.Put)]
        jobs += [command for command in commands if isinstance(command, t.Digest)]
        for command in commands:
            if isinstance(command, t.ComputeRoot):
                assert command.digests == tuple(arena.digest(place) for place in PLACES)
                return
    raise AssertionError("the machine never asked for the root")
