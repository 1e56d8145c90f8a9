"""Writing a report's folder. Its parts are in `report`.

    report.html, report.md    what was asked, what was found, what was only projected
    figures/*.svg, *.png
    data.json                 all results, and the record of each run
    RUN.jsonl                 the run's telemetry

Invariants
  A run that is void has no report, and of a report that can't be made nothing is written.
  A report is put together beside its place, and put there as a whole: an interruption leaves the one before, or none.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from worldline.errors import BadValue, RunVoid
from worldline.lab.report import DATA, FIGURES, Data, Json, Report, Run, figures_of
from worldline.lab.report_figures import draw_figures
from worldline.lab.report_pages import html_page, markdown_page
from worldline.lab.telemetry import RunRecord, read_run

FORMAT = "worldline report 1"
HTML, MARKDOWN = PAGES = ("report.html", "report.md")
UNFINISHED = ".worldline-"


def write_report(folder: Path, report: Report, runs: Mapping[str, Run]) -> Path:
    """Writes the report of `runs` into `folder`, made where it is not there. Returns the path of report.html.

    Raises `RunVoid`, with nothing written, if any run is void or was never ended; `Malformed` for a record that is
    none; `MissingExtra` where figures can't be drawn; `BadValue` without a run, and where nothing can be written.
    """
    if not runs:
        raise BadValue("a report is of a run, and none was given")
    data = Data(
        {name: _counted(name, run.telemetry) for name, run in runs.items()},
        {name: _builtins(run.results) for name, run in runs.items()},
    )
    markdown, html = markdown_page(report, data), html_page(report, data)  # every key is looked up before a byte is out
    with _said_where(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=UNFINISHED) as made:
            whole = Path(made, "whole")
            whole.mkdir()
            for name, run in runs.items():
                shutil.copyfile(run.telemetry, whole / f"{name}.jsonl")
            draw_figures(whole / FIGURES, list(figures_of(report)), data)
            (whole / DATA).write_text(json.dumps(_data_record(report, data), indent=1, allow_nan=False) + "\n", "utf-8")
            (whole / MARKDOWN).write_text(markdown, "utf-8")
            (whole / HTML).write_text(html, "utf-8")
            _put(whole, folder, Path(made))
    return folder / HTML


def _put(whole: Path, folder: Path, aside: Path) -> None:
    """The pages go first and come last: where they are, all else is what they were made with."""
    for name in (*PAGES, FIGURES):
        if (folder / name).exists():
            (folder / name).rename(aside / name)
    for path in sorted(whole.iterdir(), key=lambda path: path.name in PAGES):
        path.rename(folder / path.name)


@contextmanager
def report_folder(folder: Path) -> Iterator[None]:
    """Makes it, and keeps every other run out of it. Raises `BadValue` where another has it, or it can't be written."""
    with _said_where(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryDirectory(dir=folder, prefix=UNFINISHED).cleanup()
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(held, folder)
        yield
    finally:
        os.close(held)


def _lock(held: int, folder: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadValue(f"another run is to report into {folder}; wait for it, or name another folder") from None


@contextmanager
def _said_where(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadValue(f"{folder} can't be written: {error.strerror or error}") from error


def _counted(name: str, telemetry: Path) -> RunRecord:
    record = read_run(telemetry)
    if record.void is not None:
        raise RunVoid(f"run {name} is void, and what it measured is not reported: {record.void}", run=name)
    return record


def _builtins(results: object) -> Json:
    """As JSON has it; what is not finite becomes null."""
    found: Json = msgspec.json.decode(msgspec.json.encode(results))
    return found


def _data_record(report: Report, data: Data) -> dict[str, object]:
    return {
        "format": FORMAT,
        "report": report.name,
        "title": report.title,
        "runs": {name: asdict(record) | {"telemetry": f"{name}.jsonl"} for name, record in data.records.items()},
        "results": data.results,
    }
