"""bench digest, small: what it reports, not how fast it is."""

from __future__ import annotations

from pathlib import Path

from worldline.kernel import backend
from worldline.lab.bench.digest import digest
from worldline.lab.bench.frame import Run, measure


def test_the_bench_reports_the_slower_leaf_size_and_the_kernel(tmp_path: Path) -> None:
    result = measure("digest", digest, {"bytes": "3MB"}, Run(tmp_path, tmp_path / "run"))
    assert len(result.samples) == 4
    assert result.ratio == min(row["of a pure read"] for row in result.rows)
    assert result.notes[0].startswith(f"kernel {backend().name}")
