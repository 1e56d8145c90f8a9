"""Inputs from which fuzzing starts: each record, an image, a receipt. Made by code, so that they follow the format."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

import msgspec
from blake3 import blake3
from xxhash import xxh3_128

from worldline.schema.contract import Tier
from worldline.schema.ids import Epoch, HostId, MoveId, SessionId
from worldline.schema.inventory import Free, Kind, Roll
from worldline.schema.layout import Extent, Layout, Manifest, Placement, Segment, View
from worldline.schema.receipt import Mode, Receipt
from worldline.schema.rows import Copy, Runs, Shift
from worldline.verify.image import Identity
from worldline.verify.receipts import UNSEALED, encode_receipt, make_receipt
from worldline.verify.signing import SigningKey
from worldline.wire import records as wire
from worldline.wire.encoded import Decodes, Encoded
from worldline.wire.framing import HEADER_BYTES, Numberer, split_record
from worldline.wire.manifest import manifest_to_body
from worldline.wire.spread import Doors, Piece, Spread, Streams

KEY: Final = SigningKey(bytes(range(32)))
LEAF_BYTES = 64 * 1024
PAGE = 4096
STATE_BYTES_MAX = 1 << 20
"""Of a state that `seal_image` fills; a larger one gets no segments, and is refused for that."""
ENDED: Final = b"WL\1\1" + bytes(60)
"""A block's header with nothing in it."""

TREE = b'{"k":{"$t":0},"n":7,"x":{"$u":[{"$p":[1,0,2]},null]}}'


def _manifest() -> Manifest:
    segments = (Segment("meta", len(TREE), Kind.AUX, Free()), Segment("k", 96, Kind.CACHE, Roll(0, 3, 1)))
    views = (View("k", "bfloat16", (4, 2), (2, 1), 1, 0), View("x/0", "float32", (3, 2), (2, 1), 1, 32))
    placements = (Placement(0, PAGE, resident=False), Placement(PAGE, PAGE, resident=True))
    return Manifest(Layout(segments, views, LEAF_BYTES), placements, 3)


def _records() -> tuple[wire.Record, ...]:
    root = bytes(range(32))
    return (
        wire.Hello(SessionId("walk-1"), Epoch(3), MoveId("m-1"), Mode.PRECOPY),
        wire.ManifestRecord(1, _manifest()),
        wire.Chunk(Extent(PAGE, 8)),
        wire.Shared((Extent(0, 64), Extent(PAGE, 64))),
        wire.CopyRecord(Copy(0, 0, (Shift(2, 0, 2), Shift(0, 3, 1)))),
        wire.RowsRecord(Runs(PAGE, 4, 8, 3), bytes(range(12))),
        wire.RoundEnd(1, PAGE),
        wire.Digests(1, (wire.LeafDigest(Extent(0, PAGE), bytes(16)),)),
        wire.Seal(root, root, 3, 3, 2, 1, 1500),
        wire.Prepared(root),
        wire.Refused("CORRUPT", "it differs"),
        wire.Abort("DEADLINE", "too late"),
        Streams(2),
        Doors((4000, 4001)),
        Spread(Extent(0, 2 * PAGE), 0, PAGE),
        Piece(0, 1, PAGE),
        Encoded(Extent(0, PAGE), 9, 2),
        Decodes((1, 2)),
    )


def _stream(*records: wire.Record) -> bytes:
    numberer = Numberer()
    stream = b""
    for record in records:
        octets = wire.encode(record)
        payload = bytes(split_record(octets).header.payload_bytes)
        stream += numberer.stamp(octets[:HEADER_BYTES]) + octets[HEADER_BYTES:] + payload
    return stream


def _described() -> bytes:
    """An image's manifest, and after a line end its tree."""
    identity = Identity(
        session=SessionId("walk-1"),
        epoch=Epoch(4),
        number=3,
        world="tiny",
        plan="ab" * 32,
        made_by=HostId("a"),
        made_at_s=1.7e9,
    )
    fields = {"identity": identity, "manifest": manifest_to_body(_manifest())}
    return msgspec.json.encode(fields) + b"\n" + TREE


def seal_image(data: bytes) -> bytes:
    """An image around a manifest and a tree (a line end between), with every length and digest that follows from them.

    Whatever can't be made sense of is left as it is: the readers must cope.
    """
    text, _, tree = data.partition(b"\n")
    try:
        whole = json.loads(text)
        layout = whole["manifest"]["layout"]
        layout["segments"][0]["nbytes"] = len(tree)
        sizes = [int(segment["nbytes"]) for segment in layout["segments"]]
        whole["manifest"]["placements"] = _placed(whole["manifest"]["placements"], sizes)
        text = _canonical(whole)
        leaf_bytes, block = int(layout["leaf_bytes"]), int(whole["manifest"]["block"])
        if not 0 <= block < 1 << 63 or leaf_bytes < PAGE or min(sizes) < 0 or sum(sizes) > STATE_BYTES_MAX:
            return text
        digested = blake3(_canonical(_digested(layout))).digest()
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError):
        return text
    contents = [tree, *(bytes(size) for size in sizes[1:])]
    leaves = [part[at : at + leaf_bytes] for part in contents for at in range(0, len(part), leaf_bytes)]
    digests = b"".join(xxh3_128(leaf).digest() for leaf in leaves)
    return _file(text, block, digested, digests, contents)


def _file(text: bytes, block: int, layout: bytes, digests: bytes, contents: list[bytes]) -> bytes:
    count = len(digests) // 16
    root = blake3(b"worldline root 1\0" + layout + struct.pack("<Q", count) + digests).digest()
    digests_at = PAGE + len(_padded(text))
    segments_at = digests_at + len(_padded(digests))
    parts = _padded(text) + _padded(digests) + b"".join(_padded(content) for content in contents)
    state_bytes = sum(len(content) for content in contents)
    head = b"WLIMAGE\0" + struct.pack("<II", 0x01020304, 1)
    head += struct.pack("<8Q", PAGE + len(parts), PAGE, len(text), digests_at, count, segments_at, state_bytes, block)
    head += blake3(text).digest() + layout + root
    head += bytes(PAGE - 32 - len(head))
    return head + blake3(head).digest() + parts


def _placed(placements: list[Any], sizes: list[int]) -> list[Any]:
    at, placed = 0, []
    for place, size in zip(placements, sizes, strict=True):
        room = size + -size % PAGE
        placed.append(place | {"offset": at, "capacity": room})
        at += room
    return placed


def _digested(layout: dict[str, Any]) -> dict[str, Any]:
    segments = [{"name": segment["name"], "nbytes": segment["nbytes"]} for segment in layout["segments"]]
    return {"leaf_bytes": layout["leaf_bytes"], "segments": segments, "views": layout["views"]}


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % PAGE)


def _receipt() -> bytes:
    return encode_receipt(
        make_receipt(
            Receipt(
                id=UNSEALED,
                move=MoveId("m-1"),
                session=SessionId("walk-1"),
                epoch=Epoch(5),
                mode=Mode.PARK,
                transport="image",
                source="a",
                target="walk-1.image",
                tier=Tier.T1,
                source_plan="ab" * 32,
                target_plan="cd" * 32,
                qualification="q-1",
                block=3,
                layout="12" * 32,
                source_root="34" * 32,
                target_root="34" * 32,
                leaf_count=2,
                state_bytes=66_000,
                bytes_moved=66_000,
                rounds=1,
                pause_s=0.25,
                duration_s=1.0,
                made_at_s=1.7e9,
                made_by=HostId("a"),
            ),
            KEY,
        )
    )


WIRE_SEEDS: Final = (_stream(*_records()), *(_stream(record) for record in _records()))
IMAGE_SEEDS: Final = (_described(),)
RECEIPT_SEEDS: Final = (_receipt(),)
