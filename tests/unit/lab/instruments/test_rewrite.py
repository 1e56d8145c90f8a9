"""What a block changes: counts agree with the write rules, and the rules with the real engine's sizes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from worldline.cli import main
from worldline.lab.instruments.changes import change
from worldline.lab.instruments.looks import Piece
from worldline.schema.inventory import Free, Kind, Rule
from worldline.worlds.load_shape import Family, Shape, new_bytes, rewritten_fraction, state_bytes

LOAD = ["--world", "load", "--option", "bytes=3MB", "--option", "layers=2", "--option", "vae=false"]


def piece(rows: np.ndarray, address: int = 0) -> Piece:
    octets = np.frombuffer(np.ascontiguousarray(rows).tobytes(), np.uint8)
    return Piece("kv/0/k", Rule("*", Kind.CACHE, Free()), octets, rows.shape, rows.itemsize, str(rows.dtype), address)


def new_share(entries: list) -> float:
    return sum(new_bytes(entry.write, entry.shape, entry.nbytes) for entry in entries) / state_bytes(entries)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("rewrite")
    assert main(["lab", "rewrite", *LOAD, "--blocks", "2", "--out", str(out)]) == 0
    return out, json.loads((out / "data.json").read_text())["results"]["rewrite"]


def test_matrix_game_2_at_its_real_size_rewrites_0_777_of_its_caches_and_0_389_is_new():
    cache = [entry for entry in Shape().entries() if entry.family is Family.CACHE]
    assert rewritten_fraction(cache) == pytest.approx(0.7772, abs=5e-5)
    assert new_share(cache) == pytest.approx(0.3886, abs=5e-5)


def test_load_is_measured_to_rewrite_what_the_same_formulas_say(measured):
    main_share = measured[1]["main"]
    cache = [entry for entry in Shape(20, 2, 150, vae=False).entries() if entry.family is Family.CACHE]
    assert main_share["by_rows"] == pytest.approx(rewritten_fraction(cache), abs=0.01)
    assert main_share["by_rows"] == pytest.approx(main_share["declared"], abs=1e-12)
    assert main_share["new"] == pytest.approx(main_share["declared_new"], abs=1e-12)
    assert main_share["by_bytes"] < main_share["by_elements"] <= main_share["by_rows"] <= main_share["by_pages"]


def test_the_report_has_a_figure_and_every_family(measured):
    out, found = measured
    assert {family["name"] for family in found["families"]} >= {"kv_cache1", "kv_cache_mouse", "noise", "generator"}
    assert (out / "figures" / "rewritten.png").stat().st_size > 1000
    assert "kv_cache_mouse" in (out / "report.md").read_text()


def test_rows_that_moved_are_changed_and_not_new():
    rows = np.arange(6 * 8, dtype=np.int64).reshape(6, 8)
    after = np.concatenate([rows[2:], rows[:2] + 1000])
    amount = change(piece(rows), piece(after)).amount
    assert (amount.row_bytes, amount.new_bytes, amount.nbytes) == (6 * 64, 2 * 64, 6 * 64)


def test_an_entry_that_grew_is_new_where_it_grew():
    rows = np.arange(6 * 8, dtype=np.int64).reshape(6, 8)
    found = change(piece(rows[:4], 1), piece(rows, 2))
    assert found.rebound
    assert (found.amount.row_bytes, found.amount.new_bytes, found.amount.element_bytes) == (128, 128, 128)


def test_one_bit_is_one_byte_one_element_one_page_and_one_row_of_the_narrowest_kind():
    rows = np.zeros((4, 1024), np.float64)
    after = rows.copy()
    after.view(np.uint8)[2, 17] ^= 1
    amount = change(piece(rows), piece(after)).amount
    assert (amount.changed_bytes, amount.element_bytes, amount.row_bytes) == (1, 8, 4 * 8)
    assert amount.page_bytes == 4096


def test_a_run_without_a_block_to_measure_is_refused():
    assert main(["lab", "rewrite", *LOAD, "--blocks", "0"]) == 2
