"""Slices of the experiments that are computed or simulated."""

import json
from random import Random

import pytest

from worldline.cli import main
from worldline.lab.experiments.contention import fit
from worldline.lab.experiments.players import bursts
from worldline.lab.experiments.prices import fan_in_of
from worldline.lab.experiments.reclaim import lost_share


def results(folder, name, *words):
    assert main(["experiment", name, *words, "--out", str(folder)]) == 0
    return json.loads((folder / "data.json").read_text())["results"][name]


def test_one_calibration_gives_51_24_and_0_and_the_sweep_around_it_does_not(tmp_path):
    found = results(tmp_path, "reclaim", "--cycles", "2000")
    one = found["calibration"]
    assert [round(100 * one[key]) for key in ("corner", "mixed", "playing")] == [51, 24, 0]
    others = [each for each in found["sweep"] if each["setting"].startswith("duty")]
    assert all(abs(each["corner"] - 0.51) > 0.05 for each in others)
    assert "*calibration*" in (tmp_path / "report.md").read_text()


def test_who_returns_is_lost_as_engset_says_whatever_the_law_of_the_times():
    for law in ("exponential", "lognormal"):
        assert lost_share(Random(law), law, 59, (60.0, 90.0), 200_000) == pytest.approx(0.00795, abs=0.003)


def test_bursts_come_as_often_as_said_and_vary_as_the_public_trace_does():
    chance, now, times = Random(1), 0.0, []
    for gap_s, size in bursts(chance, 1.0):
        now += gap_s
        times += [now] * size
        if now > 40_000:
            break
    counts = [0] * 401
    for at in times:
        counts[int(min(at, 40_000) // 100)] += 1
    mean = sum(counts[:400]) / 400
    variance = sum((count - mean) ** 2 for count in counts[:400]) / 399
    assert mean == pytest.approx(100, rel=0.1)
    assert 9 < variance / mean < 18


def test_the_intercept_is_the_line_through_the_times():
    assert fit([1, 2, 3], [3.5, 5.5, 7.5]) == pytest.approx((2.0, 1.5))


def test_the_papers_lane_takes_fewer_moves_than_its_fluid_bound():
    for row in (fan_in_of(threads, 9.33e9) for threads in (1, 2, 4)):
        assert row.live <= row.frozen <= row.fluid
    assert (fan_in_of(1, 9.33e9).frozen, round(fan_in_of(1, 9.33e9).fluid, 2)) == (1, 2.23)
