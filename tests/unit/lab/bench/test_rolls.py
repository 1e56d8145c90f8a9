"""The bench of rolls at a toy size: its residuals are carried out and are exact, and half of the dirty chunks."""

from worldline.lab.bench.frame import Run, measure
from worldline.lab.bench.rolls import rolls


def test_the_cache_familys_residual_is_half_its_dirty_chunks(tmp_path):
    run = Run(tmp_path, tmp_path / "telemetry.jsonl")
    result = measure("rolls", rolls, {"scale": 0.02}, run)
    assert result.void is None
    assert result.ratio <= 0.51
    share = {row["residual"]: row["of the cache family"] for row in result.rows}
    assert 0.75 < share["dirty chunks"] < 0.80
    assert share["roll-aware"] <= 0.40


def test_two_blocks_behind_a_window_of_two_everything_is_new(tmp_path):
    run = Run(tmp_path, tmp_path / "telemetry.jsonl")
    result = measure("rolls", rolls, {"scale": 0.02, "blocks_behind": 2}, run)
    assert 0.99 < result.ratio < 1.01
