"""No input makes a parser raise anything but a refusal: under Hypothesis here, under a guided fuzzer by `make fuzz`."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldline.schema.plan import Qualification
from worldline.testing.fuzz import BODIES, RAW, SEALED, TARGETS
from worldline.testing.fuzz_seeds import IMAGE_SEEDS, RECEIPT_SEEDS, seal_image
from worldline.verify.reader import verify_image, verify_receipt

FUZZ = Path(__file__).parents[3] / "scripts" / "fuzz.py"


@st.composite
def mutants(draw, seeds):
    """A seed with a few stretches replaced, repeated or left out."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        start, stop = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        stop = min(stop, start + 24)
        piece = draw(
            st.one_of(st.binary(max_size=12), st.sampled_from([data[start:stop] * 2, b"99999999999999999999", b"null"]))
        )
        data = data[:start] + piece + data[stop:]
    return data


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_no_input_gets_past_a_parser_unrefused(name):
    target = TARGETS[name]

    @settings(max_examples=150, deadline=None)
    @given(mutants(target.seeds))
    def run(data):
        target.run(data)

    for seed in target.seeds:
        target.run(seed)
    run()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("websocket", b"WL\1\1" + bytes(46) + b"\xff" + bytes(13)),
        ("http", bytes([BODIES.index(Qualification)]) + b'{"id":"q","source_plan":"p","target_plan":"q","world":"w",'
         b'"blocks":99999999999999999999,"psnr_db_mean":1,"psnr_db_min":1,"seed":3}'),
    ],
    ids=["a block of a host that is no name", "a number that no process can be told"],
)  # fmt: skip
def test_what_was_found_once_stays_mended(name, data):
    TARGETS[name].run(data)


def test_the_seeds_are_accepted(tmp_path):
    (tmp_path / "i").write_bytes(seal_image(IMAGE_SEEDS[0]))
    (tmp_path / "r").write_bytes(RECEIPT_SEEDS[0])
    assert verify_image(tmp_path / "i").session == verify_receipt(tmp_path / "r").session == "walk-1"
    assert {seed[:1] for seed in TARGETS["image"].seeds} == {RAW, SEALED}


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no build for this Python, or is not installed")
def test_a_few_seconds_of_coverage_guided_fuzzing_find_nothing(tmp_path):
    command = [sys.executable, str(FUZZ), "--seconds", "4", "--findings", str(tmp_path), "wire", "image"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1].startswith("no findings in wire, image")
