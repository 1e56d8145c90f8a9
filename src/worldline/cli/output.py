"""What a command prints: one JSON object, or text for people. Progress goes to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Annotated

import msgspec
from cyclopts import Parameter

from worldline.errors import WorldlineError
from worldline.service.client import Client

URL = "http://127.0.0.1:8700"
WIDTH = 100
"""Of text that is wrapped."""
PATIENCE_S = 2.0
PATIENCE_NEXT_S = 10.0


@Parameter(name="*")
@dataclass(frozen=True)
class Shared:
    """Options of every command that talks to a fleet."""

    json: Annotated[bool, Parameter(negative="")] = False
    """Print one JSON object."""
    url: Annotated[str, Parameter(env_var="WORLDLINE_URL")] = URL
    """Where the fleet's gateway is."""
    token: Annotated[str | None, Parameter(env_var="WORLDLINE_TOKEN")] = None
    """What the gateway asks for, where it was started with a token; the variable is not seen by other users."""
    ca: Annotated[Path | None, Parameter(env_var="WORLDLINE_CA")] = None
    """The certificate of whoever signed the gateway's, where the system does not know it."""

    def client(self) -> Client:
        """A connection to the fleet."""
        return Client(self.url, token=self.token, ca=self.ca)


def print_json(value: object) -> None:
    """One object on standard output, keys as in the HTTP API."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    sys.stdout.flush()


def show(value: object, text: str, as_json: bool) -> int:
    """Prints `value` as JSON or `text` for people; returns exit code 0."""
    if as_json:
        print_json(value)
    else:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    return 0


def progress(line: str) -> None:
    """One line of progress, for people."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@contextmanager
def patience(doing: str) -> Iterator[None]:
    """Says on standard error what is being done, where it takes longer than people wait without a word."""
    over = Event()

    def tell() -> None:
        waited_s, wait_s = 0.0, PATIENCE_S
        while not over.wait(wait_s):
            waited_s, wait_s = waited_s + wait_s, PATIENCE_NEXT_S
            progress(f"{doing} ... {waited_s:.0f} s")

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def report_error(error: WorldlineError, as_json: bool) -> int:
    """The error's sentence on standard error, and as an object on standard output where JSON was asked for."""
    sys.stderr.write(f"worldline: {error.code}: {error.sentence}\n")
    if as_json:
        print_json({"error": error.to_record()})
    return error.exit_code


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns aligned on their widest cell."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
