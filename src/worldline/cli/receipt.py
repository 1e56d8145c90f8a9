"""`worldline receipt`: receipts, fetched and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingFile

from worldline.cli.output import Shared, show
from worldline.cli.values import receipt_report_text, receipt_text
from worldline.service.client import Client
from worldline.verify.reader import verify_receipt
from worldline.verify.receipts import write_receipt


def verify(
    file: ExistingFile, *, image: ExistingFile | None = None, json: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Checks a receipt offline, with a reader that shares no code with the writer.

    After success the receipt is whole, unchanged, and claims equal roots; with an image, that the image is the state
    it speaks of. A failure names what does not hold.

    Parameters
    ----------
    file: ExistingFile
        The receipt, as `worldline receipt show --save` writes it.
    image: Path
        The image of a park, to be checked against the receipt.
    json: bool
        Print one JSON object.
    """
    report = verify_receipt(file, image)
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
    with Client(shared.url) as client:
        found = client.receipt(receipt)
    if save is not None:
        write_receipt(save, found)
    return show(found, receipt_text(found), shared.json)
