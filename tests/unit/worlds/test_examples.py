"""The examples of docs/examples are what docs/add-an-engine.md says of them."""

import json
from pathlib import Path

import pytest

from worldline.cli import main

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(autouse=True)
def _examples_are_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_the_example_world_conforms(capsys):
    assert main(["worlds", "check", "drift_world:DriftWorld", "--blocks", "9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["conforms"]


def test_the_example_world_takes_sixty_lines():
    lines = (EXAMPLES / "drift_world.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 60
