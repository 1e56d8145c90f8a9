"""The report of an experiment: a folder in which every number can be traced to the run that made it.

    report.html, report.md    what was asked, what was found, what was only projected
    figures/*.svg, *.png
    data.json                 all results, and the record of each run
    RUN.jsonl                 the run's telemetry

Invariants. An author never writes a number: a report is made of *keys* into `data.json`, `RUN/path/to/value`, and the
writer looks each up and prints it with its key, so text, tables, figures and data can't differ. What was demonstrated
and what is projected stand in separate columns. A run that is void has no report.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from worldline.errors import BadValue, Internal, RunVoid
from worldline.lab.telemetry import RunRecord, read_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = "worldline report 1"
DATA = "data.json"
FIGURES = "figures"

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Lookup: TypeAlias = Callable[[str], Json]


class Standing(Enum):
    """How a number came to be."""

    MEASURED = "measured"
    """Real processes moved real bytes on the machine of the run: demonstrated."""
    SIMULATED = "simulated"
    """The real decisions, on a simulated clock and fabric: a projection."""
    PROJECTED = "projected"
    """A formula's answer, or a number of a machine that was not there."""


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph. `{RUN/key}` or `{RUN/key:.2f}` in it becomes that number."""

    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table: one thing, and the keys of what was demonstrated and what is projected of it."""

    what: str
    demonstrated: str | None = None
    projected: str | None = None
    unit: str = ""
    form: str = ".4g"
    simulated: bool = False
    """The projection is a simulation of the real decisions, not a formula."""


@dataclass(frozen=True, slots=True)
class Table:
    """Demonstrated and projected, beside each other."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """Of a listing: `key` within each item."""

    title: str
    key: str
    standing: Standing
    form: str = ".4g"


@dataclass(frozen=True, slots=True)
class Listing:
    """A row for each item of the list at key `of`."""

    title: str
    of: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Of a plot. `x` and `y` are keys with one `*`, which stands for every item of a list."""

    label: str
    x: str
    y: str
    standing: Standing


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of series: measured ones are filled marks on lines, the others hollow marks on broken lines."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """Any other figure. `draw` gets the axes and the lookup of keys."""

    name: str
    title: str
    draw: Callable[[Axes, Lookup], None]


Part: TypeAlias = Words | Table | Listing | Plot | Drawing


@dataclass(frozen=True, slots=True)
class Section:
    """Parts in order, under a heading."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a report says; what the numbers are is in the runs."""

    name: str
    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended: the file of its telemetry, and its results (a dataclass, struct, list or dict)."""

    telemetry: Path
    results: object


@dataclass(frozen=True, slots=True)
class Data:
    """What `data.json` holds."""

    records: Mapping[str, RunRecord]
    results: Mapping[str, Json]

    def look_up(self, key: str) -> Json:
        """The value at `RUN/path`. Raises `Internal` for a key that leads nowhere: a report can't be made of it."""
        found: Json = dict(self.results)
        for step in key.split("/"):
            if isinstance(found, dict) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                raise Internal(f"the report asks for {key!r}, and the results have no {step!r}", key=key)
        return found

    def items(self, key: str) -> list[str]:
        """The keys that `key`, with one `*`, stands for."""
        before, star, after = key.partition("*")
        if not star:
            raise Internal(f"{key!r} names one value, and a series has many", key=key)
        listed = self.look_up(before.rstrip("/"))
        if not isinstance(listed, list):
            raise Internal(f"{before!r} is no list", key=key)
        return [f"{before}{at}{after}" for at in range(len(listed))]


def write_report(folder: Path, report: Report, runs: Mapping[str, Run]) -> Path:
    """Writes the report of `runs` into `folder`, made where it is not there. Returns the path of report.html.

    Raises `RunVoid`, with nothing written, if any run is void or was never ended; `Malformed` for a record that is
    none; `MissingExtra` where figures can't be drawn; `BadValue` without a run.
    """
    from worldline.lab.report_figures import draw_figures  # matplotlib is an extra
    from worldline.lab.report_pages import html_page, markdown_page

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


def figures_of(report: Report) -> Iterator[Plot | Drawing]:
    for section in report.sections:
        for part in section.parts:
            if isinstance(part, Plot | Drawing):
                yield part


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
