"""Numbered actions and ordered blocks over changes of the owner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worldline.control.playback import (
    ActionIn,
    BlockIn,
    Deliver,
    DropStale,
    HostLinkDown,
    HostLinkUp,
    Missed,
    OwnerChanged,
    Playback,
    PlayCommand,
    PlayEvent,
    PlayLimits,
    Reject,
    RejectedIn,
    SendAct,
    Waited,
    Withdrawn,
)
from worldline.schema.ids import Epoch, HostId

A, B, C = HostId("a"), HostId("b"), HostId("c")
E1, E2, E3 = Epoch(1), Epoch(2), Epoch(3)
LIMITS = PlayLimits(actions_max=4, blocks_max=3, wait_s=2.0)


def playback(linked: bool = True) -> Playback:
    player = Playback(OwnerChanged(A, E1, 0), 0, 0, LIMITS)
    if linked:
        player.handle(HostLinkUp(E1, 0, 0), 0.0)
    return player


def act(number: int) -> ActionIn:
    return ActionIn(number, 10 + number)


def sent(host: HostId, epoch: Epoch, *numbers: int) -> list[PlayCommand]:
    return [SendAct(host, epoch, number, 10 + number) for number in numbers]


def block(epoch: Epoch, number: int) -> BlockIn:
    return BlockIn(epoch, number, number, f"picture {number}")


def feed(player: Playback, *events: PlayEvent, now_s: float = 0.0) -> list[PlayCommand]:
    """Commands of all of them."""
    return [command for event in events for command in player.handle(event, now_s)]


def shown(commands: list[PlayCommand]) -> list[int]:
    return [command.block.block for command in commands if isinstance(command, Deliver)]


def test_actions_are_sent_in_order_and_kept_until_their_block_has_come() -> None:
    player = playback()
    assert feed(player, act(1), act(2)) == sent(A, E1, 1, 2)
    assert player.unanswered == 2
    assert feed(player, block(E1, 1)) == [Deliver(block(E1, 1))]
    assert player.unanswered == 1


def test_an_action_that_comes_twice_counts_once() -> None:
    player = playback()
    feed(player, act(1), block(E1, 1), act(2))
    assert feed(player, act(1), act(2)) == []


def test_an_action_that_jumps_is_rejected_with_the_number_to_go_on_with() -> None:
    (rejected,) = feed(playback(), act(2))
    assert isinstance(rejected, Reject)
    assert (rejected.number, rejected.expected, rejected.code) == (2, 1, "ACTION_GAP")


def test_a_player_who_runs_too_far_ahead_is_refused_and_loses_nothing() -> None:
    player = playback(linked=False)
    feed(player, *map(act, range(1, 5)))
    (rejected,) = feed(player, act(5))
    assert isinstance(rejected, Reject)
    assert (rejected.expected, rejected.code) == (5, "TIMEOUT")
    assert feed(player, HostLinkUp(E1, 0, 0)) == sent(A, E1, 1, 2, 3, 4)


def test_a_parked_session_takes_no_action() -> None:
    player = playback()
    feed(player, OwnerChanged(None, E2, 0))
    (rejected,) = feed(player, act(1))
    assert isinstance(rejected, Reject)
    assert rejected.code == "SESSION_PARKED"


def test_what_is_withdrawn_while_nobody_owns_the_session_is_never_sent() -> None:
    player = playback()
    feed(player, act(1), act(2), act(3), block(E1, 1), OwnerChanged(None, E2, 1), Withdrawn(2))
    assert player.expected_number == 2
    assert feed(player, OwnerChanged(B, E3, 1), HostLinkUp(E3, 1, 1)) == []
    assert feed(player, act(2)) == sent(B, E3, 2)


def test_nothing_is_withdrawn_while_there_is_an_owner_who_may_apply_it() -> None:
    player = playback()
    feed(player, act(1), act(2), Withdrawn(1))
    assert player.expected_number == 3


def test_a_new_owner_is_sent_what_it_has_not_applied() -> None:
    """1. Three actions, the first answered. 2. The session moves, two applied. 3. The third is for the new owner."""
    player = playback()
    feed(player, act(1), act(2), act(3), block(E1, 1))
    assert feed(player, OwnerChanged(B, E2, 2)) == []
    assert feed(player, HostLinkUp(E2, 2, 2)) == sent(B, E2, 3)
    assert feed(player, act(4)) == sent(B, E2, 4)


def test_a_new_owners_block_waits_for_the_old_owners_last_ones() -> None:
    player = playback()
    feed(player, act(1), act(2), act(3), OwnerChanged(B, E2, 2), HostLinkUp(E2, 2, 2))
    assert feed(player, block(E2, 3)) == []
    assert player.wake_at_s == 2.0
    assert shown(feed(player, block(E1, 1), block(E1, 2))) == [1, 2, 3]
    assert player.wake_at_s is None


def test_the_wait_ends_when_the_old_link_is_down() -> None:
    player = playback()
    feed(player, act(1), act(2), act(3), OwnerChanged(B, E2, 2), HostLinkUp(E2, 2, 2), block(E2, 3))
    assert feed(player, HostLinkDown(E1)) == [Missed(1, 2), Deliver(block(E2, 3))]


def test_the_wait_ends_in_time() -> None:
    player = playback()
    feed(player, act(1), act(2), act(3), OwnerChanged(B, E2, 2), HostLinkUp(E2, 2, 2), block(E2, 3))
    assert feed(player, Waited(), now_s=1.9) == []
    assert feed(player, Waited(), now_s=2.0) == [Missed(1, 2), Deliver(block(E2, 3))]
    assert feed(player, block(E1, 1), now_s=2.1) == [DropStale(E1, 1)]


def test_a_block_beyond_the_cut_is_not_the_old_owners_to_show() -> None:
    player = playback()
    feed(player, act(1), act(2), block(E1, 1), OwnerChanged(B, E2, 1))
    assert feed(player, block(E1, 2)) == [DropStale(E1, 2)]
    assert shown(feed(player, HostLinkUp(E2, 1, 1), block(E2, 2))) == [2]


def test_a_waiting_block_beyond_the_cut_is_dropped_when_the_cut_is_known() -> None:
    """The old owner's blocks 3 and 4 wait for 1 and 2 of the owner before it, and 4 turns out to be another's."""
    player = playback()
    feed(player, OwnerChanged(B, E2, 2), HostLinkUp(E2, 2, 2), block(E2, 3), block(E2, 4))
    assert feed(player, OwnerChanged(C, E3, 3)) == [DropStale(E2, 4)]
    assert shown(feed(player, block(E1, 1), block(E1, 2))) == [1, 2, 3]


def test_a_new_owner_may_not_show_blocks_of_before_its_cut_or_of_an_unknown_epoch() -> None:
    player = playback()
    feed(player, OwnerChanged(B, E2, 2), HostLinkUp(E2, 2, 2))
    assert feed(player, block(E2, 2), block(Epoch(9), 3)) == [DropStale(E2, 2), DropStale(Epoch(9), 3)]


def test_a_block_that_comes_twice_is_shown_once() -> None:
    player = playback()
    feed(player, act(1), block(E1, 1))
    assert feed(player, block(E1, 1)) == [DropStale(E1, 1)]


def test_blocks_lost_with_a_dropped_connection_are_told() -> None:
    player = playback()
    feed(player, act(1), act(2), act(3), HostLinkDown(E1))
    assert feed(player, HostLinkUp(E1, 2, 2)) == [SendAct(A, E1, 3, 13), Missed(1, 2)]
    assert player.unanswered == 1


def test_an_owner_of_the_past_changes_nothing() -> None:
    player = playback()
    feed(player, OwnerChanged(B, E2, 0))
    assert feed(player, OwnerChanged(A, E1, 0), OwnerChanged(C, E2, 0)) == []
    assert feed(player, HostLinkUp(E2, 0, 0), act(1)) == sent(B, E2, 1)


def test_a_host_that_waits_for_an_earlier_action_is_sent_it_again() -> None:
    player = playback()
    feed(player, act(1), act(2))
    assert feed(player, RejectedIn(E1, 2, 1)) == sent(A, E1, 1, 2)
    (rejected,) = feed(player, RejectedIn(E1, 2, 9))
    assert isinstance(rejected, Reject)
    assert feed(player, RejectedIn(E2, 2, 1)) == []


def test_waiting_blocks_are_bounded() -> None:
    player = playback()
    feed(player, OwnerChanged(B, E2, 1), HostLinkUp(E2, 1, 1))
    assert feed(player, *(block(E2, number) for number in range(2, 6))) == [DropStale(E2, 5)]


EPOCHS = st.sampled_from([E1, E2, E3])
EVENTS = st.one_of(
    st.builds(act, st.integers(1, 8)),
    st.builds(block, EPOCHS, st.integers(1, 8)),
    st.builds(RejectedIn, EPOCHS, st.integers(1, 8), st.integers(1, 8)),
    st.builds(OwnerChanged, st.sampled_from([A, B, None]), EPOCHS, st.integers(0, 8)),
    st.builds(HostLinkUp, EPOCHS, st.integers(0, 8), st.integers(0, 8)),
    st.builds(HostLinkDown, EPOCHS),
    st.just(Waited()),
)


@given(st.lists(EVENTS, max_size=60))
def test_whatever_comes_blocks_are_told_in_order_and_nothing_grows(events: list[PlayEvent]) -> None:
    player, now_s, told = playback(), 0.0, 0
    for event in events:
        now_s += 0.7
        for command in player.handle(event, now_s):
            match command:
                case Deliver(delivered):
                    told += 1
                    assert delivered.block == told
                case Missed(first, last):
                    assert first == told + 1 <= last
                    told = last
                case _:
                    pass
        assert told == player.delivered_block
        assert player.unanswered <= LIMITS.actions_max
        assert len(player._early) <= LIMITS.blocks_max
