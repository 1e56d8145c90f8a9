"""Receipts as files. The octets and the rules that a reader holds them to are in docs/format.md."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from blake3 import blake3

from worldline.errors import Malformed, VersionUnknown
from worldline.schema.canonical import canonical_json
from worldline.schema.ids import ReceiptId
from worldline.schema.receipt import Receipt
from worldline.verify.durable import replacing
from worldline.verify.signing import SigningKey

FORMAT: Final = "worldline receipt 2"
RECEIPT_BYTES_MAX: Final = 1024 * 1024
ID_BYTES: Final = 16
SIGNED_AS: Final = b"worldline receipt 2\0"
"""Goes before the digest that is signed, so that no signature of anything else is ever taken for a receipt's."""
UNSEALED: Final = ReceiptId("")
"""The id of a receipt that has none yet."""


def make_receipt(draft: Receipt, key: SigningKey | None = None) -> Receipt:
    """The receipt with the id that follows from its other fields, signed where a key is given.

    What `draft` has as id, signer and signature does not matter.
    """
    signed = replace(draft, signer=None if key is None else key.public, signature=None)
    fields = _seconds_as_doubles(signed)
    digest = _digest(fields)
    fields["signature"] = None if key is None else key.sign(SIGNED_AS + digest)
    return replace(draft, **(fields | {"id": ReceiptId(digest[:ID_BYTES].hex())}))


def receipt_id(receipt: Receipt) -> ReceiptId:
    """The id that follows from the other fields."""
    return ReceiptId(_digest(_seconds_as_doubles(receipt))[:ID_BYTES].hex())


def _seconds_as_doubles(receipt: Receipt) -> dict[str, Any]:
    """A whole number of seconds must read the same after a trip through JSON, whoever wrote it."""
    return {name: float(value) if name.endswith("_s") else value for name, value in asdict(receipt).items()}


def _digest(fields: Mapping[str, Any]) -> bytes:
    covered = {name: value for name, value in fields.items() if name not in {"id", "signature"}}
    return blake3(canonical_json(covered)).digest()


def encode_receipt(receipt: Receipt) -> bytes:
    """The file's bytes: one JSON object for people and programs."""
    fields = {"format": FORMAT} | asdict(receipt)
    return (json.dumps(fields, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def write_receipt(path: Path, receipt: Receipt) -> None:
    """After it, `path` is the whole receipt, durable; after a failure it is what it was. Raises `OSError`."""
    with replacing(path) as draft, draft.open("xb") as file:
        file.write(encode_receipt(receipt))
        file.flush()
        os.fsync(file.fileno())


def load_receipt(path: Path) -> Receipt:
    """A receipt from its file, typed and with the right id; `reader.verify_receipt` holds it to its rules, and its
    signature to its signer.

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
    if extra or receipt_id(receipt) != receipt.id:
        raise Malformed("the receipt's id does not follow from its fields")
    return receipt
