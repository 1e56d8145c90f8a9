import pytest
import torch

from worldline.testing.tiny import TinyWorld
from worldline.worlds.scratch import ScratchMemory, walk


def test_the_tiny_world_is_tiny():
    live = TinyWorld({}).open(1, ScratchMemory())
    assert sum(leaf.nbytes for _, leaf in walk(live.state()) if isinstance(leaf, torch.Tensor)) < 50_000


def test_it_has_every_oddity():
    live = TinyWorld({}).open(1, ScratchMemory())
    live.step(1)
    state = live.state()
    assert state["features"][0] == "Rep"
    assert isinstance(state["pairs"], tuple)
    assert state["ring_turned"].untyped_storage().data_ptr() == state["ring"].untyped_storage().data_ptr()
    assert not state["ring_turned"].is_contiguous()
    assert state["even"].stride() == (2,)
    assert state["even"].storage_offset() == 1
    assert state["spread"].stride()[0] == 0
    assert state["count"].shape == ()
    assert state["log"].stop == 1
    assert state["cross"]["ready"] is True


def test_it_dies_in_the_block_it_is_told_to():
    live = TinyWorld({"fail_at": 3}).open(1, ScratchMemory())
    live.step(0)
    live.step(0)
    with pytest.raises(RuntimeError, match="block 3"):
        live.step(0)
