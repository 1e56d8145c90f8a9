"""A slice of the overload experiment: no promise is late, and admission admits nearly all that could be."""

from __future__ import annotations

import json

import numpy as np
import pytest

from worldline.capacity.admission import most_admitted
from worldline.cli import main
from worldline.control.grants import Accepted, Ask
from worldline.errors import MissingExtra, Unsupported
from worldline.lab.experiments.overload import crowded
from worldline.lab.experiments.overload_fabric import measure_on_fabric
from worldline.lab.experiments.traffic import (
    COST_US,
    WITHIN_US,
    Trace,
    best,
    late_without_admission,
    play,
    trace,
    with_error,
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("overload")
    assert main(["experiment", "overload", "--arrivals", "600", "--seeds", "2", "--out", str(folder)]) == 0
    return json.loads((folder / "data.json").read_text())["results"]["overload"], folder


def test_nothing_that_was_admitted_is_late_at_any_load(found):
    results, _ = found
    assert [row["load"] for row in results["loads"]] == [step / 5 for step in range(11)]
    assert results["late"] == 0
    arms = ("exact", "error", "bursty", "two_sided", "two_sided_error")
    assert all(row[arm]["late"] == 0 for row in results["loads"] for arm in arms)


def test_nearly_all_is_admitted_that_could_be_and_without_admission_many_are_late(found):
    for row in found[0]["loads"]:
        assert row["efficiency"] >= 0.99
        assert row["two_sided"]["efficiency"] >= 0.80
        assert row["load"] < 1 or row["without_admission_late"] > row["exact"]["offered"] / 10


def test_the_report_has_the_figures_of_the_run(found):
    results, folder = found
    assert f"{results['late']} (`overload/late`) moves were late" in (folder / "report.md").read_text()
    assert (folder / "figures" / "admitted.svg").exists()


def test_a_move_that_lies_about_its_size_is_late_itself_and_a_margin_keeps_the_error_out():
    made = trace(np.random.default_rng(3), 1.2, 400, 1)
    liars = Trace(made.arrivals_us, made.sources, made.targets, [1.5] * made.offered)
    assert play(liars, 1, 0.0).late > 0
    wrong = with_error(made, np.random.default_rng(4), 0.1)
    assert play(wrong, 1, 0.0).late > 0
    assert play(wrong, 1, 0.1).late == 0


def test_the_best_of_one_receiver_is_what_a_search_over_all_schedules_finds():
    made = trace(np.random.default_rng(5), 1.5, 300, 1)
    assert best(made, 1) == most_admitted(made.arrivals_us, COST_US, WITHIN_US)


def test_without_admission_a_load_over_one_makes_nearly_everyone_late():
    for nodes in (1, 8):
        made = trace(np.random.default_rng(6), 1.6, 2000, nodes)
        assert late_without_admission(made, nodes) > 0.5 * made.offered


def test_bursts_have_the_variance_of_the_public_trace():
    made = trace(np.random.default_rng(7), 1.0, 60_000, 1, bursty=True)
    counts = np.bincount(np.asarray(made.arrivals_us) // 1_000_000)[:-1]
    assert 10 < counts.var() / counts.mean() < 16


def test_on_real_bytes_whoever_is_late_flowed_slower_than_reserved():
    try:
        rows = measure_on_fabric(8)
    except (Unsupported, MissingExtra) as error:
        pytest.skip(error.sentence)
    assert [row.load for row in rows] == [0.8, 1.0, 1.4]
    for row in rows:
        assert 0 < row.admitted <= row.offered == 8
        assert row.late == row.explained
        assert row.dilation == 500


def test_a_crowded_calendar_holds_what_it_says_and_still_decides():
    calendar = crowded(200)
    calendar.check()
    assert len(calendar) == 200
    assert isinstance(calendar.ask(Ask("m", "1", "2", 9_000_000, 10_000_000), 0), Accepted)


@pytest.mark.parametrize(
    "words",
    [
        "overload --fabric --fabric-arrivals 0",
        "composed --rate 0bit",
        "composed --period-ms nan",
        "composed --rate 1Gbit --period-ms -1",
        "composed --rate 1Gbit --night -1",
        "composed --slack 0.5",
        "composed --moves -1",
    ],
)
def test_a_run_that_could_show_nothing_is_not_begun(words):
    assert main(["experiment", *words.split()]) == 2
