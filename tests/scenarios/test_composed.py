"""A slice of the composed experiment: two providers' hosts in namespaces, real sessions, everything at once."""

import json

import pytest

from worldline.cli import main
from worldline.errors import MissingExtra, Unsupported
from worldline.lab.fabric import Fabric


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    try:
        Fabric(hosts=1, rate="1Gbit").close()
    except (Unsupported, MissingExtra) as error:
        pytest.skip(error.sentence)
    folder = tmp_path_factory.mktemp("composed")
    words = "--moves 2 --seconds 90 --night 15 --sessions 3 --hosts-each 2 --state 66MB --slack 10"
    fabric = "--rate 400Mbit --period-ms 500"
    assert main(["experiment", "composed", *words.split(), *fabric.split(), "--out", str(folder)]) == 0
    return json.loads((folder / "data.json").read_text())["results"]["composed"], folder


def test_sessions_that_generate_move_across_providers_and_stay_identical_to_ones_that_never_moved(found):
    results, _ = found
    assert results["moves"] >= 2
    assert results["identical_all"] == results["moves_all"] >= results["moves"]
    assert (results["lost"], results["late"], results["differences"]) == (0, 0, [])
    assert all(each["blocks_during"] >= 1 and each["across"] for each in results["listed"] if each["counts"])


def test_a_host_is_emptied_and_the_report_keeps_what_was_shown_from_what_is_projected(found):
    results, folder = found
    assert results["hosts_emptied"] >= 1
    assert results["host_s_given_back"] > 0
    text = (folder / "report.md").read_text()
    assert "demonstrated" in text
    assert f"{results['dilation']:.0f} (`composed/dilation`) times as long" in text
