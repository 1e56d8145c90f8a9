"""The benches that move a session between two real processes, as small as they go."""

from pathlib import Path

import pytest

from worldline.clock import SystemClock
from worldline.errors import BadValue
from worldline.lab.bench.frame import Run, Trial, find, measure
from worldline.lab.bench.moving import staged
from worldline.lab.telemetry import Telemetry
from worldline.schema.receipt import Mode

OPTIONS = {"scale": 0.005, "layers": 2, "horizon_frames": 12, "vae": False}


def test_a_session_that_plays_is_handed_over_and_copied_by_the_bench(tmp_path):
    with Telemetry(tmp_path / "record.jsonl", SystemClock()) as telemetry:
        trial = Trial(SystemClock(), tmp_path, 5, lambda _: None, telemetry)
        with staged(trial, OPTIONS) as stage:
            for transport, mode in (("shm", Mode.PRECOPY), ("shm-copy", Mode.FREEZE)):
                moved = stage.move(transport, mode)
                assert 0 < moved.sealed_s <= moved.proven_s <= moved.pause_s
                assert moved.receipt.source_root == moved.receipt.target_root
            stage.blocks(1)


def test_only_shared_memory_is_compared_by_bench_live(tmp_path):
    work = Path(tmp_path / "work")
    work.mkdir()
    with pytest.raises(BadValue, match="--transport shm"):
        measure("live", find("live"), {"transport": "tcp"}, Run(work, tmp_path / "record.jsonl"))
