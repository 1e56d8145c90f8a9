"""The two texts of a report: Markdown and HTML, of the same parts, each number with its key."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import assert_never

from worldline.errors import Internal
from worldline.lab.report import (
    DATA,
    FIGURES,
    Column,
    Data,
    Drawing,
    Json,
    Line,
    Listing,
    Part,
    Plot,
    Report,
    Standing,
    Table,
    Words,
)
from worldline.units import format_bytes

_HOLE = re.compile(r"\{([^{}:]+)(?::([^{}]+))?\}")
_STRESSED = re.compile(r"\*(\w+)\*")
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
table { display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .7rem; text-align: left; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; }
code { font-size: .85em; opacity: .75; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; background: #fff; }
data { border-bottom: 1px dotted #8888; }
"""


@dataclass(frozen=True, slots=True)
class Number:
    """A value that was looked up, as it is printed."""

    key: str
    value: Json
    text: str


def number(data: Data, key: str, form: str = ".4g") -> Number:
    """The value at `key`, in the format `form` where it is a number."""
    value = data.look_up(key)
    if value is None:
        text = "none"
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int) and form.endswith("g"):
        text = str(value)
    elif isinstance(value, int | float):
        text = format(value, form)
    elif isinstance(value, str):
        text = value
    else:
        raise Internal(f"{key!r} is a list or an object, and a report prints single values", key=key)
    return Number(key, value, text)


def markdown_page(report: Report, data: Data) -> str:
    """The report as Markdown. Raises `Internal` for a key that leads nowhere."""
    blocks = [
        f"# {report.title}",
        *(() if report.shown else (f"**{_NOT_SHOWN}**",)),
        _INTRODUCTION.format(data=f"[{DATA}]({DATA})"),
        _markdown_runs(data),
    ]
    for section in report.sections:
        blocks.append(f"## {section.title}")
        blocks += [_markdown_part(part, data) for part in section.parts]
    return "\n\n".join(blocks) + "\n"


def html_page(report: Report, data: Data) -> str:
    """The report as one HTML page beside its figures. Raises `Internal` for a key that leads nowhere."""
    body = [f"<h1>{escape(report.title)}</h1>"]
    if not report.shown:
        body.append(f"<p><strong>{_NOT_SHOWN}</strong></p>")
    said = _stressed(_INTRODUCTION).replace("`", "")
    body.append(f"<p>{said.format(data=f'<a href={DATA!r}>{DATA}</a>')}</p>")
    body.append(_html_runs(data))
    for section in report.sections:
        body.append(f"<h2>{escape(section.title)}</h2>")
        body += [_html_part(part, data) for part in section.parts]
    head = f'<meta charset="utf-8"><title>{escape(report.title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


_NOT_SHOWN = "Not shown: what this is to show does not hold in this run."
_INTRODUCTION = (
    "Every number is followed, or labelled, by its key: the name of its run, and where it stands under `results` in "
    "{data}. *Demonstrated* was measured on real bytes; *projected* is a formula's answer or, where it says so, a "
    "simulation of the real decisions."
)


def _run_rows(data: Data) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("run", "machine", "fingerprint", "program", "samples", "longest silence")]
    for name, record in data.records.items():
        machine = record.machine
        where = f"{machine.cpu}, {machine.cores} cores, {format_bytes(machine.memory_bytes)}, Linux {machine.kernel}"
        commit = "not known" if machine.commit is None else machine.commit[:12] + machine.commit[40:]
        program = f"{commit}, Python {machine.python}"
        rows.append(
            (name, where, record.fingerprint[:12], program, str(record.samples), f"{record.silence_s_max:.1f} s")
        )
    return rows


def _line_rows(part: Table, data: Data, print_number: Callable[[Number], str]) -> list[tuple[str, ...]]:
    return [tuple(_line_cells(line, data, print_number)) for line in part.lines]


def _line_cells(line: Line, data: Data, print_number: Callable[[Number], str]) -> list[str]:
    keys = (line.demonstrated, line.projected)
    cells = [line.what, *("" if key is None else print_number(number(data, key, line.form)) for key in keys)]
    if line.projected is not None and line.simulated:
        cells[-1] += " (simulated)"
    return [*cells, line.unit]


def _listed(part: Listing, data: Data) -> list[list[Number]]:
    keys = data.items(f"{part.of}/*")
    return [[number(data, f"{key}/{column.key}", column.form) for column in part.columns] for key in keys]


def _column_key(part: Listing, column: Column) -> str:
    return f"{part.of}/N/{column.key}"


def _column_title(column: Column) -> str:
    way = "demonstrated" if column.standing is Standing.MEASURED else column.standing.value
    return f"{column.title} ({way})"


# ---- Markdown


def _markdown_part(part: Part, data: Data) -> str:
    match part:
        case Words():
            return _HOLE.sub(lambda hole: _markdown_number(_of_hole(hole, data)), part.text)
        case Table():
            named = ("", "demonstrated", "projected", "unit")
            return f"**{part.title}**\n\n" + _markdown_table([named, *_line_rows(part, data, _markdown_number)])
        case Listing():
            head = tuple(f"{_column_title(column)} `{_column_key(part, column)}`" for column in part.columns)
            rows = [tuple(cell.text for cell in row) for row in _listed(part, data)]
            return f"**{part.title}** (N is the row, from 0)\n\n" + _markdown_table([head, *rows])
        case Plot() | Drawing():
            return f"![{part.title}]({FIGURES}/{part.name}.svg)\n\n*{part.title}.*{_of_series(part, '`')}"
    assert_never(part)


def _markdown_runs(data: Data) -> str:
    return _markdown_table(_run_rows(data))


def _markdown_number(found: Number) -> str:
    return f"{found.text} (`{found.key}`)"


def _markdown_table(rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


# ---- HTML


def _html_part(part: Part, data: Data) -> str:
    match part:
        case Words():
            holes = list(_HOLE.finditer(part.text))
            texts = _HOLE.split(part.text)[::3]  # the key and the format of each hole stand between
            numbers = [_html_number(_of_hole(hole, data)) for hole in holes]
            pairs = zip(texts, [*numbers, ""], strict=True)
            return "<p>" + "".join(_stressed(escape(text)) + found for text, found in pairs) + "</p>"
        case Table():
            rows = [
                f"<tr><td>{escape(row[0])}</td><td class=n>{row[1]}</td><td class=n>{row[2]}</td>"
                f"<td>{escape(row[3])}</td></tr>"
                for row in _line_rows(part, data, _html_number)
            ]
            head = "<tr><th></th><th>demonstrated</th><th>projected</th><th>unit</th></tr>"
            return f"<h3>{escape(part.title)}</h3><table>{head}{''.join(rows)}</table>"
        case Listing():
            return _html_listing(part, data)
        case Plot() | Drawing():
            caption = f"{escape(part.title)}. {_of_series(part, '')}"
            image = f'<img src="{FIGURES}/{escape(part.name)}.svg" alt="{escape(part.title)}">'
            return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
    assert_never(part)


def _stressed(text: str) -> str:
    """Of Markdown, `*word*` alone is markup in an author's words too."""
    return _STRESSED.sub(r"<em>\1</em>", text)


def _html_listing(part: Listing, data: Data) -> str:
    head = "".join(
        f"<th>{escape(_column_title(column))}<br><code>{_breakable(_column_key(part, column))}</code></th>"
        for column in part.columns
    )
    rows = "".join(
        "<tr>" + "".join(f"<td class=n>{_html_value(cell)}</td>" for cell in row) + "</tr>"
        for row in _listed(part, data)
    )
    return f"<h3>{escape(part.title)}</h3><table><tr>{head}</tr>{rows}</table>"


def _breakable(key: str) -> str:
    """A key that may go on in the next line after each of its steps: a table's columns fit beside each other."""
    return escape(key).replace("/", "/<wbr>").replace("_", "_<wbr>")


def _html_runs(data: Data) -> str:
    head, *rows = _run_rows(data)
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _html_number(found: Number) -> str:
    return f"{_html_value(found)} <code>{escape(found.key)}</code>"


def _html_value(found: Number) -> str:
    return f'<data value="{escape(str(found.value))}" title="{escape(found.key)}">{escape(found.text)}</data>'


def _of_hole(hole: re.Match[str], data: Data) -> Number:
    return number(data, hole[1], hole[2] or ".4g")


def _of_series(part: Plot | Drawing, quote: str) -> str:
    if isinstance(part, Drawing):
        return ""
    named = (f"{series.label}: {quote}{series.y}{quote} over {quote}{series.x}{quote}" for series in part.series)
    return " " + "; ".join(named) + "."
