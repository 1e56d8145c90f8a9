"""The second reader: checks images and receipts offline, from docs/format.md alone.

It shares no code with what writes them, and it must not: a mistake made once is then seen by the other. Of Worldline
it imports the error tree only. It is one long file so that it can be read, and carried elsewhere, as a whole.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from blake3 import blake3
from xxhash import xxh3_128

from worldline.errors import (
    ByteOrderRefused,
    Corrupt,
    Malformed,
    PlanMismatch,
    Unauthenticated,
    VersionUnknown,
    WrongSession,
)

PAGE = 4096
HEAD = 4064
RECEIPT_BYTES_MAX = 1 << 20
MANIFEST_BYTES_MAX = 1 << 25
SIZES = {
    1: "bool uint8 int8 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu rng",
    2: "int16 uint16 float16 bfloat16",
    4: "int32 uint32 float32",
    8: "int64 uint64 float64 complex64",
    16: "complex128",
}
ELEMENT = {name: size for size, names in SIZES.items() for name in names.split()}
WRITES = {
    "roll": {"dim": int, "shift": int, "keep": int},
    "ring": {"dim": int, "slot": int},
    "append": {"dim": int},
    "realloc": {},
    "once": {},
    "static": {},
    "free": {},
}
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
HEX_32 = re.compile(r"[0-9a-f]{32}\Z")
HEX_64 = re.compile(r"[0-9a-f]{64}\Z")
HEX_128 = re.compile(r"[0-9a-f]{128}\Z")
FORMAT = re.compile(r"worldline receipt ([0-9]{1,9})\Z")

IDENTITY_FIELDS = {
    "session": str,
    "epoch": int,
    "number": int,
    "world": str,
    "plan": str,
    "made_by": str,
    "made_at_s": float,
}
RECEIPT_FIELDS = {
    "id": str,
    "move": str,
    "session": str,
    "epoch": int,
    "mode": str,
    "transport": str,
    "source": str,
    "target": str,
    "tier": str,
    "source_plan": str,
    "target_plan": str,
    "qualification": str,
    "block": int,
    "layout": str,
    "source_root": str,
    "target_root": str,
    "leaf_count": int,
    "state_bytes": int,
    "bytes_moved": int,
    "rounds": int,
    "pause_s": float,
    "duration_s": float,
    "made_at_s": float,
    "made_by": str,
    "signer": str,
    "signature": str,
}


@dataclass(frozen=True, slots=True)
class ImageReport:
    """An image of which every byte was read and found right. Digests are hex."""

    session: str
    world: str
    epoch: int
    block: int
    number: int
    plan: str
    made_by: str
    made_at_s: float
    layout: str
    root: str
    leaf_count: int
    state_bytes: int
    file_bytes: int
    segments: int
    tensors: int


@dataclass(frozen=True, slots=True)
class ReceiptReport:
    """A receipt that holds. `checks` says, a sentence each, what was found true."""

    id: str
    session: str
    epoch: int
    block: int
    root: str
    tier: str
    made_by: str
    signer: str
    checks: tuple[str, ...]
    image: ImageReport | None


def verify_image(path: Path, session: str | None = None) -> ImageReport:
    """Reads a whole image and recomputes everything; `session` is whose it must be, where that matters.

    Raises `Malformed`, `VersionUnknown`, `ByteOrderRefused`, `Corrupt`, `WrongSession`; the sentence says what is
    wrong.
    """
    with path.open("rb") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        head = _Head(_take(file, PAGE), file_bytes)
        text = _take(file, head.manifest_bytes)
        _no_bytes(file, head.digests_at, "after the manifest")
        if blake3(text).digest() != head.manifest_digest:
            raise Corrupt("the image's manifest differs from its digest")
        identity, layout, block, places = _manifest(text)
        if session is not None and identity["session"] != session:
            raise WrongSession(f"the image is of session {identity['session']}, not {session}")
        segments, views = layout["segments"], layout["views"]
        _check_layout(layout)
        layout_digest = blake3(_canonical(_digested_layout(layout))).digest()
        if layout_digest != head.layout_digest:
            raise Corrupt("the image's layout differs from its digest")
        state_bytes = sum(segment["nbytes"] for segment in segments)
        leaf_count = sum(-(-segment["nbytes"] // layout["leaf_bytes"]) for segment in segments)
        if (block, state_bytes, leaf_count) != (head.block, head.state_bytes, head.leaf_count):
            raise Malformed("the image's header and manifest differ about block, bytes or leaves")
        digests = _take(file, 16 * leaf_count)
        _no_bytes(file, head.segments_at, "after the leaf digests")
        content = b"worldline root 1\0" + layout_digest + struct.pack("<Q", leaf_count) + digests
        if blake3(content).digest() != head.root:
            raise Corrupt("the image's root does not follow from its layout and leaf digests")
        _check_segments(file, head, layout, places, digests)
    return ImageReport(
        **{name: identity[name] for name in IDENTITY_FIELDS},
        block=block,
        layout=layout_digest.hex(),
        root=head.root.hex(),
        leaf_count=leaf_count,
        state_bytes=state_bytes,
        file_bytes=file_bytes,
        segments=len(segments),
        tensors=len(views),
    )


def verify_receipt(path: Path, image: Path | None = None, signers: Collection[str] | None = None) -> ReceiptReport:
    """Recomputes what a receipt lets one recompute offline, and holds it against an image where one is given.

    `signers` are the public keys (hex) of the hosts that are trusted; without them the signature is checked against
    the key that the receipt itself names. Raises `Malformed`, `VersionUnknown`, `Corrupt`, `Unauthenticated`,
    `PlanMismatch`, `WrongSession`, and what `verify_image` raises; the sentence names what fails.
    """
    with path.open("rb") as file:
        text = file.read(RECEIPT_BYTES_MAX + 1)
    if len(text) > RECEIPT_BYTES_MAX:
        raise Malformed(f"a receipt of more than {RECEIPT_BYTES_MAX} bytes")
    receipt = _object(_parse(text, "the receipt"), "the receipt")
    _check_format(receipt, text)
    _check_fields(receipt, RECEIPT_FIELDS, "the receipt", optional={"qualification", "signer", "signature"})
    _check_receipt_values(receipt)
    checks = _check_signed(receipt, signers)
    if receipt["source_root"] != receipt["target_root"]:
        raise Corrupt("the receipt's two roots differ: the target did not have the source's bytes")
    checks.append("source and target had the same content root")
    checks.append(_check_plans(receipt))
    report = None
    if image is not None:
        report = verify_image(image)
        _check_against(receipt, report)
        checks.append("the image has the receipt's session, block, layout and content root")
    return ReceiptReport(
        receipt["id"],
        receipt["session"],
        receipt["epoch"],
        receipt["block"],
        receipt["target_root"],
        receipt["tier"],
        receipt["made_by"],
        receipt["signer"],
        tuple(checks),
        report,
    )


# ------------------------------------------------------------------------------------------------------------- images


class _Head:
    """An image's first 4096 bytes."""

    def __init__(self, data: bytes, file_bytes: int) -> None:
        if data[:8] != b"WLIMAGE\0":
            raise Malformed("the file is no image: it does not begin as one")
        if data[8:12] == b"\x01\x02\x03\x04":
            raise ByteOrderRefused("the image is in big-endian byte order")
        if data[8:12] != b"\x04\x03\x02\x01":
            raise Malformed("the image's byte-order mark is none")
        (version,) = struct.unpack_from("<I", data, 12)
        if version > 1:
            raise VersionUnknown(f"the image has version {version}; this reader knows 1")
        if blake3(data[:HEAD]).digest() != data[HEAD:]:
            raise Corrupt("the image's header differs from its digest")
        numbers = struct.unpack_from("<8Q", data, 16)
        total, manifest_at, self.manifest_bytes, self.digests_at, self.leaf_count = numbers[:5]
        self.segments_at, self.state_bytes, self.block = numbers[5:]
        self.manifest_digest, self.layout_digest, self.root = data[80:112], data[112:144], data[144:176]
        if version != 1 or any(data[176:HEAD]):
            raise Malformed("the image's header has a version or reserved bytes that it can't have")
        if total != file_bytes:
            raise Malformed(f"the image says it has {total} bytes and has {file_bytes}: cut, or something was added")
        if not 0 < self.manifest_bytes <= MANIFEST_BYTES_MAX:
            raise Malformed(f"the image's manifest is said to have {self.manifest_bytes} bytes")
        digests_at = _up(PAGE + self.manifest_bytes)
        if (manifest_at, self.digests_at, self.segments_at) != (
            PAGE,
            digests_at,
            _up(digests_at + 16 * self.leaf_count),
        ):
            raise Malformed("the image's parts are not where they belong")
        self.total = total
        if self.segments_at > total:
            raise Malformed("the image's segments begin after its end")


def _manifest(text: bytes) -> tuple[dict[str, Any], dict[str, Any], int, list[Any]]:
    whole = _object(_parse(text, "the manifest"), "the manifest")
    _check_fields(whole, {"identity": dict, "manifest": dict}, "the manifest")
    identity, manifest = whole["identity"], whole["manifest"]
    _check_fields(identity, IDENTITY_FIELDS, "the identity")
    for name in ("session", "world", "made_by"):
        if NAME.match(identity[name]) is None:
            raise Malformed(f"the identity's {name} is no name")
    if identity["epoch"] < 1 or identity["number"] < 0:
        raise Malformed("the identity's epoch or number is out of range")
    _check_fields(manifest, {"block": int, "layout": dict, "placements": list}, "the manifest")
    layout = manifest["layout"]
    _check_fields(layout, {"leaf_bytes": int, "segments": list, "views": list}, "the layout")
    return identity, layout, manifest["block"], manifest["placements"]


def _check_layout(layout: dict[str, Any]) -> None:
    step, segments, views = layout["leaf_bytes"], layout["segments"], layout["views"]
    if not 65536 <= step <= 1048576 or step % PAGE:
        raise Malformed(f"leaves of {step} bytes")
    if not 1 <= len(segments) <= 65536 or len(views) > 65536:
        raise Malformed("too few or too many segments or views")
    for segment in segments:
        _check_fields(segment, {"name": str, "nbytes": int, "kind": str, "write": dict}, "a segment")
        if segment["kind"] not in {"cache", "aux", "horizon", "derived", "const"}:
            raise Malformed(f"segment {segment['name']!r} is of an unknown kind")
        rule = dict(segment["write"])
        fields = WRITES.get(str(rule.pop("rule", None)))
        if fields is None:
            raise Malformed(f"segment {segment['name']!r} has an unknown write rule")
        _check_fields(rule, fields, "a write rule")
        if segment["nbytes"] < 0:
            raise Malformed(f"segment {segment['name']!r} has a negative size")
    names = [segment["name"] for segment in segments]
    if names[0] != "meta" or len(set(names)) != len(names):
        raise Malformed("the first segment is not the tree, or two have one name")
    if not 0 < segments[0]["nbytes"] <= 1 << 24 or sum(segment["nbytes"] for segment in segments) > 1 << 46:
        raise Malformed("the tree or the state has an impossible size")
    first: dict[int, str] = {}
    for view in views:
        _check_view(view, segments)
        first.setdefault(view["segment"], view["path"])
    paths = {view["path"] for view in views}
    if len(paths) != len(views) or [*first.items()] != [*enumerate(names)][1:]:
        raise Malformed("segments are not named and ordered after their first views")
    if any(not 1 <= len(name.encode("utf-8", "replace")) <= 1024 for name in paths):
        raise Malformed("a path is empty or too long")


def _check_view(view: Any, segments: list[Any]) -> None:
    fields = {"path": str, "dtype": str, "shape": list, "strides": list, "segment": int, "offset_bytes": int}
    _check_fields(view, fields, "a view")
    path, shape, strides, offset = view["path"], view["shape"], view["strides"], view["offset_bytes"]
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in shape + strides):
        raise Malformed(f"view {path!r} has a size or stride that is no count")
    size = ELEMENT.get(view["dtype"])
    if size is None or len(shape) != len(strides) or len(shape) > 32 or not 0 < view["segment"] < len(segments):
        raise Malformed(f"view {path!r} has an unknown dtype, no segment, or sizes that don't fit its strides")
    steps = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    reach = 0 if 0 in shape else (steps + 1) * size
    if not 0 <= offset <= offset + reach <= segments[view["segment"]]["nbytes"] or offset % size:
        raise Malformed(f"view {path!r} reaches outside its segment")


def _digested_layout(layout: dict[str, Any]) -> dict[str, Any]:
    segments = [{"name": segment["name"], "nbytes": segment["nbytes"]} for segment in layout["segments"]]
    return {"leaf_bytes": layout["leaf_bytes"], "segments": segments, "views": layout["views"]}


def _check_segments(file: BinaryIO, head: _Head, layout: dict[str, Any], places: list[Any], digests: bytes) -> None:
    segments = layout["segments"]
    if len(places) != len(segments):
        raise Malformed("not every segment has a place")
    at, leaf = head.segments_at, 0
    for segment, place in zip(segments, places, strict=True):
        _check_fields(place, {"offset": int, "capacity": int, "resident": bool}, "a placement")
        name, left = segment["name"], segment["nbytes"]
        if (place["offset"], place["capacity"]) != (at - head.segments_at, _up(left)):
            raise Malformed(f"segment {name!r} is not where the one before it ends")
        whole = bytearray()
        while left:
            data = _take(file, min(left, layout["leaf_bytes"]))
            if xxh3_128(data).digest() != digests[16 * leaf : 16 * leaf + 16]:
                raise Corrupt(f"leaf {leaf} of the image, in segment {name!r}, differs from its digest", leaf=leaf)
            left -= len(data)
            leaf += 1
            if name == "meta":
                whole += data
        if name == "meta":
            _check_tree(bytes(whole), layout["views"])
        at += place["capacity"]
        _no_bytes(file, at, f"after segment {name!r}")
    if at != head.total:
        raise Malformed("the image has bytes after its last segment")


def _check_tree(text: bytes, views: list[Any]) -> None:
    tree = _parse(text, "the state's tree")
    if _canonical(tree) != text:
        raise Malformed("the state's tree is not canonical JSON")
    referred: dict[int, str] = {}
    pending: list[tuple[Any, str]] = [(tree, "")]
    while pending:
        node, path = pending.pop()
        if isinstance(node, float):
            raise Malformed(f"the state's tree has a float at {path!r}")
        mark = next(iter(node)) if isinstance(node, dict) and len(node) == 1 else ""
        if mark in {"$t", "$g", "$p"}:
            index = node[mark][0] if mark == "$p" and isinstance(node[mark], list) and node[mark] else node[mark]
            if type(index) is not int or not 0 <= index < len(views):
                raise Malformed(f"the state's tree refers at {path!r} to no view")
            if mark != "$g" and (index in referred or views[index]["path"] != path):
                raise Malformed(f"the state's tree refers at {path!r} to another's view")
            if (mark == "$g") != (views[index]["dtype"] == "rng"):
                raise Malformed(f"the state's tree takes a tensor for a generator or the reverse at {path!r}")
            if mark == "$p" and not _is_part(node[mark], views[index]["shape"]):
                raise Malformed(f"the state's tree has at {path!r} a valid part that its view can't have")
            referred[index] = path
            continue
        if mark == "$u":
            node = node[mark]
        if isinstance(node, list):
            pending += [(item, f"{path}/{number}" if path else str(number)) for number, item in enumerate(node)]
        elif isinstance(node, dict) and mark not in {"$i", "$d"}:
            plain = {key.removeprefix("$"): item for key, item in node.items()}
            pending += [(item, f"{path}/{key}" if path else key) for key, item in plain.items()]
    if len(referred) != len(views):
        raise Malformed("the state's tree does not refer to every view")


def _is_part(mark: Any, shape: list[int]) -> bool:
    if not isinstance(mark, list) or [type(number) for number in mark] != [int] * 3:
        return False
    _, dim, rows = mark
    return bool(0 <= dim < len(shape) and 0 <= rows <= shape[dim])


def _take(file: BinaryIO, nbytes: int) -> bytes:
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise Malformed("the image ends early: it was cut")
    return data


def _no_bytes(file: BinaryIO, until: int, where: str) -> None:
    if any(_take(file, until - file.tell())):
        raise Malformed(f"the image has bytes {where} that belong to nothing")


def _up(nbytes: int) -> int:
    return nbytes + -nbytes % PAGE


# ----------------------------------------------------------------------------------------------------------- receipts


def _check_format(receipt: dict[str, Any], text: bytes) -> None:
    """Takes `format` out. A file that has it is exactly the file that the writer wrote; one without it came from the
    API, where the spacing is anybody's.
    """
    if "format" not in receipt:
        return
    found = receipt["format"]
    match = FORMAT.match(found) if isinstance(found, str) else None
    if match is None:
        raise Malformed("the receipt's format is not that of a receipt")
    if int(match[1]) != 2:
        raise VersionUnknown(f"the receipt has version {match[1]}; this reader knows 2")
    if text != json.dumps(receipt, indent=2, ensure_ascii=True).encode("ascii") + b"\n":
        raise Malformed("the receipt's file is not written as receipts are: a byte outside the fields was changed")
    del receipt["format"]


def _check_signed(receipt: Mapping[str, Any], signers: Collection[str] | None) -> list[str]:
    covered = {
        name: float(value) if RECEIPT_FIELDS[name] is float else value
        for name, value in receipt.items()
        if name not in {"id", "signature"}
    }
    digest = blake3(_canonical(covered)).digest()
    signer = receipt["signer"]
    signed = signer is not None and _is_signed(digest, receipt["signature"], signer)
    if digest[:16].hex() != receipt["id"]:
        what = "its id was changed" if signed else "a field was changed after the id was made"
        raise Corrupt(f"the receipt's id is not the digest of its other fields: {what}")
    if signer is None:
        raise Unauthenticated("the receipt is not signed, so anybody may have made it")
    if not signed:
        raise Unauthenticated("the receipt's signature is not its signer's", signer=signer)
    if signers is not None and signer not in signers:
        raise Unauthenticated("the receipt is signed with a key that is not one of those expected", signer=signer)
    who = "which is expected" if signers is not None else "of which nothing else is known here"
    return ["the id is the digest of all other fields", f"the signature is that of key {signer}, {who}"]


def _is_signed(digest: bytes, signature: str, signer: str) -> bool:
    # Imported here: reading an image needs no signatures.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer))
    try:
        key.verify(bytes.fromhex(signature), b"worldline receipt 2\0" + digest)
    except InvalidSignature:
        return False
    return True


def _check_receipt_values(receipt: Mapping[str, Any]) -> None:
    for name, value in receipt.items():
        if isinstance(value, (int, float)) and value < 0:
            raise Malformed(f"the receipt's {name} is below zero")
    if (receipt["signer"] is None) != (receipt["signature"] is None):
        raise Malformed("the receipt has a signer without a signature, or the reverse")
    if receipt["signer"] is not None and HEX_128.match(receipt["signature"]) is None:
        raise Malformed("the receipt's signature is none")
    if receipt["signer"] is not None and HEX_64.match(receipt["signer"]) is None:
        raise Malformed("the receipt's signer is no key")
    for name in ("layout", "source_root", "target_root", "source_plan", "target_plan"):
        if HEX_64.match(receipt[name]) is None:
            raise Malformed(f"the receipt's {name} is no digest")
    if HEX_32.match(receipt["id"]) is None:
        raise Malformed("the receipt's id is no digest")
    for name in ("move", "session"):
        if NAME.match(receipt[name]) is None:
            raise Malformed(f"the receipt's {name} is no name")
    for name in ("transport", "source", "target", "made_by"):
        if not 1 <= len(receipt[name]) <= 255:
            raise Malformed(f"the receipt's {name} is empty or too long")
    if receipt["mode"] not in {"freeze", "precopy", "park", "resume"} or receipt["tier"] not in {"T0", "T1"}:
        raise Malformed("the receipt's mode or tier is unknown")
    if receipt["epoch"] < 1:
        raise Malformed("the receipt's epoch is below one")
    leaves, nbytes = receipt["leaf_count"], receipt["state_bytes"]
    if leaves * 1048576 < nbytes or (leaves == 0) != (nbytes == 0) or leaves > nbytes:
        raise Malformed(f"the receipt's {nbytes} bytes can't have {leaves} leaves")


def _check_plans(receipt: Mapping[str, Any]) -> str:
    same = receipt["source_plan"] == receipt["target_plan"]
    qualified = receipt["qualification"]
    if receipt["tier"] == "T0":
        if not same or qualified is not None:
            raise PlanMismatch("the receipt is of tier T0, which needs equal plans and knows no qualification")
        return "tier T0: both plans are the same"
    if not same and qualified is None:
        raise PlanMismatch("the receipt is of tier T1 and its plans differ, but it cites no qualification")
    return "tier T1: both plans are the same" if same else f"tier T1: the pair of plans is qualified by {qualified}"


def _check_against(receipt: Mapping[str, Any], report: ImageReport) -> None:
    if receipt["session"] != report.session:
        raise WrongSession(f"the image is of session {report.session}, the receipt of {receipt['session']}")
    pairs: dict[str, tuple[Any, Any]] = {
        "block": (receipt["block"], report.block),
        "layout": (receipt["layout"], report.layout),
        "content root": (receipt["target_root"], report.root),
        "number of leaves": (receipt["leaf_count"], report.leaf_count),
        "size": (receipt["state_bytes"], report.state_bytes),
    }
    for what, (claimed, found) in pairs.items():
        if claimed != found:
            raise Corrupt(f"the image's {what} is {found}, the receipt's {claimed}")


# --------------------------------------------------------------------------------------------------------------- JSON


def _parse(text: bytes, what: str) -> Any:
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{what} can't be read as JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{what} is no JSON object")
    return value


def _check_fields(value: Any, fields: Mapping[str, type], what: str, optional: set[str] | None = None) -> None:
    """Exactly these fields, of these types, integers of 64 bits; a float may be written as an integer, and the
    optional ones may be null.
    """
    found = _object(value, what)
    if found.keys() != fields.keys():
        wrong = sorted(found.keys() ^ fields.keys())
        raise Malformed(f"{what} lacks or has too much: {', '.join(wrong)[:200]}")
    for name, kind in fields.items():
        item = found[name]
        if item is None and name in (optional or set()):
            continue
        right = type(item) is kind or (kind is float and type(item) is int)
        if type(item) is int and not -(1 << 63) <= item < 1 << 63:
            raise Malformed(f"{what}'s {name} is too large a number")
        if not right or (isinstance(item, float) and not math.isfinite(item)):
            raise Malformed(f"{what}'s {name} is no {kind.__name__}")
