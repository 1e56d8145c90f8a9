"""Strategies for every record within the limits of the format."""

from hypothesis import strategies as st

from worldline.schema.inventory import Append, Free, Kind, Once, Realloc, Ring, Roll, Static
from worldline.schema.layout import LEAF_BYTES_MAX, LEAF_BYTES_MIN, Extent, Layout, Manifest, Placement, Segment, View
from worldline.schema.receipt import Mode
from worldline.schema.rows import Copy, Runs, Shift
from worldline.wire.encoded import Decodes, Encoded
from worldline.wire.records import (
    Abort,
    Chunk,
    CopyRecord,
    Digests,
    Hello,
    LeafDigest,
    ManifestRecord,
    Prepared,
    Refused,
    RoundEnd,
    RowsRecord,
    Seal,
    Shared,
)
from worldline.wire.spread import Doors, Piece, Spread, Streams

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
counts = st.integers(0, 2**63 - 1)
dims = st.integers(-32, 31)
ids = st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
roots = st.binary(min_size=32, max_size=32)
extents = st.builds(Extent, st.integers(0, 2**62), st.integers(1, 2**32 - 1))
chunk_extents = st.builds(Extent, st.integers(0, 2**62), st.integers(1, 64 * 1024 * 1024))
coded_extents = st.builds(Extent, st.integers(0, 2**62), st.integers(9, 4 * 1024 * 1024))
rules = st.one_of(
    st.builds(Roll, dims, counts, counts),
    st.builds(Ring, dims, counts),
    st.builds(Append, dims),
    st.sampled_from([Realloc(), Once(), Static(), Free()]),
)
segments = st.builds(Segment, names, counts, st.sampled_from(Kind), rules)
shapes = st.lists(counts, max_size=5).map(tuple)
views = st.builds(View, names, st.sampled_from(["float32", "rng"]), shapes, shapes, st.integers(0, 65_535), counts)
placements = st.builds(Placement, counts, counts, st.booleans())


@st.composite
def manifests(draw):
    parts = draw(st.lists(st.tuples(segments, placements), max_size=4))
    layout = Layout(
        tuple(segment for segment, _ in parts),
        tuple(draw(st.lists(views, max_size=4))),
        draw(st.integers(LEAF_BYTES_MIN, LEAF_BYTES_MAX)),
    )
    return Manifest(layout, tuple(placement for _, placement in parts), draw(counts))


@st.composite
def copies(draw):
    """Shifts whose rows are written once."""
    to, shifts = 0, []
    for source, gap, rows in draw(st.lists(st.tuples(counts, u32, st.integers(1, 2**32)), min_size=1, max_size=5)):
        to += gap
        shifts.append(Shift(min(source, 2**62), to, rows))
        to += rows
    return Copy(draw(u32), draw(st.integers(0, 31)), tuple(draw(st.permutations(shifts))))


@st.composite
def rows_records(draw):
    count, run = draw(st.integers(1, 5)), draw(st.integers(1, 20))
    stride = run if count == 1 else run + draw(st.integers(0, 2**40))
    data = draw(st.binary(min_size=count * run, max_size=count * run))
    return RowsRecord(Runs(draw(st.integers(0, 2**60)), run, stride, count), data)


codes = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=64)
sentences = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
records = st.one_of(
    st.builds(Hello, ids, counts, ids, st.sampled_from(Mode)),
    st.builds(ManifestRecord, st.integers(1, 2**32 - 1), manifests()),
    st.builds(Chunk, chunk_extents),
    st.builds(CopyRecord, copies()),
    rows_records(),
    st.builds(Shared, st.lists(extents, min_size=1, max_size=5).map(tuple)),
    st.builds(RoundEnd, u32, u64),
    st.builds(Spread, chunk_extents, u64, st.integers(4096, 64 * 1024 * 1024)),
    st.builds(Piece, u64, u32, st.integers(1, 64 * 1024 * 1024)),
    st.builds(Streams, st.integers(1, 8)),
    st.builds(
        Encoded,
        st.builds(Extent, st.integers(0, 2**62), st.integers(9, 4 << 20)),
        st.integers(1, 8),
        st.integers(1, 31),
    ),
    st.builds(Decodes, st.sets(st.integers(1, 31)).map(sorted).map(tuple)),
    st.builds(Doors, st.lists(st.integers(1, 65_535), min_size=1, max_size=8).map(tuple)),
    st.builds(
        Digests,
        u32,
        st.lists(st.builds(LeafDigest, extents, st.binary(min_size=16, max_size=16)), max_size=5).map(tuple),
    ),
    st.builds(Seal, roots, roots, u64, u64, u64, u32, u32),
    st.builds(Prepared, roots),
    st.builds(Refused, codes, sentences),
    st.builds(Abort, codes, sentences),
)
