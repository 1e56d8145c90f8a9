"""Writing a report's folder. Its parts are in `report`.

    report.html, report.md    what was asked, what was found, what was only projected
    figures/*.svg, *.png
    data.json                 all results, and the record of each run
    RUN.jsonl                 the run's telemetry

Invariant: a run that is void has no report, and of a report that can't be made nothing is written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import msgspec

from worldline.errors import BadValue, RunVoid
from worldline.lab.report import DATA, FIGURES, Data, Json, Report, Run, figures_of
from worldline.lab.report_figures import draw_figures
from worldline.lab.report_pages import html_page, markdown_page
from worldline.lab.telemetry import RunRecord, read_run

FORMAT = "worldline report 1"


def write_report(folder: Path, report: Report, runs: Mapping[str, Run]) -> Path:
    """Writes the report of `runs` into `folder`, made where it is not there. Returns the path of report.html.

    Raises `RunVoid`, with nothing written, if any run is void or was never ended; `Malformed` for a record that is
    none; `MissingExtra` where figures can't be drawn; `BadValue` without a run.
    """
    if not runs:
        raise BadValue("a report is of a run, and none was given")
    data = Data(
        {name: _counted(name, run.telemetry) for name, run in runs.items()},
        {name: _builtins(run.results) for name, run in runs.items()},
    )
    markdown, html = markdown_page(report, data), html_page(report, data)  # every key is looked up before a byte is out
    folder.mkdir(parents=True, exist_ok=True)
    for name, run in runs.items():
        if run.telemetry.resolve() != (folder / f"{name}.jsonl").resolve():
            shutil.copyfile(run.telemetry, folder / f"{name}.jsonl")
    draw_figures(folder / FIGURES, list(figures_of(report)), data)
    (folder / DATA).write_text(json.dumps(_data_record(report, data), indent=1, allow_nan=False) + "\n", "utf-8")
    (folder / "report.md").write_text(markdown, "utf-8")
    (folder / "report.html").write_text(html, "utf-8")
    return folder / "report.html"


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
