"""What the stall experiment says of its figures. The figures are in tests/scenarios/test_experiments.py."""

import msgspec
import pytest

from worldline.lab.experiments.stall import STALL, AtEngine, Stall, bars_of
from worldline.lab.report import Data
from worldline.lab.report_pages import markdown_page


def found(lanes, inline):
    at = AtEngine(2.0, inline, lanes, 2 / 3, 1.0)
    return Stall(lanes, inline, 0.99, 0.99, 25e6, [at], bars_of(lanes, inline))


@pytest.mark.parametrize(
    ("lanes", "inline", "lanes_met", "inline_met"),
    [(0.93, 0.85, True, True), (0.92, 0.85, False, True), (0.93, 0.86, True, False)],
)
def test_bounds_stand_beside_the_figures_with_whether_they_are_met(lanes, inline, lanes_met, inline_met):
    results = found(lanes, inline)
    said = STALL.text(results)
    assert f"lanes {lanes:.3f}, at least 0.93: {'met' if lanes_met else 'not met'}" in said
    assert f"inline {inline:.3f}, at most 0.85: {'met' if inline_met else 'not met'}" in said
    page = markdown_page(STALL.report(results), Data({}, {"stall": msgspec.to_builtins(results)}))
    assert f"at least 0.93 (`stall/bars/lanes_min`); met: {'yes' if lanes_met else 'no'} " in page
    assert f"at most 0.85 (`stall/bars/inline_max`); met: {'yes' if inline_met else 'no'} " in page
    assert STALL.good(results) is (lanes_met and inline_met)
