"""An instrument whose telemetry has died ends there: it has neither results nor a report."""

from __future__ import annotations

import pytest

from worldline.clock import ManualClock
from worldline.errors import RunVoid
from worldline.lab.experiments.frame import Trial, find
from worldline.lab.instruments.table import INSTRUMENTS
from worldline.lab.load import Load
from worldline.lab.telemetry import SILENCE_S, Telemetry

SMALL = {"world": "load", "option": ("bytes=1.5MB", "layers=2", "vae=false", "horizon_frames=12")}
OPTIONS = {
    "rewrite": SMALL,
    "classify": SMALL | {"blocks": 4, "drawn": 0},
    "inventory": SMALL | {"cut": 1, "blocks": 1},
    "kill": SMALL | {"handle": ("identity",), "cut": 9, "blocks": 1},
    "boundary": SMALL,
    "regime": {},
}


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_an_instrument_whose_telemetry_has_died_is_void(tmp_path, name):
    clock = ManualClock(100.0)
    with Telemetry(tmp_path / "run", clock, lambda: Load(0.5, 0.0, 1.25, 1 << 30), beats=False) as telemetry:
        clock.advance(SILENCE_S + 1)
        with pytest.raises(RunVoid):
            find(name, INSTRUMENTS, "instrument").measure(Trial(telemetry, tmp_path, lambda _: None), **OPTIONS[name])
