"""Records of the other side, as events of this side's machine."""

from __future__ import annotations

from typing import assert_never

from worldline.errors import Malformed
from worldline.migration import source_words as source
from worldline.migration import target_words as target
from worldline.migration.attempt import Attempt
from worldline.wire import encoded, records, spread


def from_source(record: records.Record) -> target.Event:
    """The event that a record from the source is. Raises `Malformed` for one that only a target or a link writes."""
    match record:
        case records.Hello(session, epoch, move, mode):
            return target.HelloIn(Attempt(move, session, epoch, mode))
        case records.ManifestRecord(generation, manifest):
            return target.ManifestIn(generation, manifest)
        case records.RoundEnd(number, nbytes):
            return target.RoundEndIn(number, nbytes)
        case records.Seal():
            return target.SealIn(
                record.root, record.layout, record.block, record.number, record.leaf_count, record.generation
            )
        case records.Abort(code, sentence):
            return target.AbortIn(code, sentence)
        case records.CopyRecord(copy):
            return target.CopyIn(copy)
        case records.RowsRecord(runs, data):
            return target.RowsIn(runs, data)
        case records.Digests() | records.Prepared() | records.Refused():
            raise Malformed(f"a {record.TYPE.name} record from a source")
        case records.Chunk() | records.Shared() | spread.Spread() | spread.Piece() | spread.Streams() | spread.Doors():
            raise Malformed(f"a {record.TYPE.name} record from a source")
        case encoded.Encoded() | encoded.Decodes():
            raise Malformed(f"a {record.TYPE.name} record from a source")
        case _:
            assert_never(record)


def from_target(record: records.Record) -> source.Event:
    """The event that a record from the target is. Raises `Malformed` for one that only a source or a link writes."""
    match record:
        case records.Digests(number, leaves):
            return source.DigestsIn(number, tuple((leaf.extent, leaf.digest) for leaf in leaves))
        case records.Prepared(root):
            return source.PreparedIn(root)
        case records.Refused(code, sentence) | records.Abort(code, sentence):
            return source.RefusedIn(code, sentence)
        case (
            records.Hello()
            | records.ManifestRecord()
            | records.Chunk()
            | spread.Spread()
            | spread.Piece()
            | spread.Streams()
            | spread.Doors()
            | encoded.Encoded()
            | encoded.Decodes()
            | records.Shared()
            | records.CopyRecord()
            | records.RowsRecord()
            | records.RoundEnd()
            | records.Seal()
        ):
            raise Malformed(f"a {record.TYPE.name} record from a target")
        case _:
            assert_never(record)
