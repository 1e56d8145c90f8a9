"""Receipts as files. The octets and the rules that a reader holds them to are in docs/format.md."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3

from worldline.errors import Malformed, VersionUnknown
from worldline.schema.ids import ReceiptId
from worldline.schema.receipt import Receipt

FORMAT: Final = "worldline receipt 1"
RECEIPT_BYTES_MAX: Final = 1024 * 1024
UNSEALED: Final = ReceiptId("")
"""The id of a receipt that has none yet."""


def make_receipt(draft: Receipt) -> Receipt:
    """The receipt with the id that follows from its other fields; `draft.id` does not matter."""
    fields = asdict(draft)
    del fields["id"]
    for name, value in fields.items():
        # A whole number of seconds must read the same after a trip through JSON, whoever wrote it.
        if name.endswith("_s"):
            fields[name] = float(value)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return replace(draft, **fields, id=ReceiptId(blake3(text.encode("ascii")).digest(16).hex()))


def encode_receipt(receipt: Receipt) -> bytes:
    """The file's bytes: one JSON object for people and programs."""
    fields = {"format": FORMAT} | asdict(receipt)
    return (json.dumps(fields, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def write_receipt(path: Path, receipt: Receipt) -> None:
    """After it, `path` is the whole receipt, durable; after a failure it is what it was. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(encode_receipt(receipt))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    finally:
        temporary.unlink(missing_ok=True)


def load_receipt(path: Path) -> Receipt:
    """A receipt from its file, typed and with the right id; `reader.verify_receipt` holds it to its rules.

    Raises `Malformed`, `VersionUnknown` and `FileNotFoundError`.
    """
    with path.open("rb") as file:
        data = file.read(RECEIPT_BYTES_MAX + 1)
    try:
        fields = msgspec.json.decode(data[:RECEIPT_BYTES_MAX], type=dict[str, object])
        found = fields.pop("format", FORMAT)
        if found != FORMAT:
            raise VersionUnknown(f"the receipt's format is {str(found)[:40]!r}; this program reads {FORMAT!r}")
        receipt = msgspec.convert(fields, Receipt)
        extra = fields.keys() - asdict(receipt).keys()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Malformed(f"the receipt can't be read: {error}") from error
    if extra or make_receipt(receipt).id != receipt.id:
        raise Malformed("the receipt's id does not follow from its fields")
    return receipt
