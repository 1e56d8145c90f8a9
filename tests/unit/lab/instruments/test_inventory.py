"""What breaks without each part of a state, and that the instrument tells loud from silent."""

from __future__ import annotations

import json

from worldline.cli import main


def lost(capsys, *words: str) -> dict[str, str]:
    assert main(["lab", "inventory", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["whole"]
    return {loss["name"]: loss["outcome"] for loss in found["families"]}


def test_the_reference_world_goes_on_without_none_of_its_families(capsys, tmp_path):
    found = lost(capsys, "--cut", "4", "--blocks", "3", "--out", str(tmp_path))
    assert found["decoder_features"] == found["noise"] == found["last_frame"] == "diverges"
    assert found["kv"] == found["action_kv"] == found["frame"] == "fails loudly"
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "figures" / "loudness.png").exists()


def test_the_load_world_feels_every_byte_that_it_holds(capsys):
    options = ["bytes=1.5MB", "layers=2", "vae=false", "horizon_frames=12"]
    words = [word for option in options for word in ("--option", option)]
    found = lost(capsys, "--world", "load", *words, "--cut", "3", "--blocks", "2")
    assert found["kv_cache1"] == found["generator"] == found["crossattn_cache"] == "diverges"
    assert "not read" not in found.values()
