"""`worldline prove` and `up --check`: real processes, and a proof that can fail."""

import json

import pytest

from worldline.cli import main
from worldline.lab.telemetry import read_run
from worldline.verify.reader import verify_receipt

TINY = "worldline.testing.tiny:TinyWorld"


def prove(capsys, *argv, code):
    capsys.readouterr()
    assert main(["prove", "--json", *argv]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("mode", ["precopy", "freeze"])
def test_a_moved_session_equals_its_twin(capsys, tmp_path, transport, mode):
    proof = prove(
        capsys,
        *("--world", TINY, "--moves", "3", "--blocks", "24", "--transport", transport, "--mode", mode),
        *("--keep", str(tmp_path)),
        code=0,
    )
    assert (proof["identical"], proof["differences"], proof["source_exited"]) == (True, [], True)
    assert proof["moves"] == len(proof["receipts"]) == len(proof["pause_ms"]) == len(proof["gap_ms"]) == 3
    assert proof["blocks"] >= 24
    assert (proof["telemetry"]["void"], proof["telemetry"]["samples"] > 0) == (None, True)
    assert read_run(tmp_path / "telemetry.jsonl").fingerprint == proof["telemetry"]["fingerprint"]
    for receipt in proof["receipts"]:
        assert verify_receipt(tmp_path / "proof" / f"{receipt['id']}.json").id == receipt["id"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_flipped_bit_of_live_state_is_caught(capsys, seed):
    proof = prove(
        capsys,
        *("--world", TINY, "--moves", "1", "--blocks", "6", "--transport", "shm", "--seed", str(seed), "--sabotage"),
        code=1,
    )
    assert (proof["identical"], proof["sabotage"]["caught"]) == (False, True)
    assert proof["sabotage"]["difference"] == proof["differences"][-1]


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_matrix_game_2s_cache_shapes_move_exactly(capsys, transport):
    size = ("--world", "load", "--bytes", "16MB")
    proof = prove(capsys, *size, "--moves", "2", "--blocks", "10", "--transport", transport, code=0)
    assert proof["identical"]
    assert proof["state_bytes"] == pytest.approx(16e6, rel=0.1)


@pytest.mark.parametrize(
    ("world", "transport"),  # no transport knows whose bytes it carries
    [(("lm", "-o", "weights=random", "-o", "cache=static"), "tcp"), (("diffusers",), "shm")],
    ids=["lm-tcp", "diffusers-shm"],
)
def test_an_engine_of_a_package_equals_its_twin_after_six_moves(capsys, world, transport):
    proof = prove(capsys, "--world", *world, "--moves", "6", "--blocks", "9", "--transport", transport, code=0)
    assert (proof["identical"], proof["differences"]) == (True, [])
    assert proof["moves"] == proof["receipts_verified"] == 6


def test_a_fleet_checks_itself(capsys):
    assert main(["up", "--check", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert any("refused" in step for step in steps)
    assert steps[-1] == "closed"
