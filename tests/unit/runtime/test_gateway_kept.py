"""What of a session's delivered blocks can be sent again."""

from worldline.runtime.gateway_kept import BLOCKS_KEPT, KEPT_BYTES_MAX, Kept
from worldline.runtime.gateway_told import Shown
from worldline.runtime.messages import Block


def shown(number: int, payload: bytes = b"") -> Shown:
    return Shown("a", Block("s", 1, number, number, number, 1, "text", 0, 0, payload, "", None, None, 0.0))


def test_the_oldest_blocks_go_where_there_are_too_many() -> None:
    kept = Kept()
    for number in range(1, BLOCKS_KEPT + 3):
        kept.add(shown(number))
    assert kept.get(2) is None
    assert [each.block.number for each in kept.after(BLOCKS_KEPT)] == [BLOCKS_KEPT + 1, BLOCKS_KEPT + 2]
    assert len(kept.after(0)) == BLOCKS_KEPT


def test_the_oldest_blocks_go_where_they_are_too_large_and_the_newest_stays() -> None:
    kept, large = Kept(), bytes(KEPT_BYTES_MAX // 2 + 1)
    for number in (1, 2):
        kept.add(shown(number, large))
    assert [each.block.number for each in kept.after(0)] == [2]
    kept.add(shown(3, bytes(KEPT_BYTES_MAX + 1)))
    assert [each.block.number for each in kept.after(0)] == [3]
