"""A report's numbers are those of its data, and a void run has no report."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from worldline.clock import ManualClock
from worldline.errors import BadValue, Internal, RunVoid
from worldline.lab.experiments.frame import Experiment, conduct
from worldline.lab.load import Load
from worldline.lab.report import (
    Column,
    Data,
    Drawing,
    Line,
    Listing,
    Plot,
    Report,
    Run,
    Section,
    Series,
    Standing,
    Table,
    Words,
)
from worldline.lab.report_figures import draw_figures
from worldline.lab.report_folder import write_report
from worldline.lab.telemetry import Telemetry


@dataclass(frozen=True)
class Point:
    load: float
    late: int


@dataclass(frozen=True)
class Results:
    points: list[Point]
    pause_ms: float
    formula_ms: float
    never: float = float("inf")


RESULTS = Results([Point(0.5, 0), Point(1.0, 3)], 12.25, 11.5)

REPORT = Report(
    "trial",
    "A trial of <this>",
    (
        Section(
            "Pauses",
            (
                Words("It paused for {trial/pause_ms:.1f} ms & not {trial/never}."),
                Table("In one row", (Line("pause", "trial/pause_ms", "trial/formula_ms", "ms", ".1f"),)),
                Listing(
                    "By load",
                    "trial/points",
                    (Column("load", "load", Standing.MEASURED), Column("late", "late", Standing.SIMULATED)),
                ),
                Plot(
                    "late",
                    "Late over load",
                    "load",
                    "late",
                    (
                        Series("with", "trial/points/*/load", "trial/points/*/late", Standing.MEASURED),
                        Series("without", "trial/points/*/load", "trial/points/*/late", Standing.PROJECTED),
                    ),
                ),
                Drawing("free", "Anything", lambda axes, look_up: axes.bar(["pause"], [look_up("trial/pause_ms")])),
            ),
        ),
    ),
)


def run_of(report):
    return Experiment(lambda trial: RESULTS, lambda results: report, str)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    conduct("trial", run_of(REPORT), {}, folder)
    return folder


def test_a_number_in_the_text_has_its_key_and_the_value_of_the_data(written):
    data = json.loads((written / "data.json").read_text())
    assert data["results"]["trial"]["pause_ms"] == 12.25
    assert "It paused for 12.2 (`trial/pause_ms`) ms" in (written / "report.md").read_text()
    page = (written / "report.html").read_text()
    assert '<data value="12.25" title="trial/pause_ms">12.2</data>' in page
    for key in re.findall(r'title="([^"]+)"', page):
        Data({}, data["results"]).look_up(key)


def test_what_is_demonstrated_and_what_is_projected_stand_in_separate_columns(written):
    text = (written / "report.md").read_text()
    assert "|  | demonstrated | projected | unit |" in text
    assert "| pause | 12.2 (`trial/pause_ms`) | 11.5 (`trial/formula_ms`) | ms |" in text
    assert "load (demonstrated) `trial/points/N/load` | late (simulated) `trial/points/N/late`" in text


def test_figures_name_what_was_measured_and_what_was_not(written):
    drawn = (written / "figures" / "late.svg").read_text()
    assert "with (measured)" in drawn
    assert "without (projected)" in drawn
    assert (written / "figures" / "free.png").stat().st_size > 1000


def test_the_record_of_the_run_is_in_the_folder(written):
    data = json.loads((written / "data.json").read_text())
    assert data["runs"]["trial"]["void"] is None
    assert (written / data["runs"]["trial"]["telemetry"]).exists()


def test_what_is_stressed_in_markdown_is_stressed_in_html(written):
    assert "*Demonstrated* was measured" in (written / "report.md").read_text()
    assert "<em>Demonstrated</em> was measured" in (written / "report.html").read_text()


def test_a_word_that_an_author_stresses_is_stressed_in_html_and_nothing_else_is_markup(tmp_path):
    words = Words("One *calibration* <b>gives</b> lambda* of 2 * 3 * 4.")
    conduct("trial", run_of(Report("trial", "", (Section("", (words,)),))), {}, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "One <em>calibration</em> &lt;b&gt;gives&lt;/b&gt; lambda* of 2 * 3 * 4." in page


def test_a_figure_has_its_title(written):
    for name, title in (("late", "Late over load"), ("free", "Anything")):
        assert title in (written / "figures" / f"{name}.svg").read_text()


@pytest.mark.parametrize(("loads", "between"), [((1, 2, 3), False), ((0.5, 2, 3), True)])
def test_an_axis_of_what_is_counted_has_no_ticks_between(tmp_path, loads, between):
    series = (Series("it", "trial/points/*/load", "trial/points/*/late", Standing.MEASURED),)
    points = [{"load": load, "late": 10} for load in loads]
    draw_figures(tmp_path, [Plot("rounds", "", "round", "ms", series)], Data({}, {"trial": {"points": points}}))
    axis = (tmp_path / "rounds.svg").read_text().split('id="matplotlib.axis_2"')[0]
    assert ("<!-- 1.5 -->" in axis) is between


def test_words_of_an_author_are_no_markup(written):
    page = (written / "report.html").read_text()
    assert "A trial of &lt;this&gt;" in page
    assert "ms &amp; not" in page


def test_what_is_not_finite_is_none_and_not_a_number(written):
    assert "not none (`trial/never`)" in (written / "report.md").read_text()


def test_a_void_run_has_no_report(tmp_path):
    clock = ManualClock(0.0)
    with Telemetry(tmp_path / "run", clock, lambda: Load(0.0, 0.0, 0.0, 1), beats=False):
        clock.advance(60.0)
    with pytest.raises(RunVoid, match="silent"):
        write_report(tmp_path / "out", REPORT, {"trial": Run(tmp_path / "run", RESULTS)})
    assert not (tmp_path / "out").exists()


def test_a_run_that_was_not_ended_has_no_report(tmp_path):
    with (
        Telemetry(tmp_path / "run", ManualClock(0.0), lambda: Load(0.0, 0.0, 0.0, 1), beats=False),
        pytest.raises(RunVoid, match="never ended"),
    ):
        write_report(tmp_path / "out", REPORT, {"trial": Run(tmp_path / "run", RESULTS)})


@pytest.mark.parametrize("key", ["trial/nothing", "trial/points/2/late", "other/pause_ms", "trial/points"])
def test_a_key_that_leads_nowhere_is_a_fault_and_leaves_nothing(tmp_path, key):
    report = Report("trial", "", (Section("", (Words(f"{{{key}}}"),)),))
    with pytest.raises(Internal):
        conduct("trial", run_of(report), {}, tmp_path)
    assert not (tmp_path / "report.md").exists()


def failing(error):
    def measure(trial):
        (trial.folder / "half").write_text("of something")
        raise error

    return Experiment(measure, lambda results: REPORT, str)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RunVoid("nobody watched")], ids=["interrupted", "void"])
def test_a_run_that_does_not_end_well_leaves_the_report_before_whole_and_nothing_else(tmp_path, error):
    conduct("trial", run_of(REPORT), {}, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(type(error)):
        conduct("trial", failing(error), {}, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_later_report_takes_the_place_of_the_one_before_as_a_whole(tmp_path):
    conduct("trial", run_of(REPORT), {}, tmp_path)
    plain = Report("trial", "Later", (Section("", (Words("{trial/pause_ms}"),)),))
    conduct("trial", run_of(plain), {}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.json", "report.html", "report.md", "trial.jsonl"]
    assert "Later" in (tmp_path / "report.md").read_text()


def test_two_runs_at_once_do_not_report_into_one_folder(tmp_path):
    def meanwhile(trial):
        with pytest.raises(BadValue, match="another run is to report into"):
            conduct("other", run_of(REPORT), {}, tmp_path)
        return RESULTS

    conduct("trial", Experiment(meanwhile, lambda results: REPORT, str), {}, tmp_path)
    assert (tmp_path / "report.html").exists()


def test_a_folder_that_can_not_be_written_is_refused_before_anything_is_run(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(BadValue, match="can't be written"):
            conduct("trial", failing(AssertionError()), {}, place)


def test_a_report_of_a_run_that_did_not_show_what_it_is_to_show_begins_with_that(tmp_path, written):
    conduct(
        "trial", Experiment(lambda trial: RESULTS, lambda results: REPORT, str, lambda results: False), {}, tmp_path
    )
    for page in ("report.md", "report.html"):
        before, not_shown, _ = (tmp_path / page).read_text().partition("Not shown: ")
        assert not_shown
        assert "Every number" not in before
        assert "Not shown" not in (written / page).read_text()


@pytest.mark.parametrize(("least", "most", "labels"), [(0.1, 1000.0, ("0.1", "10", "1000")), (2.0, 6.0, ("2", "6"))])
def test_the_labels_of_a_logarithmic_axis_are_plain_numbers(tmp_path, least, most, labels):
    series = (Series("it", "trial/points/*/load", "trial/points/*/late", Standing.MEASURED),)
    plot = Plot("log", "", "think time, s", "sessions", series, log_x=True, log_y=True)
    points = [{"load": least, "late": least}, {"load": most, "late": most}]
    draw_figures(tmp_path, [plot], Data({}, {"trial": {"points": points}}))
    drawn = (tmp_path / "log.svg").read_text()
    assert "10^{" not in drawn
    for label in labels:
        assert f"{{{label}}}" in drawn
