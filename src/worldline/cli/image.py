"""`worldline image`: images of parked sessions, checked offline."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingFile

from worldline.cli.output import show
from worldline.cli.values import image_report_text
from worldline.verify.reader import verify_image


def verify(file: ExistingFile, *, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Checks an image offline, with a reader that shares no code with the writer.

    After success every byte is what was written: header, manifest, each leaf and the root. A failure names what does
    not hold.

    Parameters
    ----------
    file: ExistingFile
        The image.
    json: bool
        Print one JSON object.
    """
    report = verify_image(file)
    return show(report, image_report_text(report), json)
