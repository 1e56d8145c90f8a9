"""Sessions of engines whose code is a checkout move between real processes, and come back out of an image."""

import json

import pytest

from worldline.cli import main
from worldline.worlds.checkouts import PLACES


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("world", sorted(PLACES))
def test_an_engines_session_equals_its_twin_after_six_moves(capsys, needs_checkout, world, transport):
    needs_checkout(world)
    capsys.readouterr()
    code = main(["prove", "--json", "--world", world, "--moves", "6", "--blocks", "24", "--transport", transport])
    proof = json.loads(capsys.readouterr().out)
    assert (code, proof["identical"], proof["differences"]) == (0, True, [])
    assert proof["moves"] == proof["receipts_verified"] == 6
