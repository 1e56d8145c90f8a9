"""Engines of a host, and the ledger of its memory."""

import pytest

from worldline.clock import SystemClock
from worldline.errors import BadValue, NoCapacity, UnknownWorld
from worldline.runtime.host_worlds import Engines, MemoryLedger
from worldline.runtime.messages import SessionSpec
from worldline.schema.contract import Contract


def spec(contract=None, **options):
    return SessionSpec("worldline.testing.tiny:TinyWorld", 1, options, contract or Contract())


def test_memory_is_reserved_up_to_the_limit_and_given_back_once():
    ledger = MemoryLedger(100)
    ledger.reserve("a", 60)
    with pytest.raises(NoCapacity) as caught:
        ledger.reserve("b", 50)
    assert caught.value.facts == {"needed_bytes": 50, "free_bytes": 40, "limit_bytes": 100}
    ledger.reserve("move 1", 40)
    ledger.hand_on("move 1", "b")
    ledger.release("move 1")
    assert ledger.used_bytes == 100
    ledger.release("a")
    ledger.release("a")
    assert ledger.used_bytes == 40


async def test_an_engine_is_built_once_for_equal_options_and_anew_for_others():
    engines = Engines(SystemClock())
    try:
        one = await engines.get(spec(width=16))
        assert await engines.get(spec(width=16)) is one
        other = await engines.get(spec(width=16, flavour="x"))
        assert other.plan.differences(one.plan) != ()
        assert engines.names == ["tiny"]
        with pytest.raises(BadValue):
            await engines.get(spec(colour="red"))
        with pytest.raises(UnknownWorld):
            await engines.get(SessionSpec("nowhere", 1, {}, Contract()))
    finally:
        engines.close()


async def test_an_action_that_the_world_does_not_have_is_seen_before_it_is_queued():
    engines = Engines(SystemClock())
    try:
        built = await engines.get(spec())
    finally:
        engines.close()
    assert [built.problem_with(action) is None for action in (-1, 0, 4, 5)] == [False, True, True, False]
