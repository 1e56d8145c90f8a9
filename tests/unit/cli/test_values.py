"""Sessions and hosts, as the command line tells them."""

import pytest
from msgspec.structs import replace

from worldline.cli.values import hosts_text, session_text, sessions_text
from worldline.runtime.messages import Host, HostFacts, Session
from worldline.schema.contract import Contract
from worldline.worlds.protocol import Readout

ROW = Session(
    id="s-1",
    world="reference",
    seed=1,
    options={},
    contract=Contract(),
    status="parked",
    host=None,
    epoch=3,
    cut_block=7,
    readout=Readout("image", 1),
    actions=[],
    plan="",
    image="s-1.m-1.image",
    twin=None,
    twin_of=None,
    move=None,
    receipts=[],
    why=None,
)
FACTS = HostFacts("a", 1, "g-1", 1 << 30, 0, [], [], [])


@pytest.mark.parametrize(
    ("status", "asleep", "told"),
    [("parked", False, "parked"), ("parked", True, "parked, asleep"), ("moving", True, "moving")],
)
def test_who_sleeps_is_told_from_who_was_parked_by_hand(status, asleep, told):
    row = replace(ROW, status=status, asleep=asleep)
    assert f" {told}  " in sessions_text([row])
    assert f"status    {told}\n" in session_text(row)


@pytest.mark.parametrize(
    ("alive", "gone", "told"), [(True, False, "alive"), (False, True, "gone"), (False, False, "not reached")]
)
def test_only_a_host_whose_process_has_ended_is_called_gone(alive, gone, told):
    row = Host("a", alive, FACTS if alive else None, None, gone=gone)
    assert f" {told}  " in hosts_text([row])
