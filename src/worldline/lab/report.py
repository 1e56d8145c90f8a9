"""The parts of an experiment's report, in which every number can be traced to the run that made it.

Invariants. An author never writes a number: a report is made of *keys* into `data.json`, `RUN/path/to/value`, and the
writer (`report_folder`) looks each up and prints it with its key, so text, tables, figures and data can't differ. What
was demonstrated and what is projected stand in separate columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from worldline.errors import Internal
from worldline.lab.telemetry import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    from_zero: bool = False
    """The y axis begins at 0, so that what is flat looks flat."""


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
    shown: bool = True
    """Whether what it is to show was shown; where it was not, both pages begin with that."""


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


def figures_of(report: Report) -> Iterator[Plot | Drawing]:
    for section in report.sections:
        for part in section.parts:
            if isinstance(part, Plot | Drawing):
                yield part
