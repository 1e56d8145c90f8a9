"""The target's machine: events in, commands out."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldline.errors import IllegalTransition, Malformed, StaleEpoch
from worldline.migration import target as t
from worldline.migration.heard import from_source
from worldline.migration.leaves import Leaves
from worldline.schema.ids import Epoch, MoveId, SessionId
from worldline.schema.inventory import Free, Kind
from worldline.schema.layout import LEAF_BYTES_MIN, Extent, Layout, Manifest, Placement, Segment
from worldline.schema.receipt import Mode
from worldline.wire import records

ATTEMPT = t.Attempt(MoveId("m"), SessionId("w"), Epoch(3), Mode.PRECOPY)
LEAVES = 3
BYTES = 1000
EXTENTS = tuple(Extent(n * 4096, BYTES) for n in range(LEAVES))
CAPACITY = LEAVES * 4096
ROOT, LAYOUT_DIGEST = b"r" * 32, b"l" * 32


def manifest(block: int = 5, offset: int = 0) -> Manifest:
    segments = tuple(Segment(f"s{n}", BYTES, Kind.CACHE, Free()) for n in range(LEAVES))
    placements = tuple(Placement(extent.offset + offset, 4096, resident=True) for extent in EXTENTS)
    return Manifest(Layout(segments, (), LEAF_BYTES_MIN), placements, block)


def digest(text: str) -> bytes:
    return text.encode().ljust(16, b".")


def machine(hands_over: bool = False) -> t.TargetMachine:
    return t.TargetMachine(ATTEMPT, CAPACITY, 0.0, 10.0, hands_over=hands_over)


def receiving(hands_over: bool = False) -> t.TargetMachine:
    target = machine(hands_over)
    for event in (t.LinkUp(), t.HelloIn(ATTEMPT), t.ManifestIn(1, manifest())):
        assert target.handle(event, 0.0) == []
    return target


def seal(block: int = 5, generation: int = 1, leaves: int = LEAVES, root: bytes = ROOT) -> t.SealIn:
    return t.SealIn(root, LAYOUT_DIGEST, block, block, leaves, generation)


def land_all(target: t.TargetMachine, names: str = "abc", round_: int = 1) -> list[t.Command]:
    commands: list[t.Command] = []
    for extent, name in zip(EXTENTS, names, strict=True):
        (command,) = target.handle(t.LandedIn(extent), 0.1)
        assert isinstance(command, t.Digest)
        assert command.extents == (extent,)
        commands += target.handle(t.LaneDone(command.ticket, ((extent, digest(name)),)), 0.1)
    return commands + target.handle(t.RoundEndIn(round_, LEAVES * BYTES), 0.1)


def verifying() -> t.TargetMachine:
    target = receiving()
    land_all(target)
    target.handle(seal(), 0.2)
    assert target.phase is t.Phase.VERIFYING
    return target


def prepared() -> t.TargetMachine:
    target = verifying()
    target.handle(t.RootComputed(ROOT, LAYOUT_DIGEST), 0.3)
    assert target.phase is t.Phase.PREPARED
    return target


def refusal(commands: list[t.Command]) -> str:
    """The code of a refusal that was told to the source, discarded and answered, in this order."""
    told, discard, failed = commands
    assert isinstance(told, t.SendRecord)
    assert isinstance(told.record, records.Refused)
    assert discard == t.Discard(zero=True)
    assert isinstance(failed, t.Failed)
    assert failed.code == told.record.code
    return failed.code


def test_a_round_is_digested_where_it_lands_and_reported_once_the_lanes_have_read_it() -> None:
    target = receiving()
    leaves = tuple(records.LeafDigest(extent, digest(name)) for extent, name in zip(EXTENTS, "abc", strict=True))
    assert land_all(target) == [t.SendRecord(records.Digests(1, leaves))]


def test_a_report_waits_for_the_last_lane() -> None:
    target = receiving()
    first = target.handle(t.LandedIn(EXTENTS[0]), 0.1)
    assert target.handle(t.RoundEndIn(1, BYTES), 0.1) == []
    (digest_job,) = first
    assert isinstance(digest_job, t.Digest)
    done = target.handle(t.LaneDone(digest_job.ticket, ((EXTENTS[0], digest("a")),)), 0.1)
    assert done == [t.SendRecord(records.Digests(1, (records.LeafDigest(EXTENTS[0], digest("a")),)))]


def test_a_lane_that_read_before_the_leaf_landed_again_does_not_count() -> None:
    target = receiving()
    (first,) = target.handle(t.LandedIn(EXTENTS[0]), 0.1)
    (second,) = target.handle(t.LandedIn(EXTENTS[0]), 0.1)
    assert isinstance(first, t.Digest)
    assert isinstance(second, t.Digest)
    target.handle(t.RoundEndIn(1, 2 * BYTES), 0.1)
    assert target.handle(t.LaneDone(first.ticket, ((EXTENTS[0], digest("old")),)), 0.1) == []
    (told,) = target.handle(t.LaneDone(second.ticket, ((EXTENTS[0], digest("new")),)), 0.1)
    assert told == t.SendRecord(records.Digests(1, (records.LeafDigest(EXTENTS[0], digest("new")),)))


def test_a_leaf_that_lands_in_pieces_is_digested_when_its_end_is_there() -> None:
    target = receiving()
    assert target.handle(t.LandedIn(Extent(0, 400)), 0.1) == []
    assert [type(c) for c in target.handle(t.LandedIn(Extent(400, 600)), 0.1)] == [t.Digest]


def test_after_the_seal_nothing_is_received_and_the_root_is_computed_from_what_lies_here() -> None:
    target = receiving()
    land_all(target)
    assert target.handle(seal(), 0.2) == [
        t.StopReceiving(),
        t.ComputeRoot(manifest(), (digest("a"), digest("b"), digest("c"))),
    ]


def test_leaves_without_a_digest_are_read_after_the_seal() -> None:
    target = receiving()
    stop, missing = target.handle(seal(), 0.2)
    assert stop == t.StopReceiving()
    assert isinstance(missing, t.Digest)
    assert missing.extents == EXTENTS
    items = tuple((extent, digest("z")) for extent in EXTENTS)
    (compute,) = target.handle(t.LaneDone(missing.ticket, items), 0.3)
    assert compute == t.ComputeRoot(manifest(), (digest("z"),) * 3)


def test_a_leaf_that_the_source_found_as_it_was_reported_is_not_read_again_after_the_seal() -> None:
    target = handed_over()
    target.handle(t.ManifestIn(2, manifest(6)), 0.2)
    assert target.handle(t.LandedIn(EXTENTS[1]), 0.2) == []
    (job,) = target.handle(t.RoundEndIn(2, BYTES), 0.2)
    assert isinstance(job, t.Digest)
    target.handle(t.LaneDone(job.ticket, ((EXTENTS[1], digest("B")),)), 0.2)
    _, compute = target.handle(seal(block=6, generation=2), 0.3)
    assert compute == t.ComputeRoot(manifest(6), tuple(map(digest, "aBc")))


def handed_over() -> t.TargetMachine:
    """One round of a handed-over arena is over: the target has read `abc`."""
    target = receiving(hands_over=True)
    assert [target.handle(t.LandedIn(extent), 0.1) for extent in EXTENTS] == [[], [], []]
    (job,) = target.handle(t.RoundEndIn(1, LEAVES * BYTES), 0.1)
    assert isinstance(job, t.Digest)
    assert job.extents == EXTENTS
    (told,) = target.handle(t.LaneDone(job.ticket, tuple(zip(EXTENTS, map(digest, "abc"), strict=True))), 0.1)
    assert isinstance(told, t.SendRecord)
    return target


def test_leaves_named_before_the_rounds_cut_are_read_at_once_and_are_part_of_the_round() -> None:
    target = handed_over()
    (early,) = target.handle(t.LandedIn(EXTENTS[2]), 0.2)
    assert isinstance(early, t.Digest)
    assert early.extents == (EXTENTS[2],)
    target.handle(t.LaneDone(early.ticket, ((EXTENTS[2], digest("C")),)), 0.2)
    assert target.handle(t.ManifestIn(2, manifest(6)), 0.3) == []
    assert target.handle(t.LandedIn(EXTENTS[0]), 0.3) == []
    (rest,) = target.handle(t.RoundEndIn(2, 2 * BYTES), 0.3)
    assert isinstance(rest, t.Digest)
    assert (rest.extents, rest.hurry) == ((EXTENTS[0],), True)
    target.handle(t.LaneDone(rest.ticket, ((EXTENTS[0], digest("A")),)), 0.3)
    _, compute = target.handle(seal(block=6, generation=2), 0.4)
    assert compute == t.ComputeRoot(manifest(6), tuple(map(digest, "AbC")))
    proof = target.handle(t.RootComputed(ROOT, LAYOUT_DIGEST), 0.4)[-1]
    assert isinstance(proof, t.Prepared)
    assert proof.early == {1, 2}


def test_a_named_leaf_that_is_named_again_after_the_cut_is_read_again() -> None:
    target = handed_over()
    (early,) = target.handle(t.LandedIn(EXTENTS[2]), 0.2)
    assert isinstance(early, t.Digest)
    target.handle(t.ManifestIn(2, manifest(6)), 0.3)
    target.handle(t.LandedIn(EXTENTS[2]), 0.3)
    assert target.handle(t.LaneDone(early.ticket, ((EXTENTS[2], digest("?")),)), 0.3) == []
    (rest,) = target.handle(t.RoundEndIn(2, 2 * BYTES), 0.3)
    assert isinstance(rest, t.Digest)
    assert rest.extents == (EXTENTS[2],)


def test_a_second_manifest_after_a_rounds_own_cut_is_refused() -> None:
    target = handed_over()
    target.handle(t.LandedIn(EXTENTS[2]), 0.2)
    target.handle(t.ManifestIn(2, manifest(6)), 0.3)
    *_, failed = target.handle(t.ManifestIn(3, manifest(7)), 0.3)
    assert isinstance(failed, t.Failed)
    assert failed.code == "MALFORMED"


def test_equal_roots_are_proven_and_the_link_is_closed_before_the_proof_is_answered() -> None:
    target = verifying()
    told, closed, proof = target.handle(t.RootComputed(ROOT, LAYOUT_DIGEST), 0.3)
    assert told == t.SendRecord(records.Prepared(ROOT))
    assert closed == t.CloseLink()
    assert proof == t.Prepared(
        manifest(),
        tuple(map(digest, "abc")),
        ROOT,
        ROOT,
        LAYOUT_DIGEST,
        5,
        LEAVES,
        LEAVES * BYTES,
        1,
        leaves=Leaves(manifest()),
    )


def test_other_bytes_are_refused_as_corrupt() -> None:
    assert refusal(verifying().handle(t.RootComputed(b"x" * 32, LAYOUT_DIGEST), 0.3)) == "CORRUPT"


def test_another_layout_is_told_apart_from_other_bytes() -> None:
    assert refusal(verifying().handle(t.RootComputed(b"x" * 32, b"y" * 32), 0.3)) == "LAYOUT"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"session": SessionId("other")}, "WRONG_SESSION"),
        ({"move": MoveId("other")}, "UNAUTHENTICATED"),
        ({"epoch": Epoch(2)}, "STALE_EPOCH"),
        ({"mode": Mode.FREEZE}, "MALFORMED"),
    ],
)
def test_a_hello_of_another_attempt_is_refused(change: dict[str, object], code: str) -> None:
    target = machine()
    target.handle(t.LinkUp(), 0.0)
    hello = t.HelloIn(dataclasses.replace(ATTEMPT, **change))  # type: ignore[arg-type]
    assert refusal(target.handle(hello, 0.0)) == code


@pytest.mark.parametrize(
    "event",
    [
        t.HelloIn(ATTEMPT),
        t.ManifestIn(1, manifest()),
        t.ManifestIn(3, manifest()),
        t.RoundEndIn(2, 0),
        t.LandedIn(Extent(BYTES, 10)),
        t.LandedIn(Extent(CAPACITY, BYTES)),
        seal(block=6),
        seal(generation=2),
        seal(leaves=4),
    ],
    ids=[
        "second hello",
        "same manifest",
        "skipped manifest",
        "skipped round",
        "between leaves",
        "beyond",
        "block",
        "gen",
        "n",
    ],
)
def test_what_the_protocols_order_forbids_is_malformed(event: t.Event) -> None:
    assert refusal(receiving().handle(event, 0.1)) == "MALFORMED"


@pytest.mark.parametrize("event", [t.ManifestIn(1, manifest()), t.RoundEndIn(1, 0), seal(), t.LandedIn(EXTENTS[0])])
def test_nothing_comes_before_the_hello(event: t.Event) -> None:
    target = machine()
    target.handle(t.LinkUp(), 0.0)
    assert refusal(target.handle(event, 0.1)) == "MALFORMED"


@pytest.mark.parametrize("event", [t.LandedIn(EXTENTS[0]), t.ManifestIn(2, manifest()), seal()])
def test_nothing_comes_after_the_seal(event: t.Event) -> None:
    assert refusal(verifying().handle(event, 0.25)) == "MALFORMED"


def test_a_round_with_a_chunk_too_few_is_refused_at_its_end() -> None:
    target = receiving()
    target.handle(t.LandedIn(EXTENTS[0]), 0.1)
    assert refusal(target.handle(t.RoundEndIn(1, 2 * BYTES), 0.1)) == "CORRUPT"


def test_a_manifest_beyond_the_arena_is_no_capacity_and_one_that_overlaps_is_a_layout() -> None:
    target = machine()
    target.handle(t.LinkUp(), 0.0)
    target.handle(t.HelloIn(ATTEMPT), 0.0)
    assert refusal(target.handle(t.ManifestIn(1, manifest(offset=4096)), 0.0)) == "NO_CAPACITY"
    target = machine()
    target.handle(t.LinkUp(), 0.0)
    target.handle(t.HelloIn(ATTEMPT), 0.0)
    twice = manifest()
    twice = dataclasses.replace(twice, placements=(twice.placements[0],) * LEAVES)
    assert refusal(target.handle(t.ManifestIn(1, twice), 0.0)) == "LAYOUT"


def test_a_lost_link_ends_an_attempt_before_the_seal_and_not_after_it() -> None:
    target = receiving()
    discard, failed = target.handle(t.LinkLost("gone"), 0.1)
    assert discard == t.Discard(zero=True)
    assert isinstance(failed, t.Failed)
    assert failed.code == "LINK_CUT"
    target = verifying()
    assert target.handle(t.LinkLost("gone"), 0.25) == []
    assert [type(c) for c in target.handle(t.RootComputed(ROOT, LAYOUT_DIGEST), 0.3)] == [t.CloseLink, t.Prepared]


def test_a_handed_over_arena_is_never_zeroed() -> None:
    target = receiving(hands_over=True)
    assert target.handle(t.LinkLost("gone"), 0.1)[0] == t.Discard(zero=False)


def test_the_deadline_refuses_what_is_not_proven() -> None:
    target = receiving()
    assert target.handle(t.Deadline(), 9.9) == []
    assert refusal(target.handle(t.Deadline(), 10.0)) == "DEADLINE"


def test_a_proven_target_waits_for_the_controller_whatever_else_comes() -> None:
    target = prepared()
    for event in (t.Deadline(), t.LinkLost("gone"), t.Abort("INTERNAL", "?"), t.AbortIn("DEADLINE", "?"), seal()):
        assert target.handle(event, 1e6) == []
    assert target.wake_at_s is None
    assert target.phase is t.Phase.PREPARED


def test_an_activation_installs_once_and_only_for_the_next_epoch() -> None:
    target = prepared()
    with pytest.raises(StaleEpoch):
        target.handle(t.ActivateIn(Epoch(3)), 0.4)
    assert target.handle(t.ActivateIn(Epoch(4)), 0.4) == [t.Install(manifest(), 5, Epoch(4))]
    assert target.handle(t.ActivateIn(Epoch(4)), 0.5) == []
    with pytest.raises(IllegalTransition):
        target.handle(t.DiscardIn(), 0.6)


def test_a_discard_of_a_proven_target_answers_no_second_time() -> None:
    target = prepared()
    assert target.handle(t.DiscardIn(), 0.4) == [t.Discard(zero=True)]
    assert target.handle(t.DiscardIn(), 0.5) == []
    with pytest.raises(IllegalTransition):
        target.handle(t.ActivateIn(Epoch(4)), 0.6)


def test_records_of_a_target_are_no_events_for_a_target() -> None:
    with pytest.raises(Malformed, match="PREPARED record from a source"):
        from_source(records.Prepared(ROOT))
    assert from_source(records.Hello(SessionId("w"), Epoch(3), MoveId("m"), Mode.PRECOPY)) == t.HelloIn(ATTEMPT)


EVENTS: tuple[t.Event, ...] = (
    t.LinkUp(),
    t.HelloIn(ATTEMPT),
    t.ManifestIn(1, manifest()),
    t.ManifestIn(2, manifest()),
    t.LandedIn(EXTENTS[0]),
    t.LandedIn(Extent(0, 500)),
    t.RoundEndIn(1, BYTES),
    seal(),
    t.RootComputed(ROOT, LAYOUT_DIGEST),
    t.RootComputed(b"x" * 32, LAYOUT_DIGEST),
    t.AbortIn("DEADLINE", "off"),
    t.LinkLost("cut"),
    t.Abort("INTERNAL", "?"),
    t.ActivateIn(Epoch(4)),
    t.DiscardIn(),
    t.Deadline(),
)


@given(st.lists(st.sampled_from(EVENTS), max_size=25), st.booleans())
def test_whatever_comes_nothing_is_installed_but_what_was_proven(events: list[t.Event], honest: bool) -> None:
    """Every pair of phase and event is in the table or raises. Lanes answer at once."""
    target = machine()
    queue = [t.LinkUp(), t.HelloIn(ATTEMPT), t.ManifestIn(1, manifest()), *events] if honest else list(events)
    words: list[t.Command] = []
    while queue:
        event = queue.pop(0)
        known = type(event) in t.TRANSITIONS[target.phase]
        # The driver computes a root only when asked to.
        if isinstance(event, t.RootComputed) and not any(isinstance(word, t.ComputeRoot) for word in words):
            continue
        try:
            commands = target.handle(event, 0.1)
        except (IllegalTransition, StaleEpoch):
            assert not known or isinstance(event, t.ActivateIn)
            continue
        words += commands
        queue[:0] = [
            t.LaneDone(command.ticket, tuple((extent, digest("a")) for extent in command.extents))
            for command in commands
            if isinstance(command, t.Digest)
        ]
    kinds = [type(word) for word in words]
    assert kinds.count(t.Prepared) + kinds.count(t.Failed) <= 1
    if t.Install in kinds:
        assert t.Prepared in kinds[: kinds.index(t.Install)]
        assert t.Discard not in kinds
    if t.Failed in kinds:
        assert kinds[kinds.index(t.Failed) - 1] is t.Discard
