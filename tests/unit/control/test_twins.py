"""A session beside its twin that never moves."""

from __future__ import annotations

from worldline.control.twins import PAIRS_WAITING_MAX, Difference, Print, TwinCheck, TwinSide

SESSION, TWIN = TwinSide.SESSION, TwinSide.TWIN


def test_equal_blocks_are_counted_whichever_comes_first() -> None:
    check = TwinCheck()
    assert check.add(SESSION, Print(1, "d", "r")) is None
    assert check.add(TWIN, Print(1, "d", "r")) is True
    assert check.add(TWIN, Print(2, "e", None)) is None
    assert check.add(SESSION, Print(2, "e", "s")) is True
    assert (check.equal, check.unwitnessed, check.first_difference) == (2, 1, None)


def test_the_first_difference_is_kept_and_says_what_differs() -> None:
    check = TwinCheck()
    mine, theirs = Print(2, "d", "r"), Print(2, "d", "x")
    for block, session, twin in ((3, "a", "b"), (4, "a", "b")):
        check.add(SESSION, Print(block, session, None))
        assert check.add(TWIN, Print(block, twin, None)) is False
    check.add(SESSION, mine)
    assert check.add(TWIN, theirs) is False
    assert check.first_difference == Difference(2, frames_differ=False, state_differs=True, session=mine, twin=theirs)
    assert check.equal == 0


def test_blocks_that_wait_in_vain_are_counted_and_bounded() -> None:
    check = TwinCheck()
    for block in range(PAIRS_WAITING_MAX + 5):
        check.add(SESSION, Print(block, "d", None))
    assert check.skipped == 5
    assert check.add(TWIN, Print(4, "d", None)) is None
    assert check.add(TWIN, Print(5, "d", None)) is True
