"""What a fuzzer drives: every parser that reads what others send, each as a function of bytes.

A target returns for any input, or it has found something: an error of ours is a refusal and is fine (`Internal` is
not); anything else that is raised, and any broken promise, is a bug. `scripts/fuzz.py` runs them under a
coverage-guided fuzzer, the tests under Hypothesis.

Digests and signatures would keep a fuzzer at the door. So an input may also ask to be *sealed* first: then the target
makes a file around it whose digests and signature are right, as a liar who knows the format would.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from worldline.errors import Internal, WorldlineError
from worldline.schema.ids import SessionId
from worldline.schema.layout import Extent
from worldline.schema.plan import Qualification
from worldline.service import bodies
from worldline.service.octets import ActionSent, read_block, read_sent, write_ack, write_action
from worldline.testing.fuzz_seeds import ENDED, IMAGE_SEEDS, KEY, RECEIPT_SEEDS, WIRE_SEEDS, seal_image
from worldline.verify import image as images
from worldline.verify.reader import verify_image, verify_receipt
from worldline.verify.receipts import SIGNED_AS, load_receipt
from worldline.wire.framing import Frame, Reader
from worldline.wire.records import decode_frame, decode_record, encode

ARENA_BYTES_MAX = 1 << 22
RAW, SEALED = b"\0", b"\1"
"""The first byte of an input for images and receipts."""


@dataclass(frozen=True, slots=True)
class Target:
    """`run` takes an input; `seeds` are inputs from which a fuzzer starts."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


class Found(AssertionError):
    """A promise that an input broke."""


def _refuses() -> contextlib.suppress:
    return contextlib.suppress(_Refusal)


class _Refusal(Exception):
    pass


def _asked(work: Callable[[], Any]) -> Any:
    """What `work` returns. Raises `_Refusal` for a refusal."""
    try:
        return work()
    except Internal:
        raise
    except WorldlineError as error:
        raise _Refusal from error


# ---- the wire


def wire(data: bytes) -> None:
    """One direction of a link: records as they come, payloads skipped. What is accepted reads the same when encoded."""
    with _refuses():
        reader = Reader()
        at = 0
        while at + reader.wanted_bytes <= len(data):
            piece = data[at : at + reader.wanted_bytes]
            at += len(piece)
            frame = _asked(partial(reader.take, piece))
            if frame is not None:
                at += frame.header.payload_bytes
                _one_record(frame)


def _one_record(frame: Frame) -> None:
    record = _asked(lambda: decode_frame(frame))
    if record is not None and decode_record(encode(record)) != record:
        raise Found(f"{record!r} reads as another record once it is encoded")


# ---- files


def image(data: bytes) -> None:
    """What the second reader accepts, the host accepts too, with the same root and every byte in its place."""
    content = seal_image(data[1:]) if data[:1] == SEALED else data[1:]
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_memory()) as folder, _refuses():
        path = Path(folder) / "x.image"
        path.write_bytes(content)
        _asked(lambda: images.open_image(path, SessionId("walk-1")))
        report = _asked(lambda: verify_image(path))
        found = images.open_image(path, SessionId(report.session))
        if report.state_bytes > ARENA_BYTES_MAX // 2 or report.segments > 64:
            return
        digested = images.load(found, _Octets(ARENA_BYTES_MAX))
        if (digested.root.hex(), digested.manifest.block) != (report.root, report.block):
            raise Found("the two readers of an image found other states")


def receipt(data: bytes) -> None:
    """What the second reader accepts, the library loads, with the same id; and it is signed."""
    content = _sealed_receipt(data[1:]) if data[:1] == SEALED else data[1:]
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_memory()) as folder, _refuses():
        path = Path(folder) / "x.json"
        path.write_bytes(content)
        with _refuses():
            _asked(lambda: load_receipt(path))
        report = _asked(lambda: verify_receipt(path))
        if load_receipt(path).id != report.id or report.signer is None:
            raise Found("the two readers of a receipt found other ids, or one that is not signed")


def _sealed_receipt(data: bytes) -> bytes:
    """The same fields with the id and the signature that are right for them, where there are fields."""
    try:
        fields = json.loads(data)
        covered = {name: value for name, value in fields.items() if name not in {"format", "id", "signature"}}
        covered["signer"] = KEY.public
        text = json.dumps(covered, sort_keys=True, separators=(",", ":")).encode("ascii")
    except (ValueError, AttributeError, RecursionError):
        return data
    digest = blake3(text).digest()
    sealed = fields | covered | {"id": digest[:16].hex(), "signature": KEY.sign(SIGNED_AS + digest)}
    return json.dumps(sealed, indent=2).encode("ascii") + b"\n"


class _Octets:
    """Memory that is a bytearray."""

    def __init__(self, nbytes: int) -> None:
        self._data = bytearray(nbytes)

    @property
    def capacity(self) -> int:
        return len(self._data)

    def bytes_at(self, extent: Extent) -> memoryview:
        if extent.offset + extent.nbytes > len(self._data):
            raise Found(f"{extent} is outside the arena")
        return memoryview(self._data)[extent.offset : extent.offset + extent.nbytes]

    def zero(self, extent: Extent) -> None:
        self.bytes_at(extent)[:] = bytes(extent.nbytes)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


# ---- HTTP and WebSocket

BODIES: tuple[type[Any], ...] = (
    bodies.OpenBody,
    bodies.StepBody,
    bodies.MoveBody,
    bodies.ParkBody,
    bodies.ResumeBody,
    bodies.SabotageBody,
    Qualification,
)


def http(data: bytes) -> None:
    """A body, of the kind that its first byte names. What is accepted can be told to another process."""
    kind = BODIES[data[0] % len(BODIES)] if data else BODIES[0]
    with _refuses():
        body = _asked(lambda: bodies.parse_body(data[1:], kind))
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=kind)
        if again != body:
            raise Found(f"{body!r} reads as another body once it is encoded")


def websocket(data: bytes) -> None:
    """Messages of either side of a play socket."""
    with _refuses():
        _asked(lambda: read_block(data))
    with _refuses():
        sent = _asked(lambda: read_sent(data))
        octets = write_action(sent.number, sent.action) if isinstance(sent, ActionSent) else write_ack(sent.block)
        if octets != data:
            raise Found(f"{sent!r} was read from octets that do not mean it")


def _bodies() -> tuple[bytes, ...]:
    texts = {
        bodies.OpenBody: [b'{"world":"tiny","seed":7,"options":{"width":4,"name":"x","on":true},"twin":true}', b"{}"],
        bodies.StepBody: [b'{"actions":[0,"left",2],"first":9,"frames":"jpeg"}'],
        bodies.MoveBody: [b'{"host":"b","mode":"freeze","transport":"shm","fault":"flip"}'],
        bodies.ParkBody: [b"", b"{}"],
        bodies.ResumeBody: [b'{"host":null}'],
        bodies.SabotageBody: [b'{"bit":77}'],
        Qualification: [msgspec.json.encode(Qualification("q", "p", "q", "tiny", 60, 61.5, 48.25, 3))],
    }
    return tuple(bytes([BODIES.index(kind)]) + text for kind, all_of in texts.items() for text in all_of)


TARGETS: Mapping[str, Target] = {
    "wire": Target(wire, WIRE_SEEDS),
    "image": Target(image, tuple(mode for seed in IMAGE_SEEDS for mode in (RAW + seal_image(seed), SEALED + seed))),
    "receipt": Target(receipt, tuple(mode + seed for mode in (RAW, SEALED) for seed in RECEIPT_SEEDS)),
    "http": Target(http, _bodies()),
    "websocket": Target(websocket, (write_action(1, 2), write_ack(7), b"", ENDED)),
}
