"""The table of constants that transfer: `python -m worldline.lab.instruments.constants docs`.

Reads docs/instruments/rewrite-*.json, as `lab rewrite --json` printed them, and boundary-*.json of `lab boundary`, and
writes the table between the marks in docs/instruments.md. No figure in it is typed by hand.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from worldline.capacity.gate import Demand, Way, needed_raw_bytes_per_s
from worldline.lab.psnr import EQUAL_DB
from worldline.units import format_bytes

HORIZON_S = 0.4
BEGIN, END = "<!-- constants: begin -->", "<!-- constants: end -->"
HEAD = (
    "| engine, as run | S | rewritten, pages | by elements | new | blocks/s here | D here | gate at 400 ms | drift |",
    "|---|---|---|---|---|---|---|---|---|",
)


def table(folder: Path) -> str:
    """A row a file of `lab rewrite`."""
    return "\n".join([*HEAD, *(_row(file, folder) for file in sorted(folder.glob("rewrite-*.json")))])


def _row(file: Path, folder: Path) -> str:
    found = json.loads(file.read_text())
    main, name = found["main"], file.stem.removeprefix("rewrite-")
    dirty = main["dirty_bytes_per_s"]
    gate = needed_raw_bytes_per_s(Way.PRECOPY, Demand(main["nbytes"], dirty, HORIZON_S, HORIZON_S))
    cells = (
        name,
        format_bytes(main["nbytes"]),
        f"{main['by_pages']:.3f}",
        f"{main['by_elements']:.3f}",
        f"{main['new']:.3f}",
        f"{found['blocks_per_s']:.3g}",
        f"{dirty / 1e6:.3g} MB/s",
        f"{gate / 1e6:.3g} MB/s",
        _drift(folder / f"boundary-{name}.json"),
    )
    return "| " + " | ".join(cells) + " |"


def _drift(file: Path) -> str:
    """The worst crossing to another plan, of those that were another."""
    if not file.exists():
        return "not measured"
    crossings: list[dict[str, Any]] = json.loads(file.read_text())["crossings"]
    worst = min((each for each in crossings if each["facts_differ"]), key=lambda each: float(each["psnr_db_worst"]))
    said = "none" if worst["psnr_db_worst"] >= EQUAL_DB else f"{worst['psnr_db_worst']:.1f} dB"
    return f"{said} ({worst['name']}, {len(worst['psnr_db'])} blocks)"


def main(docs: Path) -> None:
    """Writes the table into `docs`/instruments.md."""
    page = docs / "instruments.md"
    made = f"{BEGIN}\n{table(docs / 'instruments')}\n{END}"
    page.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: made, page.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
