"""The table of constants that transfer: `python -m worldline.lab.instruments.constants docs`.

A row for each docs/instruments/rewrite-NAME.json, as `lab rewrite --json` printed it, with classify-NAME.json of `lab
classify` and boundary-NAME.json of `lab boundary`. Written between the marks in docs/instruments.md; a row without one
of its three files is an error. No figure in it is typed by hand.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from worldline.capacity.gate import Demand, Way, needed_raw_bytes_per_s
from worldline.lab.instruments.classify import Part, engine_class
from worldline.lab.instruments.drift import LAST_BLOCKS
from worldline.lab.psnr import EQUAL_DB
from worldline.units import format_bytes

HORIZON_S = 0.4
BEGIN, END = "<!-- constants: begin -->", "<!-- constants: end -->"
HEAD = (
    "| engine, as run | class | pages | elements | new | S | blocks/s | D | gate, 400 ms | other plans | by itself |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)


def table(folder: Path) -> str:
    """A row for each engine; those of one class stand together."""
    rows = [_row(file, folder) for file in sorted(folder.glob("rewrite-*.json"))]
    return "\n".join([*HEAD, *(row for _, row in sorted(rows))])


def _row(file: Path, folder: Path) -> tuple[str, str]:
    name = file.stem.removeprefix("rewrite-")
    found, told, crossed = (_read(folder / f"{kind}-{name}.json") for kind in ("rewrite", "classify", "boundary"))
    main, dirty = found["main"], found["main"]["dirty_bytes_per_s"]
    gate = needed_raw_bytes_per_s(Way.PRECOPY, Demand(main["nbytes"], dirty, HORIZON_S, HORIZON_S))
    cells = (
        name,
        engine_class([Part(**each) for each in told["main"]]),
        f"{main['by_pages']:.3f}",
        f"{main['by_elements']:.3f}",
        f"{main['new']:.3f}",
        format_bytes(main["nbytes"]),
        f"{found['blocks_per_s']:.3g}",
        f"{dirty / 1e6:.3g} MB/s",
        f"{gate / 1e6:.3g} MB/s",
        _on_other_plans(crossed),
        _by_itself(crossed["drift"]),
    )
    return cells[1], "| " + " | ".join(cells) + " |"


def _read(file: Path) -> Any:
    return json.loads(file.read_text())


def _on_other_plans(crossed: dict[str, Any]) -> str:
    """The worst of those plans that were another."""
    others = [each for each in crossed["crossings"] if each["facts_differ"]]
    if crossed["drift"] is None:
        firsts = [each["first_frame"] for each in others if each["first_frame"]]
        said = f"other words from block {min(firsts)}" if firsts else "the same words, other bytes"
        return f"{said}, {crossed['blocks']} blocks"
    worst = min(others, key=lambda each: float(each["psnr_db_worst"]))
    if worst["psnr_db_worst"] < EQUAL_DB:
        return f"{worst['psnr_db_worst']:.1f} dB ({worst['name']}), {crossed['blocks']} blocks"
    moved = any(each["first_block"] for each in others)
    return f"equal pictures{', other bytes' if moved else ' and bytes'}, {crossed['blocks']} blocks"


def _by_itself(drift: dict[str, list[float]] | None) -> str:
    """From the first block to the mean of the last ones."""
    if drift is None:
        return "words"
    return ", ".join(f"{name} x{mean(drift[name][-LAST_BLOCKS:]):.2f}" for name in ("contrast", "sharpness"))


def main(docs: Path) -> None:
    """Writes the table into `docs`/instruments.md."""
    page = docs / "instruments.md"
    made = f"{BEGIN}\n{table(docs / 'instruments')}\n{END}"
    page.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: made, page.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
