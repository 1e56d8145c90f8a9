"""Sessions of engines whose code is a checkout move between real processes, and come back out of an image."""

import json

import pytest

import worldline
from worldline.cli import main
from worldline.verify.reader import verify_image
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


@pytest.mark.timeout(600)
def test_matrix_game_2_goes_on_the_same_out_of_a_parked_image(needs_checkout):
    needs_checkout("matrix-game-2")
    with worldline.local_fleet(hosts=2) as fleet:
        moved, twin = (fleet.open("matrix-game-2", seed=5, host="b", options={"horizon_frames": 60}) for _ in range(2))
        shown = [block.digest for block in moved.step("forward", "look left", "back")]
        moved.park()
        moved.resume("a")
        shown += [block.digest for block in moved.step("left", "stay", "forward", "look up")]
        actions = ("forward", "look left", "back", "left", "stay", "forward", "look up")
        assert shown == [block.digest for block in twin.step(*actions)]
        images = fleet.fleet.run_dir / "images"
        one, two = (verify_image(images / session.park().image) for session in (moved, twin))
    assert (one.block, one.root) == (two.block, two.root)
    assert one.block == 7
