"""`worldline receipt`: receipts, fetched and checked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingFile

from worldline.cli.output import Shared, show, table
from worldline.cli.values import receipt_report_text, receipt_text
from worldline.errors import BadValue
from worldline.verify.reader import verify_receipt
from worldline.verify.receipts import write_receipt

KEY = re.compile(r"[0-9a-f]{64}\Z")
KEYS_FILE_BYTES_MAX = 1024 * 1024


def verify(
    file: ExistingFile,
    *,
    image: ExistingFile | None = None,
    key: tuple[str, ...] = (),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Checks a receipt offline, with a reader that shares no code with the writer.

    After success the receipt is whole, unchanged, signed, and claims equal roots; with an image, that the image is
    the state it speaks of; with a key, that it was made by the host that has this key. A failure names what does not
    hold.

    Parameters
    ----------
    file: ExistingFile
        The receipt, as `worldline receipt show --save` writes it.
    image: Path
        The image of a park, to be checked against the receipt.
    key: str
        The public key of the host that must have signed, as 64 hex digits, or a file of such keys, one a line, as
        `worldline receipt keys --save` writes it; may be repeated. Without it any signer is taken, and named.
    json: bool
        Print one JSON object.
    """
    report = verify_receipt(file, image, _keys_of(key) if key else None)
    return show(report, receipt_report_text(report), json)


def show_receipt(receipt: str, *, save: Path | None = None, shared: Shared | None = None) -> int:
    """Shows a receipt of the fleet.

    Parameters
    ----------
    receipt: str
        Its id; `worldline describe` lists a session's.
    save: Path
        Write it to this file, to be verified offline.
    """
    shared = shared or Shared()
    with shared.client() as client:
        found = client.receipt(receipt)
    if save is not None:
        write_receipt(save, found)
    return show(found, receipt_text(found), shared.json)


def show_keys(*, save: Path | None = None, shared: Shared | None = None) -> int:
    """Lists the public keys under which the fleet's hosts sign receipts, as the controller recorded them.

    Parameters
    ----------
    save: Path
        Write them to this file, for `worldline receipt verify --key`.
    """
    shared = shared or Shared()
    with shared.client() as client:
        found = client.signers()
    if save is not None:
        save.write_text("".join(f"{signer.key} {signer.host}\n" for signer in found))
    text = table(("host", "key"), [(signer.host, signer.key) for signer in found])
    return show({"signers": found}, text, shared.json)


def _keys_of(words: tuple[str, ...]) -> set[str]:
    keys: set[str] = set()
    for word in words:
        keys |= {word} if KEY.match(word) else _keys_in(Path(word))
    return keys


def _keys_in(path: Path) -> set[str]:
    try:
        with path.open("rb") as file:
            text = file.read(KEYS_FILE_BYTES_MAX).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(f"{str(path)[:80]!r} is neither a key of 64 hex digits nor a file of such keys") from error
    keys = [line.split()[0] for line in text.splitlines() if line.strip()]
    if not keys or any(KEY.match(key) is None for key in keys):
        raise BadValue(f"{path.name} has a line that does not begin with a key of 64 hex digits, or has no line")
    return set(keys)
