"""The gate over measured engines and over what is only projected, told apart."""

from __future__ import annotations

import json

import pytest

from worldline.cli import main


def test_the_papers_anchor_is_measured_and_its_future_projected(capsys, tmp_path):
    row = {"world": "one", "main": {"nbytes": 10**9, "by_pages": 0.5, "dirty_bytes_per_s": 10**8}}
    (tmp_path / "one.json").write_text(json.dumps(row))
    words = ["--measured", str(tmp_path / "one.json"), "--out", str(tmp_path / "out"), "--json"]
    assert main(["lab", "regime", *words]) == 0
    points = {point["name"]: point for point in json.loads(capsys.readouterr().out)["points"]}
    assert points["one"]["standing"] == points["paper: Matrix-Game-2"]["standing"] == "measured"
    assert points["one at 10 Hz, 800 Gb/s"]["standing"] == "projected"
    assert points["one"]["gate_bytes_per_s"] == pytest.approx(10**9 / 0.4 + 10**8)
    assert points["one at 10 Hz, 800 Gb/s"]["dirty_bytes_per_s"] == pytest.approx(5 * 10**9)
    assert (tmp_path / "out" / "figures" / "regime.png").exists()


def test_a_file_that_no_instrument_wrote_is_refused(tmp_path):
    (tmp_path / "bad.json").write_text("[]")
    assert main(["lab", "regime", "--measured", str(tmp_path / "bad.json")]) == 2
